"""The two lines of a call: written from anything, read with distrust."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.events import Usage
from spangate.exporters.usage.spool_lines import LONGEST, Closing, Opening, Spent, closing, lines, opened_id, opening, read

from finished import attempt, call, whole_call

TEXT = st.text(st.characters(), max_size=30)  # lone surrogates too
FIGURE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def closed(line: bytes) -> Closing:
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    found = read(line[:-1])
    assert isinstance(found, Closing)
    return found


def opened(line: bytes) -> Opening:
    found = read(line[:-1])
    assert isinstance(found, Opening)
    return found


def test_a_call_as_it_ended() -> None:
    seen = whole_call()
    seen.notes.add("budget.reserved", used=5, limit=10)
    seen.request_bytes = 1234
    found = closed(closing(seen))
    assert (found.id, found.team, found.key, found.tags) == (seen.id, "search", "ci", {"env": "prod"})
    assert (found.trace_id, found.started, found.duration) == (seen.trace_hex, seen.started_ns, 1.0)
    assert (found.status, found.outcome, found.request_bytes) == (200, "completed", 1234)
    assert found.spent == Spent(1310, 88, 1200, 7, 5)
    assert [(each.number, each.provider, each.outcome, each.status) for each in found.attempts] == [
        (each.number, each.provider, each.outcome, each.status) for each in seen.attempts
    ]
    assert [(each.name, each.figures) for each in found.notes] == [("budget.reserved", {"used": 5, "limit": 10})]


def test_a_call_as_it_begins() -> None:
    seen = call(team="search", model="fast", op="chat", stream=True, request_bytes=99)
    attempt(seen, system="openai", address="api.openai.com", outcome=None)
    seen.provider, seen.target_model = "up", "m-big"
    line = opening(seen, {"input": 10, "output": 500, "scope": "team:search"})
    found = opened(line)
    assert (found.id, found.team, found.model, found.provider, found.target_model) == ("req_1", "search", "fast", "up", "m-big")
    assert (found.system, found.address, found.request_bytes, found.stream) == ("openai", "api.openai.com", 99, True)
    assert found.holds == {"input": 10, "output": 500, "scope": "team:search"}
    assert opened_id(line[:-1]) == "req_1"
    assert opened(opening(call())).holds is None


def test_the_id_of_anything_else_is_none() -> None:
    line = opening(call())[:-1]
    for other in (
        closing(call())[:-1],
        b"",
        b"x",
        line[:20],
        b"0" + line[1:],
        b"z" + line[1:],
        line[:-1],
        line.replace(b"req_1", b"req_2"),
    ):
        assert opened_id(other) == ""


def test_it_is_short() -> None:
    seen = call(id=f"req_{'a' * 32}", team="search", key="ci", organisation="default", usage=Usage(13, 20))
    attempt(seen, usage=Usage(13, 20), upstream_request_id="req_0123456789abcdef")
    assert len(closing(seen)) < 500
    assert len(opening(seen)) < 300


@given(user=TEXT, model=TEXT, tags=st.dictionaries(TEXT, TEXT, max_size=3), figures=st.dictionaries(TEXT, FIGURE, max_size=4))
def test_anything_can_be_written(user: str, model: str, tags: dict[str, str], figures: dict[str, Any]) -> None:
    seen = call(user=user, model=model, tags=tags)
    seen.notes.add("odd.figures", **{f"f{number}": figure for number, figure in enumerate(figures.values())})
    found = closed(closing(seen))
    assert found.user.encode() == user.encode("utf-8", "replace")
    assert len(found.notes[0].figures) == len(figures)
    assert opened(opening(seen)).model.encode() == model.encode("utf-8", "replace")


@pytest.mark.parametrize(
    "figure",
    [
        2**200, -(2**70), object(), {"deep": [[[[[[[[1]]]]]]]]}, {1: 2, (3,): 4}, "x" * 2_000_000, ["y" * 1000] * 1000,
        {str(n): n for n in range(9999)}, b"bytes", 1j, float("nan"),
    ],
    ids=lambda figure: repr(figure)[:20],
)  # fmt: skip
def test_what_json_has_not_or_is_too_long(figure: Any) -> None:
    seen = call(user="é" * 10)
    seen.notes.add("budget.reserved", figure=figure, used=5)
    line = closing(seen)
    assert len(line) <= LONGEST + 20
    assert closed(line).user == "é" * 10
    assert closed(line).notes[0].figures["used"] == 5


def test_endless_nesting_is_no_end() -> None:
    figure: list[Any] = []
    figure.append(figure)
    seen = call()
    seen.notes.add("a.b", figure=figure)
    assert closed(closing(seen)).notes[0].name == "a.b"


@given(st.binary(max_size=80))
def test_what_is_no_line_is_none(data: bytes) -> None:
    assert read(data) is None


@given(st.data())
def test_no_broken_line_is_taken_for_a_whole_one(data: st.DataObject) -> None:
    seen = call(user="someone", team="search")
    attempt(seen, usage=Usage(13, 20))
    line = bytearray(closing(seen)[:-1])
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= data.draw(st.integers(1, 255))
    # A checksum has two ways to be written in hexadecimal.
    assert read(bytes(line)) is None or bytes(line).lower() == closing(seen)[:-1].lower()
    assert read(closing(seen)[: data.draw(st.integers(0, len(line) - 1))]) is None


def test_lines_and_where_they_end() -> None:
    assert list(lines(b"ab\ncd\n\ne")) == [(3, b"ab"), (6, b"cd"), (7, b"")]
    assert list(lines(b"ab\ncd\n", 3)) == [(6, b"cd")]
    assert list(lines(b"")) == list(lines(b"torn")) == []


def test_a_line_of_an_earlier_version_is_read() -> None:
    seen = call()
    attempt(seen, answer_bytes=10, content_deltas=10)
    data = closing(seen)[9:-1]
    shorter = data.replace(b",10,10]]", b",10]]")
    assert len(shorter) < len(data)
    [tried] = closed(b"%08x %b\n" % (crc32(shorter), shorter)).attempts
    assert (tried.answer_bytes, tried.content_deltas) == (10, 0)
    assert closed(closing(seen)).attempts[0].content_deltas == 10


def test_a_later_version_may_say_more_at_the_end() -> None:
    data = closing(call())[9:-1]
    longer = data[:-1] + b',"new",{"x":1}]'
    assert isinstance(read(b"%08x %b" % (crc32(longer), longer)), Closing)
    foreign = b'["z",1]'
    assert read(b"%08x %b" % (crc32(foreign), foreign)) is None
    assert msgspec.json.decode(data)[0] == "c"
