"""agent/messages/anthropic.py: what comes in goes out as it came, and a reply becomes turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import (
    AssistantMsg,
    HintBlock,
    Msg,
    SystemMsg,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    UserMsg,
)
from spangate.agent.messages.anthropic import from_anthropic, to_anthropic, tools_of
from spangate.agent.messages.blocks import ForeignBlock
from spangate.agent.messages.chat import from_chat, to_chat

USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, None]}}

LOSSLESS: dict[str, list[dict[str, Any]]] = {
    "texts": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}],
    "two of one user": [{"role": "user", "content": "u"}, {"role": "user", "content": [{"type": "text", "text": "v"}]}],
    "a marked part": [{"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral"}}]}],
    "thinking": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "a", "citations": [{"x": 1}]},
            ],
        }
    ],
    "uses and results": [
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, USE, {**USE, "id": "t2"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2"}], "is_error": True},
                {"type": "text", "text": "and now?"},
            ],
        },
        {"role": "assistant", "content": "done"},
    ],
    "a result of nothing": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}],
    "a result that says it is none": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "", "is_error": False}]}
    ],
    "images and documents": [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}, "title": "T"},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
                {"type": "search_result", "source": "x"},
            ],
        }
    ],
    "server tools": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]}],
    "nothing": [{"role": "user", "content": ""}, {"role": "assistant", "content": []}],
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_comes_back_as_it_was(name: str) -> None:
    given = LOSSLESS[name]
    messages = from_anthropic(given)
    assert to_anthropic(messages) == (None, given)
    assert to_anthropic([Msg.from_dict(msg.to_dict()) for msg in messages]) == (None, given), "also after it was stored"


@pytest.mark.parametrize(
    "system", ["Be nice.", [{"type": "text", "text": "Be nice.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "x"}]]
)
def test_the_system_prompt_comes_back(system: Any) -> None:
    assert to_anthropic(from_anthropic([{"role": "user", "content": "u"}], system))[0] == system


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3)
)
parts = st.dictionaries(st.sampled_from(["type", "text", "id", "source", "tool_use_id", "content", "input"]), json_values, max_size=5)


@given(st.sampled_from(["user", "assistant"]), st.text(min_size=1) | st.lists(parts, max_size=3))
def test_whatever_its_content_is(role: str, content: Any) -> None:
    message = {"role": role, "content": content}
    assert to_anthropic(from_anthropic([message])) == (None, [message])


def test_a_reply_becomes_turns() -> None:
    reply = AssistantMsg(
        content=[
            TextBlock("so"),
            ToolCallBlock("c1", "f", '{"a": 1}'),
            ToolCallBlock("c2", "f", "broken"),
            ToolResultBlock("c1", "f", "1", ToolResultState.SUCCESS),
            ToolResultBlock("c2", "f", "no", ToolResultState.DENIED),
            HintBlock("Finish."),
            TextBlock("done"),
        ]
    )
    system, out = to_anthropic([SystemMsg("s"), UserMsg("u"), reply])
    assert system == "s"
    assert [message["role"] for message in out] == ["user", "assistant", "user", "assistant"]
    assert out[1]["content"][2]["input"] == {"unreadable_arguments": "broken"}
    assert [part["type"] for part in out[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert out[2]["content"][1]["is_error"] is True


def test_another_providers_thinking_stays_there() -> None:
    assert to_anthropic([UserMsg("u"), AssistantMsg(content=[ThinkingBlock("hm"), TextBlock("a")])])[1][1]["content"] == "a"
    assert to_anthropic([UserMsg("u"), AssistantMsg(content=[ThinkingBlock("hm")])])[1] == [{"role": "user", "content": "u"}]


def test_from_one_dialect_to_the_other() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    system, said = to_anthropic(from_chat(chat))
    assert (system, [message["role"] for message in said]) == ("s", ["user", "assistant", "user"])
    assert to_chat(from_anthropic(said, system)) == chat
    assert not any(isinstance(block, ForeignBlock) for msg in from_anthropic(said) for block in msg.content)


def test_tools() -> None:
    function = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    assert tools_of([function, hosted]) == [{"name": "f", "description": "d", "input_schema": {"type": "object"}}, hosted]
