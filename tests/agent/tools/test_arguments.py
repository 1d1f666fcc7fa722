"""agent/tools/arguments.py: what can be meant is meant, what can't is told."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent.tools.arguments import BadArguments, mistakes, read

READABLE: list[tuple[str, dict[str, Any], bool]] = [
    ("", {}, False),
    ('{"a": 1}', {"a": 1}, False),
    ("null", {}, True),
    ('"{\\"a\\": 1}"', {"a": 1}, True),
    ('```json\n{"a": 1}\n```', {"a": 1}, True),
    ('{"a": 1, "b": [2,],}', {"a": 1, "b": [2]}, True),
    ('{"a": "x\ny"}', {"a": "x\ny"}, True),
    ("{'a': True, 'b': None}", {"a": True, "b": None}, True),
]


@pytest.mark.parametrize(("text", "value", "repaired"), READABLE)
def test_reads(text: str, value: dict[str, Any], repaired: bool) -> None:
    assert read(text) == (value, repaired)


@pytest.mark.parametrize(
    "text", ['{"a": "half a comm', '{"a": 1', "rm -rf", "{a: 1}", "[1]", "7", '{"a": 1} trailing', "__import__('os')", "[" * 9999]
)
def test_does_not_guess(text: str) -> None:
    with pytest.raises(BadArguments):
        read(text)


HOSTILE = {
    "a fence and no end": "```json" + " " * 300_000,
    "a fence around nothing": "```" + " " * 300_000 + "```",
    "signs": "-" * 300_000 + "1",
    "sums": "1" + "+1" * 100_000,
    "parentheses": "(" * 300_000,
    "commas": "{" + ", " * 100_000,
    "names": "a" + ".b" * 100_000,
    "depth": '{"a":' * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nobody_is_kept_busy_by_what_a_model_writes(text: str) -> None:
    began = time.process_time()
    with suppress(BadArguments):
        assert read(text) == ({}, True)
    assert time.process_time() - began < 1


@given(st.text(max_size=50))
def test_never_fails_otherwise(text: str) -> None:
    try:
        value, _ = read(text)
    except BadArguments:
        return
    assert isinstance(value, dict)


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "s": {"type": "string", "minLength": 2, "pattern": "^a"},
        "e": {"enum": ["x", 1, None]},
        "l": {"type": "array", "items": {"type": ["number", "null"]}, "maxItems": 2},
        "o": {"$ref": "#/$defs/o"},
        "u": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "c": {"const": 7},
    },
    "required": ["n"],
    "additionalProperties": False,
    "$defs": {"o": {"type": "object", "required": ["x"], "properties": {"x": {"allOf": [{"type": "number"}, {"exclusiveMinimum": 0}]}}}},
}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 12) | st.floats(-1, 3) | st.sampled_from(["", "a", "ab", "ba", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "z"]), values))  # type: ignore[misc]
def test_finds_what_the_standards_validator_finds(value: dict[str, Any]) -> None:
    assert bool(mistakes(value, SCHEMA)) == (not jsonschema.Draft202012Validator(SCHEMA).is_valid(value))


def test_tells_where() -> None:
    assert mistakes({"o": {}, "l": ["x"], "z": 1}, SCHEMA) == [
        "n: is missing",
        "o.x: is missing",
        "l[0]: must be number or null, not string",
        "z: unknown; known are n, s, e, l, o, u, m, c",
    ]
