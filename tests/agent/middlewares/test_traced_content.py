"""agent/middlewares/traced_content.py: messages as telemetry writes them, and when."""

from __future__ import annotations

import json

import pytest

from spangate.agent import (
    AssistantMsg,
    Base64Source,
    DataBlock,
    HintBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    URLSource,
    UserMsg,
)
from spangate.agent.middlewares.traced_content import VARIABLE, answer_of, capture_of, cut, messages_of, tools_of


@pytest.mark.parametrize(
    ("said", "captured"),
    [("", False), ("NO_CONTENT", False), ("span_only", True), ("SPAN_AND_EVENT", True), ("EVENT_ONLY", False), ("true", False)],
)
def test_the_variable_says_whether(monkeypatch: pytest.MonkeyPatch, said: str, captured: bool) -> None:
    monkeypatch.setenv(VARIABLE, said)
    assert capture_of(None) is captured
    assert capture_of("none") is False
    assert capture_of("full") is True


def test_an_option_is_one_of_its_words() -> None:
    with pytest.raises(ValueError, match="capture_content must be 'none' or 'full'"):
        capture_of("some")  # type: ignore[arg-type]


def test_each_block_is_a_part() -> None:
    said = [
        UserMsg(name="u", content=[TextBlock("hi"), DataBlock(URLSource("https://x/y.png", "image/png"))]),
        AssistantMsg(
            name="a",
            content=[
                ThinkingBlock("hm"),
                ToolCallBlock("c1", "look", '{"of": "it"}'),
                ToolCallBlock("c2", "look", "no json"),
                ToolResultBlock("c1", "look", "seen"),
                HintBlock("hurry"),
                DataBlock(Base64Source("AAAA", "audio/wav")),
            ],
        ),
    ]
    assert json.loads(messages_of(said, 100)) == [
        {
            "role": "user",
            "name": "u",
            "parts": [
                {"type": "text", "content": "hi"},
                {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": "https://x/y.png"},
            ],
        },
        {
            "role": "assistant",
            "name": "a",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"of": "it"}},
                {"type": "tool_call", "id": "c2", "name": "look", "arguments": "no json"},
                {"type": "tool_call_response", "id": "c1", "response": "seen"},
                {"type": "text", "content": "hurry"},
                {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": ""},
            ],
        },
    ]


def test_long_texts_are_cut_inside_their_parts() -> None:
    told = json.loads(answer_of([TextBlock("x" * 50), ToolCallBlock("c", "look", '{"of": "' + "y" * 50 + '"}')], 10))
    assert told[0]["parts"][0]["content"] == "x" * 10 + "…"
    assert len(told[0]["parts"][1]["arguments"]) == 11
    assert cut("short", 10) == "short"


def test_of_tools_the_names() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}, {"type": "web_search", "name": "search"}]
    assert json.loads(tools_of(tools)) == [{"type": "function", "name": "look"}, {"type": "web_search", "name": "search"}]
