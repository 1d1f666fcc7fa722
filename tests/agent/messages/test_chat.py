"""agent/messages/chat.py: what comes in goes out as it came, and a reply becomes messages in the order that providers insist on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import (
    AssistantMsg,
    DataBlock,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserMsg,
)
from spangate.agent.messages.blocks import Base64Source, ForeignBlock
from spangate.agent.messages.chat import from_chat, to_chat

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}

LOSSLESS: dict[str, list[dict[str, Any]]] = {
    "texts": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}],
    "a developer": [{"role": "developer", "content": "d"}],
    "a name": [{"role": "user", "content": "u", "name": "bob"}],
    "one text as a part": [{"role": "user", "content": [{"type": "text", "text": "u"}]}],
    "a marked part": [{"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]}],
    "images": [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            ],
        }
    ],
    "sound and a file": [
        {
            "role": "user",
            "content": [
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "hologram", "of": "a cat"},
            ],
        }
    ],
    "calls and results": [
        {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": "done"},
    ],
    "an empty content beside calls": [{"role": "assistant", "content": "", "tool_calls": [CALL]}],
    "no content beside calls": [{"role": "assistant", "tool_calls": [CALL]}],
    "fields of a call": [{"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0, "extra_content": {"signature": "x"}}]}],
    "a custom call": [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "raw"}}]}
    ],
    "null refusal, annotations": [{"role": "assistant", "content": "hi", "refusal": None, "annotations": []}],
    "a refusal": [{"role": "assistant", "content": None, "refusal": "No."}],
    "reasoning": [{"role": "assistant", "content": "hi", "reasoning_content": "hmm"}],
    "sound said before": [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}],
    "a function's": [{"role": "function", "name": "f", "content": "1"}],
    "nothing": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    "nonsense": [{"role": "user", "content": 7}, {"role": "tool", "content": None}, {"role": "assistant", "tool_calls": [{"id": 7}]}],
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_comes_back_as_it_was(name: str) -> None:
    given = LOSSLESS[name]
    messages = from_chat(given)
    assert to_chat(messages) == given
    assert to_chat([Msg.from_dict(msg.to_dict()) for msg in messages]) == given, "also after it was stored"


@pytest.mark.parametrize("name", sorted(LOSSLESS.keys() - {"a function's", "nonsense"}))
def test_is_understood_not_just_kept(name: str) -> None:
    assert not any(isinstance(block, ForeignBlock) and block.whole for msg in from_chat(LOSSLESS[name]) for block in msg.content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3)
)
fields = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id", "refusal", "x"]), json_values, max_size=5
)


@given(st.lists(fields, max_size=3))
def test_whatever_it_is(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert to_chat(from_chat([message])) == [message]


def test_a_reply_is_cut_where_a_new_message_begins() -> None:
    reply = AssistantMsg(
        content=[
            TextBlock("Let me look."),
            ToolCallBlock("c1", "f", "{}"),
            ToolCallBlock("c2", "g", "{}"),
            HintBlock("Hurry."),
            ToolResultBlock("c1", "f", "1"),
            ToolResultBlock("c2", "g", [TextBlock("2"), DataBlock(Base64Source("AA", "image/png"))]),
            HintBlock("Finish now."),
            ThinkingBlock("not for another provider"),
            TextBlock("Done."),
        ]
    )
    out = to_chat([SystemMsg("s"), UserMsg("u"), reply])
    assert [message["role"] for message in out] == ["system", "user", "assistant", "tool", "tool", "user", "user", "user", "assistant"]
    assert out[2]["content"] == "Let me look."
    assert [message.get("tool_call_id") for message in out[3:5]] == ["c1", "c2"]
    assert out[5]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert [out[6]["content"], out[7]["content"]] == ["Hurry.", "Finish now."]
    assert out[8] == {"role": "assistant", "content": "Done."}


def test_what_belongs_to_another_dialect_stays_there() -> None:
    marked = TextBlock("u", extra={"anthropic": {"cache_control": {"type": "ephemeral"}}})
    assert to_chat([UserMsg(content=[marked, ForeignBlock("anthropic", {"type": "x"})])]) == [{"role": "user", "content": "u"}]
