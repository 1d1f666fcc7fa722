"""agent/messages/turns.py: a history is valid, whatever happened to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import AssistantMsg, HintBlock, Msg, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from spangate.agent.messages.blocks import Block
from spangate.agent.messages.chat import to_chat
from spangate.agent.messages.turns import mended, unanswered


def valid(messages: list[Msg]) -> bool:
    """As a provider sees it: each message with calls is followed by exactly its results, and there is no other result."""
    waiting: list[str] = []
    for message in to_chat(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return False
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return False
        waiting += [call["id"] for call in message.get("tool_calls", ())]
    return not waiting


def block(said: str) -> Block:
    kind, call = said[0], said[1:]
    return {
        "t": lambda: TextBlock("t"),
        "h": lambda: HintBlock("h"),
        "c": lambda: ToolCallBlock(call, "f"),
        "r": lambda: ToolResultBlock(call, "f", "r"),
    }[kind]()


words = st.sampled_from(["t", "h", "ca", "cb", "cc", "ra", "rb", "rc"])
histories = st.lists(st.none() | st.lists(words, max_size=6), max_size=5)


@given(histories)
def test_every_history_becomes_valid_and_stays(said: list[list[str] | None]) -> None:
    history = [UserMsg("u") if each is None else AssistantMsg(content=[block(word) for word in each]) for each in said]
    once = mended(history)
    assert valid(once)
    assert mended(once) == once
    assert unanswered(once) == []


def test_what_was_right_is_returned_as_it_was() -> None:
    history = [UserMsg("u"), AssistantMsg(content=[ToolCallBlock("a", "f"), ToolResultBlock("a", "f", "1"), TextBlock("so")]), UserMsg("v")]
    assert all(one is other for one, other in zip(mended(history), history, strict=True))


def test_open_calls_are_answered_where_they_stand() -> None:
    history = [
        AssistantMsg(content=[TextBlock("t"), ToolCallBlock("a", "f"), ToolCallBlock("b", "f"), ToolResultBlock("b", "f", "2")]),
        UserMsg("v"),
    ]
    [first, second] = mended(history)
    assert [(block.type, getattr(block, "state", "")) for block in first.content[3:]] == [
        ("tool_result", "running"),
        ("tool_result", "interrupted"),
    ]
    assert second is history[1]
    assert len(history[0].content) == 4, "what was given is not written to"


def test_an_id_may_come_again_in_a_later_round() -> None:
    again = [ToolCallBlock("a", "f"), ToolResultBlock("a", "f", "1")]
    history = [AssistantMsg(content=[*again, TextBlock("t"), *again])]
    assert mended(history)[0] is history[0]
