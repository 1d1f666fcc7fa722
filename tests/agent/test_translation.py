"""agent/translation.py: an agent's words in the proxy's, and back."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import HintBlock, Msg, SystemMsg, TextBlock, ThinkingBlock, ToolCallBlock, ToolChoice, ToolResultBlock, UserMsg
from spangate.agent.asking import Asking, asking
from spangate.agent.messages.chat import to_chat
from spangate.agent.translation import (
    UnreadBody,
    call_of,
    changed_fields,
    chat_body,
    chat_tool_choice,
    messages_of,
    pieces_of,
    tool_choice_of,
)
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
    assert chat_tool_choice(tool_choice_of(written)) == written
    assert chat_body([], [], choice, {}) == {"messages": []}, "nothing is chosen where there is nothing"


def test_a_call_for_the_reply_that_is_made() -> None:
    token = asking.set(Asking(reply="r", thread="t", purpose="selector", deadline=3.0))
    body = chat_body([SystemMsg("s"), UserMsg("u")], [], None, {"max_tokens": 5})
    call = call_of(body, model="m", stream=True, caller=Caller(team="x"))
    asking.reset(token)
    assert (call.labels, call.purpose, call.deadline, call.caller.team) == (Labels("t", "r"), "selector", 3.0, "x")
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


def test_a_body_is_made_when_somebody_looks_and_once() -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"messages": [1], "max_tokens": 5}

    body = UnreadBody(make)
    assert not made
    assert changed_fields(body, body) == {}
    assert not made
    assert (body.get("max_tokens"), body.parsed()["messages"], "tools" in body) == (5, [1], False)
    assert made == [1]
    other = body.changed(max_tokens=None, seed=2, messages=[1])
    assert changed_fields(body, other) == {"max_tokens": None, "seed": 2}


SIGNED = ThinkingBlock("hm", extra={"anthropic": {"signature": "s"}})
HISTORY = [
    SystemMsg("Be nice."),
    UserMsg("hi"),
    Msg(
        "a",
        [
            SIGNED,
            TextBlock("let me look"),
            ToolCallBlock("c1", "look", "{}"),
            ToolResultBlock("c1", "look", "ann is there"),
            HintBlock("be short"),
            TextBlock("ann"),
        ],
        "assistant",
    ),
    UserMsg("and now?"),
]


def test_messages_that_were_not_changed_are_the_very_ones() -> None:
    written = to_chat(HISTORY)
    back = messages_of(written, HISTORY)
    assert [back[0], back[1], back[-1]] == [HISTORY[0], HISTORY[1], HISTORY[3]]
    assert to_chat(back) == written
    blocks = [block for msg in back for block in msg.content]
    assert [id(block) for block in blocks] == [id(block) for msg in HISTORY for block in msg.content]


def test_of_a_reply_only_the_turn_that_was_changed_is_written_anew() -> None:
    written = to_chat(HISTORY)
    for message in written:
        if message["role"] == "tool":
            message["content"] = "[…] is there"
    back = messages_of([{"role": "system", "content": "More."}, *written[1:-1]], HISTORY)
    assert to_chat(back) == [{"role": "system", "content": "More."}, *written[1:-1]]
    blocks = [block for msg in back for block in msg.content]
    assert any(block is SIGNED for block in blocks)
    assert [block.output for block in blocks if isinstance(block, ToolResultBlock)] == ["[…] is there"]
