"""The spangate.yaml that `spangate init` writes: commented, made from what was found, and good as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SCHEMA_FILE = "./spangate.schema.json"


@dataclass(frozen=True, slots=True)
class Vendor:
    """A provider that `init` knows by the variable its key is usually kept in."""

    name: str
    variable: str
    settings: str
    model: str


VENDORS = (
    Vendor("openai", "OPENAI_API_KEY", "", "gpt-5-mini"),
    Vendor("mistral", "MISTRAL_API_KEY", ", flavor: mistral", "mistral-small-latest"),
    Vendor("openrouter", "OPENROUTER_API_KEY", ", flavor: compatible, base_url: https://openrouter.ai/api/v1", "openrouter/auto"),
    Vendor("groq", "GROQ_API_KEY", ", flavor: compatible, base_url: https://api.groq.com/openai/v1", "openai/gpt-oss-20b"),
    Vendor("deepseek", "DEEPSEEK_API_KEY", ", flavor: compatible, base_url: https://api.deepseek.com/v1", "deepseek-chat"),
)
OLLAMA = "{kind: openai, flavor: ollama, base_url: http://127.0.0.1:11434/v1}"

TEXT = """\
# yaml-language-server: $schema={schema}
# spangate.yaml, the whole configuration of the gateway. `spangate check` checks it; a running gateway takes a change within 2 s.
# `spangate schema > {schema}` writes the schema that gives your editor completion and descriptions.

server:
  host: 127.0.0.1   # other machines may call once this is another address and there is a team with a key
  port: 8484

# Who answers. ${{NAME}} is filled in from the environment, so that no secret stands here.
providers:
{providers}

# The names that callers use.
models:
{models}

# Who may call. Without a team the gateway is open to programs on this machine. For a team take the # from the two lines below,
# choose its name and models, and make it a key: spangate keys new search
# teams:
#   search: {{models: [{first}]}}
"""


def init_text(environ: Mapping[str, str], *, ollama: bool) -> str:
    """A configuration for the provider keys in the environment and a local Ollama. With neither, one that expects Ollama."""
    found = [vendor for vendor in VENDORS if environ.get(vendor.variable, "").strip()]
    local = ollama or not found
    return TEXT.format(
        schema=SCHEMA_FILE,
        providers="\n".join(_providers(found, local=local, ollama=ollama)),
        models="\n".join(_models(found, local=local)),
        first="fast" if found else '"*"',
    )


def _providers(found: list[Vendor], *, local: bool, ollama: bool) -> list[str]:
    lines = [_provider(vendor) for vendor in found]
    if local:
        note = "" if ollama else "   # nothing was found: start Ollama, or take the line below"
        lines.append(f"  local: {OLLAMA}{note}")
    if not found:
        lines.append(f"  # {_provider(VENDORS[0]).strip()}")
    return lines


def _provider(vendor: Vendor) -> str:
    return f'  {vendor.name}: {{kind: openai, api_key: "${{{vendor.variable}}}"{vendor.settings}}}'


def _models(found: list[Vendor], *, local: bool) -> list[str]:
    first = found[0].name if found else "local"
    lines = [f"  fast: {{targets: [{{provider: {found[0].name}, model: {found[0].model}}}]}}"] if found else []
    lines += [f'  {other.name}: {{targets: [{{provider: {other.name}, model: "{other.model}"}}]}}' for other in found[1:]]
    if local and found:
        lines.append('  local: {targets: [{provider: local, model: "qwen3:8b"}]}')
    lines.append(f'  "*": {{targets: [{{provider: {first}}}]}}   # any other name, passed through as it is')
    return lines
