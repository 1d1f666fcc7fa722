"""What became of a call: ids, clocks, attempts, and one end."""

from __future__ import annotations

import re

import pytest

from spangate.call.clock import Clock
from spangate.call.events import Usage
from spangate.call.seen import Seen


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.wall_ns = 1_000
        self.mono_s = 50.0
        self.clock = Clock(wall=lambda: self.wall_ns, mono=lambda: self.mono_s)

    def pass_by(self, seconds: float) -> None:
        self.mono_s += seconds
        self.wall_ns += int(seconds * 1e9)


def test_a_request_begins_with_ids_of_its_own() -> None:
    hands = Hands()
    first, second = Seen.open(hands.clock), Seen.open(hands.clock)
    assert re.fullmatch(r"req_[0-9a-f]{32}", first.id)
    assert re.fullmatch(r"[0-9a-f]{32}", first.trace_hex)
    assert 0 < first.span_id < 2**64
    assert 0 < first.trace_id < 2**128
    assert len({first.id, second.id}) == len({first.trace_id, second.trace_id}) == len({first.span_id, second.span_id}) == 2
    assert (first.started_ns, first.started) == (1_000, 50.0)
    assert (first.outcome, first.parent_span_id, first.sampled) == (None, 0, True)


def test_a_request_joins_its_callers_trace() -> None:
    seen = Seen.open(trace_id=0xABC, parent_span_id=7, sampled=False)
    assert (seen.trace_id, seen.parent_span_id, seen.sampled) == (0xABC, 7, False)
    assert seen.trace_hex == "abc".zfill(32)


def test_attempts_are_counted_and_timed() -> None:
    hands = Hands()
    seen = Seen.open(hands.clock)
    hands.pass_by(1)
    first = seen.attempt("openai", "gpt")
    hands.pass_by(2)
    second = seen.attempt("azure", "gpt-eu", "fallback")
    assert seen.attempts == [first, second]
    assert [(each.number, each.provider, each.target_model, each.reason) for each in seen.attempts] == [
        (1, "openai", "gpt", "first"),
        (2, "azure", "gpt-eu", "fallback"),
    ]
    assert [each.started for each in seen.attempts] == [51.0, 53.0]
    assert second.started_ns == 3_000_001_000
    assert first.span_id != second.span_id
    assert first.outcome is None


def test_an_end_is_told_once() -> None:
    hands = Hands()
    seen = Seen.open(hands.clock)
    hands.pass_by(2.5)
    seen.end("failed", 502, "upstream_error")
    assert (seen.outcome, seen.status, seen.error_code, seen.duration) == ("failed", 502, "upstream_error", 2.5)
    hands.pass_by(1)
    with pytest.raises(RuntimeError, match=rf"{seen.id} ended twice: failed, then completed"):
        seen.end("completed", 200)
    assert (seen.outcome, seen.status, seen.duration) == ("failed", 502, 2.5)


def test_records_share_nothing() -> None:
    first, second = Seen.open(), Seen.open()
    first.tags["a"] = "b"
    first.notes.add("note")
    first.attempt("p", "m").usage = Usage(input=1)
    assert (second.tags, len(second.notes), second.attempts) == ({}, 0, [])
