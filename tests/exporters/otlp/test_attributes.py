"""exporters/attributes.py: values as AnyValue. That they are the SDK's is shown in test_otlp.py."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from spangate.exporters.otlp.attributes import Pairs, text

from otlp_sink import attributes


def decoded(pairs: Pairs, said: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return attributes(Resource.FromString(pairs.encode(said, b"\x0a", count)[0]))


def test_true_and_one_are_two_values() -> None:
    pairs = Pairs()
    for value in (1, True, 1.0, "1", 0, False, 0.0, ["1"], [1], [True]):
        said = decoded(pairs, {"k": value})["k"]
        assert (said, type(said)) == (value, type(value))
    assert [type(each) for each in decoded(pairs, {"k": [True, 1, 1.0]})["k"]] == [bool, int, float]


class Word(str):
    __slots__ = ()


class Number(int):
    pass


def test_subclasses_are_what_they_are_made_of() -> None:
    assert decoded(Pairs(), {"w": Word("a"), "n": Number(2**62), "t": (Word("b"),)}) == {"w": "a", "n": 2**62, "t": ["b"]}


def test_the_newest_stay() -> None:
    pairs = Pairs()
    field, dropped = pairs.encode({"a": 1, "b": 2, "c": 3}, b"\x0a", 2)
    assert attributes(Resource.FromString(field)) == {"b": 2, "c": 3}
    assert dropped == 1
    assert pairs.encode({"a": 1}, b"\x0a", 0) == (b"", 1)


def test_an_empty_key_is_left_out_however_often_it_comes() -> None:
    pairs = Pairs()
    for value in ("x", 1, True, 2.0, ["y"], "x"):
        assert pairs.encode({"": value}, b"\x0a") == (b"", 1)


@given(st.text(st.characters()), st.none() | st.integers(0, 10))
def test_text_is_always_utf8(value: str, limit: int | None) -> None:
    said = text(value, limit).decode()
    assert "\0" not in said
    assert limit is None or len(said) <= limit
    if value.isprintable() and limit is None:
        assert said == value


def test_what_is_remembered_is_bounded() -> None:
    pairs = Pairs(kept=10)
    for number in range(100):
        assert decoded(pairs, {"k": f"v{number}", "n": number}) == {"k": f"v{number}", "n": number}
    assert all(len(memo) <= 10 for memo in vars(pairs).values() if isinstance(memo, dict))
