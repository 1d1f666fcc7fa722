"""agent/messages/msg.py: messages, made and read."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import AssistantMsg, ChatUsage, HintBlock, Msg, ReplyFinishedReason, SystemMsg, TextBlock, UserMsg


def test_short_ways_to_make_one() -> None:
    assert [
        (msg.name, msg.role, msg.text) for msg in (UserMsg("a"), UserMsg("ann", "a"), UserMsg(name="ann", content=[TextBlock("a")]))
    ] == [
        ("user", "user", "a"),
        ("ann", "user", "a"),
        ("ann", "user", "a"),
    ]
    assert (SystemMsg("s").role, AssistantMsg("a", "b").name, AssistantMsg(id="x", name="a", content="b").id) == ("system", "a", "x")
    assert Msg("ann", ("x" and [TextBlock("x")]), "user").text == "x"
    with pytest.raises(TypeError, match="not 3 values"):
        UserMsg("a", "b", "c")


@pytest.mark.parametrize("make", [UserMsg, SystemMsg])
def test_what_only_an_assistant_holds(make: Any) -> None:
    with pytest.raises(ValueError, match="can't hold a hint block; put it into an AssistantMsg"):
        make(content=[HintBlock("x")])


def test_its_blocks() -> None:
    msg = AssistantMsg(content=[TextBlock("a"), HintBlock("h"), TextBlock("b")])
    assert (msg.text, msg.get_text_content(), AssistantMsg(content=[]).get_text_content()) == ("ab", "a\nb", None)
    assert [len(msg.get_content_blocks(kind)) for kind in (None, "text", ["text", "hint"], "data")] == [3, 2, 3, 0]
    assert (msg.has_content_blocks("hint"), msg.has_content_blocks("data")) == (True, False)
    assert [block.text for block in msg.blocks(TextBlock)] == ["a", "b"]


def test_it_survives_being_written_down() -> None:
    msg = AssistantMsg(
        "a", [TextBlock("x", extra={"chat": {"y": 1}})], usage=ChatUsage(1, 2), finished_reason=ReplyFinishedReason.COMPLETED
    )
    assert Msg.from_dict(msg.to_dict()) == msg
    assert msg.to_dict()["content"][0]["type"] == "text"


def test_usage_adds_up_and_the_weakest_source_stands() -> None:
    total = ChatUsage(1, 2, 3, 4, 5) + ChatUsage(1, 1, 1, 1, 1, "estimated")
    assert total == ChatUsage(2, 3, 4, 5, 6, "estimated")
    assert total.total_tokens == 5
