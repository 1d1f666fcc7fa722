"""agent/models/scripted.py: a script, and what was asked."""

from __future__ import annotations

import pytest

from spangate.agent import ScriptedModel, ToolChoice, calls
from spangate.call.errors import UpstreamError
from spangate.call.script import Script


async def test_it_says_these_in_turn_and_then_echoes() -> None:
    model = ScriptedModel.saying("one", calls("f", a=1), {"fault": {"status": 429}}, {"answer": {"text": "two"}, "usage": {"output": 9}})
    assert (await (await model("x")).response()).text == "one"
    assert (await (await model("x")).response()).tool_calls[0].input == '{"a": 1}'
    with pytest.raises(UpstreamError):
        await model("x")
    last = await (await model("x")).response()
    assert last.usage is not None
    assert (last.text, last.usage.output_tokens) == ("two", 9)
    assert (await (await model("x y")).response()).text == "x y"


async def test_it_remembers_what_it_was_asked() -> None:
    model = ScriptedModel(Script(), model="m", stream=False)
    await model("x", [{"type": "function", "function": {"name": "f"}}], ToolChoice("required"), temperature=0)
    assert model.calls[0] == {
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
        "model": "m",
        "stream": False,
    }


async def test_rules_may_look_at_the_call() -> None:
    model = ScriptedModel([{"when": {"contains": "rome"}, "answer": {"text": "sunny"}}, {"answer": {"text": "rainy"}}])
    assert [(await (await model(city)).response()).text for city in ("Rome", "Bergen")] == ["sunny", "rainy"]
