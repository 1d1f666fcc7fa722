"""What a key may not ask for, over HTTP; and a rule that only watches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spangate.proxy.config import parse
from spangate.proxy.kinds import Kinds

from case import KEY, case, key_hash

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
        assert [[(note.name, note.figures) for note in each.notes] for each in seen] == [
            [("access.refused", {"tool": "rm_x", "mode": "shadow"})],
            [],
        ]


def test_the_pages_examples_can_be_used() -> None:
    base = "providers: {s: {kind: scripted}}\nmodels: {'*': {targets: [{provider: s}]}}\n"
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        assert parse((base + block).encode(), "f", environ={}, kinds=Kinds()).settings
