"""A body keeps the bytes that nobody changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.body import Body

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ODD = b'{ "model" : "m", "n":1.50, "messages" : [ {"content":"\\u0041\xc3\xa9"} ] ,"x":1E2}'


def came(raw: bytes) -> Body:
    """A body as it came in."""
    return Body(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), raw)


def sent(body: Body) -> bytes:
    return b"".join(body.pieces())


def test_an_untouched_body_goes_out_as_the_very_bytes() -> None:
    assert came(ODD).pieces()[0] is ODD
    assert sent(came(ODD)) == ODD


def test_a_changed_field_leaves_the_others_byte_for_byte() -> None:
    changed = came(ODD).changed(model="other")
    assert changed.raw is None
    assert sent(changed) == b'{"model":"other","n":1.50,"messages":[ {"content":"\\u0041\xc3\xa9"} ],"x":1E2}'


def test_a_field_is_added_at_the_end_and_none_takes_one_away() -> None:
    assert sent(came(ODD).changed(messages=None, x=None, stop=["a"], absent=None)) == b'{"model":"m","n":1.50,"stop":["a"]}'


def test_no_change_is_the_same_body() -> None:
    body = came(ODD)
    assert body.changed() is body


def test_a_change_is_a_new_body() -> None:
    body = came(ODD)
    body.changed(model="other")
    assert body.get("model") == "m"
    assert body.pieces() == [ODD]


def test_an_empty_body_is_an_object() -> None:
    assert sent(Body({})) == b"{}"
    assert sent(Body.of({"a": 1}).changed(a=None)) == b"{}"


@given(st.dictionaries(NAMES, JSON, max_size=5), st.dictionaries(st.sampled_from(["model", "a", "stream_options"]), JSON, max_size=3))
def test_changed_keeps_other_fields_byte_identical(value: dict[str, Any], changes: dict[str, Any]) -> None:
    raw = json.dumps(value, indent=1).encode()
    body = came(raw)
    changed = body.changed(**changes)
    for name, part in body.fields.items():
        if name not in changes:
            assert bytes(changed.fields[name]) == bytes(part)
    expected = {name: part for name, part in {**value, **changes}.items() if name not in changes or part is not None}
    assert json.loads(sent(changed)) == changed.parsed() == expected
    assert list(changed.fields) == list(expected), "the order of fields stays"
    assert body.raw is raw


@given(st.dictionaries(NAMES, JSON, max_size=5))
def test_plain_values_make_a_body(value: dict[str, Any]) -> None:
    body = Body.of(value)
    assert json.loads(sent(body)) == body.parsed() == value
    assert {name: body.get(name, "absent") for name in value} == value
    assert all(name in body for name in value)


def test_a_field_that_is_absent_is_not_one_that_is_null() -> None:
    body = came(b'{"a":null}')
    assert body.get("a", "default") is None
    assert body.get("b", "default") == "default"
    assert body.get("b") is None
    assert "a" in body
    assert "b" not in body


# What msgspec will not read, JSON all the same


def test_a_lone_surrogate_is_read_and_goes_out_as_it_came() -> None:
    body = Body({"model": b'"m"', "user": b'"\\ud83d"'})
    assert body.get("user") == "\ud83d"
    assert body.parsed() == {"model": "m", "user": "\ud83d"}
    assert sent(body.changed(model="other")) == b'{"model":"other","user":"\\ud83d"}'


def test_a_lone_surrogate_can_be_written() -> None:
    assert sent(Body.of({"user": "\ud83d"})) == b'{"user":"\\ud83d"}'
    assert sent(Body.of({}).changed(messages=[{"content": "\ud83d"}])) == b'{"messages":[{"content": "\\ud83d"}]}'
    assert sent(Body({"\ud83d": b"1"})) == b'{"\\ud83d":1}'


@pytest.mark.parametrize("digits", [b"1" * 5000, b"1e999", b"[" + b"9" * 5000 + b"]"])
def test_a_number_beyond_any_is_read_as_infinite(digits: bytes) -> None:
    said = Body({"n": digits}).get("n")
    assert (said[0] if isinstance(said, list) else said) == float("inf")


def test_an_integer_of_thirty_digits_stays_exact() -> None:
    assert Body({"seed": b"1" * 30}).get("seed") == int("1" * 30)


# What is sent, piece by piece


def test_a_long_field_is_not_copied() -> None:
    prompt = json.dumps("x" * 200_000).encode()
    pieces = came(b'{"model":"m","prompt":%b,"n":1}' % prompt).changed(model="other").pieces()
    assert [bytes(piece) for piece in pieces] == [b'{"model":"other","prompt":', prompt, b',"n":1}']
    assert isinstance(pieces[1], memoryview)


def test_short_fields_are_one_piece() -> None:
    assert len(Body.of(dict.fromkeys("abcdefgh", "x" * 100)).pieces()) == 1


@given(st.lists(st.sampled_from([1, 65535, 65536, 70000]), max_size=6))
def test_pieces_joined_are_the_document(sizes: list[int]) -> None:
    body = Body({f"f{number}": b'"%b"' % (b"x" * size) for number, size in enumerate(sizes)})
    assert json.loads(sent(body)) == {f"f{number}": "x" * size for number, size in enumerate(sizes)}
    lengths = [len(piece) for piece in body.pieces()]
    assert len(lengths) <= 2 * len([size for size in sizes if size >= 65534]) + 1, "neighbours that are short are joined"
