"""agent/translation.py: an agent's words in the proxy's, and back."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import SystemMsg, ToolChoice, UserMsg
from spangate.agent.asking import Asking, asking
from spangate.agent.translation import call_of, chat_body, chat_tool_choice, pieces_of
from spangate.call.call import Caller, Head, Labels
from spangate.call.script import Script


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        (None, None),
        (ToolChoice(), None),
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("f"), {"type": "function", "function": {"name": "f"}}),
        (ToolChoice("required", ["f"]), {"type": "function", "function": {"name": "f"}}),
        (
            ToolChoice("auto", ["f"]),
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}},
        ),
    ],
)
def test_tool_choice(choice: ToolChoice | None, written: Any) -> None:
    assert chat_tool_choice(choice) == written
    assert chat_body([], [], choice, {}) == {"messages": []}, "nothing is chosen where there is nothing"


def test_a_call_for_the_reply_that_is_made() -> None:
    token = asking.set(Asking(reply="r", thread="t", purpose="selector", deadline=3.0))
    body = chat_body([SystemMsg("s"), UserMsg("u")], [], None, {"max_tokens": 5})
    call = call_of(body, model="m", stream=True, caller=Caller(team="x"))
    asking.reset(token)
    assert (call.labels, call.purpose, call.deadline, call.caller.team) == (Labels("t", "r"), "classify", 3.0, "x")
    assert call.head == Head(stream=True, output_cap=5, usage_frame=True)
    assert call.body.parsed() == {
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "max_tokens": 5,
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("usage", ["omit", "late", "twice", "cumulative", {"input": 3, "output": 4}])
async def test_usage_is_counted_once_however_it_comes(usage: Any, stream: bool) -> None:
    script = Script([{"answer": {"text": "one two"}, "usage": usage}])
    events = script.answer(call_of({"messages": []}, model="m", stream=stream))
    pieces = [piece async for piece in pieces_of(events, "m")]
    last = pieces[-1]
    assert (last.text, last.finish, last.is_last) == ("one two", "stop", True)
    assert [piece.is_last for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    if usage == "omit":
        assert last.usage is None
    else:
        assert last.usage is not None
        assert last.usage.output_tokens == (4 if isinstance(usage, dict) else 2)
