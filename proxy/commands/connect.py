"""`spangate connect`: what to set for a client, ready to paste into a shell. Only clients whose endpoints are built."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ..mistakes import did_you_mean, quoted
from ..server import Address
from ..settings import Server
from .failure import unusable
from .serve import reachable
from .written import Written, written

PLACEHOLDER = "sg-…"
ANY = "any"  # clients insist on a key where the gateway wants none


@dataclass(frozen=True, slots=True)
class Way:
    """How a client reaches the gateway."""

    url: str
    key: str
    model: str


def connect(client: str, file: Path | None, environ: Mapping[str, str]) -> int:
    """Print what to set for `client`.

    Raises:
        Failure: no such client is known.
        ConfigMistakes: the configuration can't be read.
    """
    if client not in CLIENTS:
        raise unusable(f"no client {quoted(client)} is known{did_you_mean(client, CLIENTS)} (known: {', '.join(CLIENTS)})")
    config = written(file, environ)
    way = way_of(config, environ)
    print(CLIENTS[client](way))  # noqa: T201
    if way.key == PLACEHOLDER:
        team = next(iter(config.teams), "TEAM") if config else "TEAM"
        told = f"Put a key for {PLACEHOLDER}, or set SPANGATE_KEY and ask again: `spangate keys new {team}` makes one."
        print(told, file=sys.stderr)  # noqa: T201
    return 0


def way_of(config: Written | None, environ: Mapping[str, str]) -> Way:
    """The address by the file, the key by SPANGATE_KEY, a model that there is."""
    address = config.address if config else Address(Server().host, Server().port)
    key = environ.get("SPANGATE_KEY", "").strip() or (PLACEHOLDER if config and config.teams else ANY)
    return Way(f"{reachable(address).url}/v1", key, next(iter(config.models if config else ()), "gpt-5-mini"))


def _env(way: Way) -> str:
    return f"export OPENAI_BASE_URL={quote(way.url)}\nexport OPENAI_API_KEY={quote(way.key)}"


def _curl(way: Way) -> str:
    body = quote(json.dumps({"model": way.model, "messages": [{"role": "user", "content": "Hello"}]}))
    header = quote(f"Authorization: Bearer {way.key}")
    return f"curl {quote(f'{way.url}/chat/completions')} \\\n  -H {header} \\\n  -H 'Content-Type: application/json' \\\n  -d {body}"


def _openai(way: Way) -> str:
    return f"""\
{_env(way)}
python - <<'END'
from openai import OpenAI

answer = OpenAI().chat.completions.create(model={json.dumps(way.model)}, messages=[{{"role": "user", "content": "Hello"}}])
print(answer.choices[0].message.content)
END"""


def _node(way: Way) -> str:
    return f"""\
{_env(way)}
node --input-type=module - <<'END'
import OpenAI from "openai";

const messages = [{{ role: "user", content: "Hello" }}];
const answer = await new OpenAI().chat.completions.create({{ model: {json.dumps(way.model)}, messages }});
console.log(answer.choices[0].message.content);
END"""


def _langchain(way: Way) -> str:
    return f"""\
{_env(way)}
python - <<'END'
from langchain_openai import ChatOpenAI

print(ChatOpenAI(model={json.dumps(way.model)}).invoke("Hello").content)
END"""


def _continue(way: Way) -> str:
    return f"""\
# into ~/.continue/config.yaml
models:
  - name: spangate
    provider: openai
    model: {json.dumps(way.model)}
    apiBase: {way.url}
    apiKey: {json.dumps(way.key, ensure_ascii=False)}
    roles: [chat, edit, apply]"""


def _aider(way: Way) -> str:
    return f"export OPENAI_API_BASE={quote(way.url)}\nexport OPENAI_API_KEY={quote(way.key)}\naider --model {quote(f'openai/{way.model}')}"


def _open_webui(way: Way) -> str:
    return f"""\
export OPENAI_API_BASE_URL={quote(way.url)}
export OPENAI_API_KEY={quote(way.key)}
export ENABLE_FORWARD_USER_INFO_HEADERS=true   # says who asks; spangate.yaml: callers.headers.user: [x-openwebui-user-email]
open-webui serve"""


CLIENTS: Mapping[str, Callable[[Way], str]] = {
    "env": _env,
    "curl": _curl,
    "openai": _openai,
    "openai-node": _node,
    "langchain": _langchain,
    "continue": _continue,
    "aider": _aider,
    "open-webui": _open_webui,
}
