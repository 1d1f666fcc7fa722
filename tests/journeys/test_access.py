"""What a key may not ask for, over HTTP; and a rule that only watches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spangate.proxy.config import parse
from spangate.proxy.kinds import Kinds

from case import KEY, case, key_hash
from upstream import Misbehaving, chat_completion, http, play

DOCS = Path(__file__).parents[2] / "docs/policies.md"
HI = [{"role": "user", "content": "hi"}]


def teams(**access: Any) -> dict[str, Any]:
    return {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": [{"access": access}]}}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"tools": [tool("get_x"), tool("rm_x")]}, 403, ("tool_not_allowed", "permission_error", "tools")),
        ({"tools": {"0": tool("rm_x")}}, 400, ("invalid_request", "invalid_request_error", "tools")),
        ({"n": 3}, 400, ("invalid_request", "invalid_request_error", "n")),
        ({"input": "hi"}, 403, ("operation_not_allowed", "permission_error", None)),
    ],
)
async def test_what_is_not_allowed(body: dict[str, Any], status: int, told: tuple[str, str, str], tmp_path: Path) -> None:
    rule = {"tools": {"deny": ["rm_*"]}, "operations": ["chat", "completions"], "max": {"n": 2}}
    async with case(tmp_path, teams=teams(**rule)) as it:
        answer = await it.ask({"model": "ok", **body}, path="/v1/embeddings" if "input" in body else "/v1/chat/completions")
        assert answer.status == status
        assert tuple(answer.error[name] for name in ("code", "type", "param", "source")) == (*told, "policy")
        assert answer.header("x-spangate-attempts") == "0"


PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA="  # the beginning of one pixel
REMOTE = {"type": "image_url", "image_url": {"url": "https://example.com/huge.png"}}
SENT = json.dumps([{"role": "user", "content": [{"type": "text", "text": "x", "url": PICTURE}, REMOTE]}])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ('"tools": [{"type": "custom", "function": {"name": "get_x"}, "custom": {"name": "rm_x"}}]', "tools"),
        ('"tools": [{"type": "web_search", "name": "get_x"}]', "tools"),
        ('"tools": [{"type": "web_search", "function": {"name": "get_x"}}]', "tools"),
        ('"tools": [{"type": "function", "function": {"name": "rm_x"}, "function": {"name": "get_x"}}]', "tools"),
        ('"tools": [{"type": "function", "function": {"name": "get_x", "Name": "rm_x"}}]', "tools"),
        ('"tool_choice": {"type": "function", "function": {"name": "rm_x"}}', "tools"),
        ('"Tools": [{"type": "function", "function": {"name": "rm_x"}}]', "Tools"),
        ('"Model": "secret"', "Model"),
        ('"MAX_TOKENS": 100000', "MAX_TOKENS"),
        ('"messages": ' + SENT, "messages"),
        ('"messages": ' + json.dumps([{"role": "user", "content": [REMOTE]}]).replace('image_url"', 'image\\u005furl"'), "messages"),
        ('"messages": ' + json.dumps([{"role": "user", "content": "x", "images": [PICTURE]}]), "messages"),
        ('"prompt": "x", "best_of": 100', "n"),
        ('"prompt": ["x", "y", "z"]', "n"),
    ],
)
async def test_a_decoy_hides_nothing(fields: str, param: str, tmp_path: Path) -> None:
    rule = {"tools": {"deny": ["rm_*", "web_search"]}, "max": {"n": 2, "image": "10x10"}}
    hi = "" if param in ("messages", "n") else '"messages": [{"role": "user", "content": "hi"}], '
    async with case(tmp_path, teams=teams(**rule)) as it:
        path = "/v1/completions" if param == "n" else "/v1/chat/completions"
        answer = await it.ask(f'{{"model": "ok", {hi}{fields}}}'.encode(), path=path)
        assert (answer.status, answer.error["param"]) == (403 if answer.error["code"] == "tool_not_allowed" else 400, param)
        assert answer.header("x-spangate-attempts") == "0"


@pytest.mark.parametrize(
    "given", [{}, {"max_completion_tokens": 100}, {"max_tokens": 100, "n_predict": 1000}, {"max_tokens": 3, "n_predict": 1000}]
)
async def test_a_cap_reaches_a_server_that_reads_another_field(given: dict[str, int], tmp_path: Path) -> None:
    async with Misbehaving(play(http(body=chat_completion("Hello")))) as up:
        providers = {"up": {"kind": "openai", "flavor": "llamacpp", "base_url": up.base_url}, "script": {"kind": "scripted"}}
        async with case(tmp_path, up, providers=providers, teams=teams(max={"max_tokens": 5})) as it:
            answer = await it.ask(given)
            assert (answer.status, answer.header("x-spangate-capped")) == (200, "5")
            sent = (await up.request()).json()
            assert {name: cap for name, cap in sent.items() if name not in ("model", "messages")} == {
                "max_tokens": min(given.get("max_tokens", 5), 5)
            }


@pytest.mark.parametrize(("stream", "given"), [(False, {}), (True, {}), (True, {"max_tokens": 100}), (False, {"max_completion_tokens": 4})])
async def test_a_long_answer_is_capped(stream: bool, given: dict[str, int], tmp_path: Path) -> None:
    async with case(tmp_path, teams=teams(max={"max_tokens": 5})) as it:
        answer = await it.ask({"model": "ok", "messages": HI, "stream": stream, **given})
        assert answer.status == 200
        assert answer.header("x-spangate-capped") == (None if given.get("max_completion_tokens") == 4 else "5")


async def test_a_rule_in_shadow_is_seen_and_not_felt(tmp_path: Path) -> None:
    rule = {"tools": {"deny": ["*"]}, "max": {"max_tokens": 5}, "mode": "shadow", "when": "'rm_x' in tools"}
    async with case(tmp_path, teams=teams(**rule)) as it:
        answer = await it.ask({"model": "ok", "messages": HI, "tools": [tool("rm_x")]})
        assert (answer.status, answer.header("x-spangate-capped")) == (200, None)
        assert (await it.ask({"model": "ok", "messages": HI})).status == 200
        seen = await it.running.kept.count(2)
        told = {"tool": "rm_x", "rule": "teams.search.policies[0]", "condition": "'rm_x' in tools", "mode": "shadow"}
        assert [[(note.name, note.figures) for note in each.notes] for each in seen] == [[("access.refused", told)], []]


def test_the_pages_examples_can_be_used() -> None:
    base = "providers: {s: {kind: scripted}}\nmodels: {'*': {targets: [{provider: s}]}}\n"
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        assert parse((base + block).encode(), "f", environ={}, kinds=Kinds()).settings
