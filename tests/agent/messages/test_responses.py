"""agent/messages/responses.py: what comes in goes out as it came, and a reply becomes items."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import AssistantMsg, HintBlock, Msg, TextBlock, ToolCallBlock, ToolResultBlock, UserMsg
from spangate.agent.messages.responses import from_responses, to_responses

LOSSLESS: dict[str, list[dict[str, Any]]] = {
    "the short form": [{"role": "user", "content": "u"}, {"role": "developer", "content": "d"}],
    "the long form": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "u"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
        },
        {"type": "message", "role": "assistant", "id": "msg_2", "content": [{"type": "refusal", "refusal": "No."}]},
    ],
    "calls": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xx"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "id": "o", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    ],
    "what only it knows": [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "item_reference", "id": "x"}],
    "files": [
        {
            "role": "user",
            "content": [
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"},
                {"type": "input_file", "file_id": "f"},
            ],
        }
    ],
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_comes_back_as_it_was(name: str) -> None:
    messages = from_responses(LOSSLESS[name])
    assert to_responses(messages) == LOSSLESS[name]
    assert to_responses([Msg.from_dict(msg.to_dict()) for msg in messages]) == LOSSLESS[name]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3)
)
fields = st.dictionaries(
    st.sampled_from(["type", "role", "content", "call_id", "output", "arguments", "name", "x"]), json_values, max_size=5
)


@given(fields)
def test_whatever_it_is(item: dict[str, Any]) -> None:
    assert to_responses(from_responses([item])) == [item]


def test_a_reply_becomes_items() -> None:
    reply = AssistantMsg(
        content=[TextBlock("so"), ToolCallBlock("c", "f", "{}"), ToolResultBlock("c", "f", "1"), HintBlock("Finish."), TextBlock("done")]
    )
    items = to_responses([UserMsg("u"), reply])
    assert [item["type"] for item in items] == ["message", "message", "function_call", "function_call_output", "message", "message"]
    assert items[1] == {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]}
    assert (items[4]["role"], items[4]["content"]) == ("user", "Finish.")


def test_a_text_alone_is_a_users() -> None:
    assert [(msg.role, msg.text) for msg in from_responses("u")] == [("user", "u")]
