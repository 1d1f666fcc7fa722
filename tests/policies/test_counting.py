"""policies/counting.py: the rules around the texts of a request. A token here is a word."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.body import Body
from spangate.policies.counting import (
    A_MESSAGE,
    A_NAME,
    A_PROPERTY,
    A_TOOL,
    A_TOOL_CALL,
    A_VALUE,
    ENUM,
    LONGEST,
    MOST_PARTS,
    PROPERTIES,
    THE_ANSWER,
    THE_TOOLS,
    countable,
    counted,
)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "one two three"}, 1 + 3),
        ({"role": "user", "content": "one two", "name": "ann"}, 1 + 2 + A_NAME + 1),
        ({"role": "user", "content": [{"type": "text", "text": "one two"}, {"type": "image_url", "image_url": {"url": "x"}}]}, 1 + 2),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, 1 + 1),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "a b c"}}]}, 1 + A_TOOL_CALL + 1 + 3),
        ({"role": "tool", "content": "done", "tool_call_id": "call_1"}, 1 + 1),
        ({"role": "user", "content": ["one two", 3]}, 1 + 2),
        ({"role": 1, "content": 2, "name": 3, "tool_calls": "x"}, 0),
    ],
)
def test_messages(message: dict[str, Any], tokens: int) -> None:
    assert counted(Body.of({"messages": [message]}), words) == THE_ANSWER + A_MESSAGE + tokens


@pytest.mark.fault("TOOL-05")
@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": []}, {"content": ""}])
def test_a_message_may_say_nothing(content: dict[str, Any]) -> None:
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        **content,
    }
    assert counted(Body.of({"messages": [message]}), words) == THE_ANSWER + A_MESSAGE + 1 + A_TOOL_CALL + 2


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "one two"}, 2),
        ({"prompt": ["one two", "three"], "suffix": "four"}, 4),
        ({"input": ["one", "two three"]}, 3),
        ({"input": [1, 2, 3]}, 0),
        ({"messages": "no list"}, 0),
        ({}, 0),
    ],
)
def test_other_operations(body: dict[str, Any], tokens: int) -> None:
    assert counted(Body.of(body), words) == tokens


def test_tools() -> None:
    city = {"type": "string", "description": "where it is."}
    unit = {"type": "string", "enum": ["c", "f"]}
    parameters = {
        "type": "object",
        "properties": {"city": city, "unit": unit, "days": {"type": "array", "items": {"properties": {"n": {}}}}},
    }
    function = {"name": "get_weather", "description": "the weather.", "parameters": parameters}
    expected = THE_TOOLS + A_TOOL + words("get_weather:the weather") + PROPERTIES
    expected += A_PROPERTY + words("city:string:where it is")
    expected += A_PROPERTY + words("unit:string:") + ENUM + 2 * (A_VALUE + 1)
    expected += A_PROPERTY + words("days:array:") + PROPERTIES + A_PROPERTY + words("n::")
    assert counted(Body.of({"tools": [{"type": "function", "function": function}]}), words) == expected
    assert counted(Body.of({"functions": [function]}), words) == expected


def test_what_is_too_long_or_too_fine_is_not_counted() -> None:
    assert countable(Body.of({"messages": [{"role": "user", "content": "x" * 1000}], "metadata": "x" * LONGEST}))
    assert not countable(Body.of({"messages": [{"role": "user", "content": "x" * LONGEST}]}))
    assert not countable(Body.of({"messages": [{}] * MOST_PARTS}))
