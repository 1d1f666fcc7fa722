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
from spangate.agent.middlewares.traced_content import VARIABLE, Content, cut

FULL, METADATA = Content("full", 100), Content("metadata")


@pytest.mark.parametrize(
    ("said", "captured"),
    [("", False), ("NO_CONTENT", False), ("span_only", True), ("SPAN_AND_EVENT", True), ("EVENT_ONLY", False), ("true", False)],
)
def test_the_variable_says_whether(monkeypatch: pytest.MonkeyPatch, said: str, captured: bool) -> None:
    monkeypatch.setenv(VARIABLE, said)
    assert bool(Content()) is captured
    assert not Content("none")
    assert Content("full")


def test_an_option_is_one_of_its_words() -> None:
    with pytest.raises(ValueError, match="capture_content must be one of none, metadata, full, redacted, not 'some'"):
        Content("some")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="go together"):
        Content("redacted")
    with pytest.raises(ValueError, match="go together"):
        Content("full", redact=str.upper)


def masked(text: str) -> str:
    return text.replace("secret", "***")


def test_of_metadata_no_word_is_said() -> None:
    told = METADATA.messages([
        UserMsg(name="u", content=[TextBlock("CANARY"), DataBlock(URLSource("https://CANARY/y.png", "image/png"))]),
        AssistantMsg(name="a", content=[
            ThinkingBlock("CANARY!"), ToolCallBlock("c1", "look", '{"of": "CANARY"}'), ToolResultBlock("c1", "look", "CANARY found"),
            HintBlock("CANARY"),
        ]),
    ])  # fmt: skip
    assert "CANARY" not in told
    assert [part for message in json.loads(told) for part in message["parts"]] == [
        {"type": "text", "content": "", "length": 6},
        {"type": "uri", "modality": "image", "mime_type": "image/png", "uri": "", "length": 20},
        {"type": "reasoning", "content": "", "length": 7},
        {"type": "tool_call", "id": "c1", "name": "look", "length": 16},
        {"type": "tool_call_response", "id": "c1", "response": "", "length": 12},
        {"type": "text", "content": "", "length": 6},
    ]
    assert METADATA.arguments('{"of": "CANARY"}') == METADATA.result("CANARY") == ""


def test_each_text_is_redacted_before_it_is_cut_and_json_stays_json() -> None:
    content = Content("redacted", 40, masked)
    assert content.is_slow
    assert content.result("a secret in " + "x" * 50) == "a *** in " + "x" * 31 + "…", "half of one would not be found"
    assert content.arguments('{"of": ["secret", 7, {"secret": "my secret"}]}') == '{"of": ["***", 7, {"***": "my ***"}]}'
    assert content.arguments("no json secret") == "no json ***"
    assert content.arguments('{"of": "\\u0073ecret"}') == '{"of": "***"}'
    escaped = '{"of": "\\u0073ecret'
    assert content.arguments(escaped) == "", "of what is no JSON and is escaped nobody knows what it says"
    [told] = json.loads(content.answer([ToolCallBlock("c", "look", escaped)]))
    assert told["parts"][0]["arguments"] == ""
    [told] = json.loads(content.answer([TextBlock("a secret"), ToolCallBlock("c", "look", '{"of": "secret"}')]))
    assert told["parts"][0]["content"] == "a ***"
    assert told["parts"][1]["arguments"] == {"of": "***"}


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
    assert json.loads(FULL.messages(said)) == [
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
    told = json.loads(Content("full", 10).answer([TextBlock("x" * 50), ToolCallBlock("c", "look", '{"of": "' + "y" * 50 + '"}')]))
    assert told[0]["parts"][0]["content"] == "x" * 10 + "…"
    assert len(told[0]["parts"][1]["arguments"]) == 11
    assert cut("short", 10) == "short"


def test_of_tools_the_names() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}, {"type": "web_search", "name": "search"}]
    assert json.loads(FULL.tools(tools)) == [{"type": "function", "name": "look"}, {"type": "web_search", "name": "search"}]
