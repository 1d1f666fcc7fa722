"""What each attempt used and cost, from what a provider said, and from bytes where it said nothing that can be believed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.call.usage import MOST_TOKENS, NOTHING
from spangate.exporters.traces.attempts import span
from spangate.exporters.usage import spool_lines
from spangate.exporters.usage.prices import Prices
from spangate.exporters.usage.rows import Rows
from spangate.exporters.usage.schema import ATTEMPTS, CALLS, DECISIONS
from spangate.exporters.usage.spool_lines import Closing, Opening

from accounts import ended
from finished import CLOCK, STARTED, attempt, call

PRICES = Prices()
TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


def line_of(seen: Seen) -> Closing:
    line = spool_lines.read(spool_lines.closing(seen)[:-1])
    assert isinstance(line, Closing)
    return line


def rows_of(seen: Seen, prices: Prices = PRICES, line: Closing | None = None) -> Rows:
    rows = Rows(prices)
    rows.add(line or line_of(seen))
    return rows


def named(columns: Any, row: tuple[Any, ...]) -> dict[str, Any]:
    assert len(columns) == len(row)
    return {name: value for (name, _, _), value in zip(columns, row, strict=True)}


def call_row(seen: Seen) -> dict[str, Any]:
    [row] = rows_of(seen).calls
    return named(CALLS, row)


def attempt_rows(seen: Seen) -> list[dict[str, Any]]:
    return [named(ATTEMPTS, row) for row in rows_of(seen).attempts]


def tokens(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in TOKENS)


def test_a_call_that_went_well() -> None:
    seen = ended(
        usage=Usage(1000, 100, cached=400, reasoning=30),
        stream=True,
        tags={"env": "prod"},
        first_content=CLOCK + 0.25,
        config_version="abc",
    )
    seen.attempts[0].target_model, seen.attempts[0].upstream_request_id = "gpt-5-mini", "req_up"
    row = call_row(seen)
    assert row["started_at"] == STARTED // 1000
    assert row["ended_at"] - row["started_at"] == 1_000_000
    assert tokens(row) == (1000, 400, 0, 100, 30)
    assert (row["weighted_tokens"], row["usage_source"]) == (1100 * 10**6, "provider")
    assert (Decimal(row["cost"]).scaleb(-9), row["cost_source"]) == (Decimal("0.00036"), "catalog")
    assert (row["duration_ms"], row["first_token_ms"], row["overhead_ms"]) == (1000.0, 250.0, 500.0)
    assert (row["attempts"], row["tags"], row["stream"], row["config_version"]) == (1, '{"env":"prod"}', True, "abc")
    [tried] = attempt_rows(seen)
    assert tokens(tried) == tokens(row)
    assert (tried["call_id"], tried["number"], tried["reason"], tried["outcome"]) == (seen.id, 1, "first", "success")
    assert (tried["upstream_request_id"], tried["span_id"], tried["cost"]) == ("req_up", f"{seen.attempts[0].span_id:016x}", row["cost"])


def test_a_call_that_nobody_was_asked_for() -> None:
    row = call_row(call(outcome="refused", status=401, error_code="invalid_api_key", model=""))
    assert tokens(row) == (None,) * 5
    assert (row["usage_source"], row["cost"], row["cost_source"], row["weighted_tokens"]) == ("none", None, "", None)
    assert (row["team"], row["attempts"], row["overhead_ms"]) == ("", 0, 1000.0)


def one(fields: dict[str, Any], **of_call: Any) -> dict[str, Any]:
    seen = call(request_bytes=401, **of_call)
    attempt(seen, **fields)
    return call_row(seen)


@pytest.mark.parametrize(
    ("fields", "used"),
    [
        ({"answer_bytes": 81}, (101, 21)),  # an answer without usage
        ({"outcome": "cancelled", "status": 200, "answer_bytes": 40}, (101, 10)),  # the client left in the middle
        ({"outcome": "cancelled", "status": 200, "answer_bytes": 10, "content_deltas": 10}, (101, 10)),  # of a letter at a time
        ({"outcome": "cancelled", "status": 200, "answer_bytes": 81, "content_deltas": 3}, (101, 21)),
        ({"outcome": "cancelled", "status": None}, (101, 0)),  # and before anything came
        ({"outcome": "error", "status": 200, "error_type": "upstream_incomplete", "answer_bytes": 8}, (101, 2)),
        ({"outcome": "error", "status": None, "error_type": "upstream_timeout"}, (101, 0)),
    ],
)
def test_where_a_provider_says_nothing_it_is_estimated(fields: dict[str, Any], used: tuple[int, int]) -> None:
    row = one(fields)
    assert (row["input_tokens"], row["output_tokens"]) == used
    assert (row["usage_source"], row["cost_source"]) == ("estimated", "unpriced")


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "error", "status": 429, "error_type": "429"},
        {"outcome": "error", "status": 500, "error_type": "500"},
        {"outcome": "error", "status": None, "error_type": "upstream_unreachable"},
        {"outcome": "error", "status": None, "error_type": "upstream_error"},
    ],
)
def test_what_was_refused_or_never_sent_used_nothing(fields: dict[str, Any]) -> None:
    row = one(fields, outcome="failed", status=502)
    assert (tokens(row), row["usage_source"], row["attempts"]) == ((None,) * 5, "none", 1)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"error_type": "429", "status": 429}, "429"),
        ({"error_type": "upstream_timeout"}, "timeout"),
        ({"error_type": "upstream_unreachable"}, "connection_error"),
        ({"error_type": "upstream_error"}, "invalid_response"),
        ({"error_type": "upstream_error", "first_content": 500.2}, "stream_interrupted"),
        ({"error_type": "a provider's own words"}, "_OTHER"),
        ({"error_type": "429", "outcome": "cancelled"}, ""),
    ],
)
def test_an_attempt_says_the_word_of_its_span(fields: dict[str, Any], word: str) -> None:
    seen = call()
    made = attempt(seen, **{"outcome": "error", "status": None} | fields)
    assert [row["error_type"] for row in attempt_rows(seen)] == [word]
    assert span(seen, made, None, {}).attributes.get("error.type", "") == word


def test_a_line_of_an_earlier_version_says_it_too() -> None:
    seen = call()
    attempt(seen, outcome="error", status=None, error_type="upstream_timeout")
    line = line_of(seen)
    old = msgspec.structs.replace(line.attempts[0], error_type="upstream_unreachable")
    [row] = rows_of(seen, line=msgspec.structs.replace(line, attempts=[old])).attempts
    told = named(ATTEMPTS, row)
    assert (told["error_type"], told["input_tokens"]) == ("connection_error", None)


@pytest.mark.fault("USE-12")
@pytest.mark.parametrize(
    ("usage", "used", "source"),
    [
        (Usage(0, 0), (0, 0, 0), "provider"),  # nought is a figure
        (Usage(13, 0, unknown="output"), (13, 0, 21), "estimated"),
        (Usage(0, 20, unknown="input"), (101, 0, 20), "estimated"),
        (Usage(10, 5, cached=999), (10, 10, 5), "provider"),
        (Usage(-5, -7, cached=-3), (0, 0, 0), "provider"),
        (Usage(2**40, 2**50), (MOST_TOKENS, 0, MOST_TOKENS), "provider"),
        (Usage(13, 20, source="estimated"), (13, 0, 20), "estimated"),
    ],
)
def test_no_figure_is_believed_beyond_reason(usage: Usage, used: tuple[int, int, int], source: str) -> None:
    row = one({"usage": usage, "answer_bytes": 81})
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == used
    assert row["usage_source"] == source


@pytest.mark.parametrize(
    ("billed", "used"),
    [(Usage(7, 9, source="estimated"), (7, 9, "estimated")), (Usage(7, 9), (7, 9, "provider")), (NOTHING, (None, None, "none"))],
)
def test_what_counts_for_an_attempt_is_not_worked_out_again(billed: Usage, used: tuple[int | None, int | None, str]) -> None:
    row = one({"usage": None, "answer_bytes": 400, "outcome": "cancelled", "billed": billed})
    assert (row["input_tokens"], row["output_tokens"], row["usage_source"]) == used


def test_an_embedding_has_no_tokens_in_its_answer() -> None:
    for usage in (None, Usage(8, 0, unknown="output")):
        row = one({"usage": usage, "answer_bytes": 30_000}, op="embeddings")
        assert (row["input_tokens"], row["output_tokens"]) == (8 if usage else 101, 0)
        assert row["usage_source"] == ("provider" if usage else "estimated")


def test_a_call_is_the_sum_of_its_attempts() -> None:
    seen = call(request_bytes=400)
    attempt(seen, outcome="error", status=200, error_type="upstream_incomplete", answer_bytes=40, target_model="gpt-5-mini")
    attempt(seen, outcome="error", status=503, error_type="503", reason="retry")
    attempt(seen, usage=Usage(13, 20), target_model="gpt-5-mini", reason="fallback")
    row = call_row(seen)
    assert (row["input_tokens"], row["output_tokens"], row["attempts"]) == (113, 30, 3)
    assert (row["usage_source"], row["cost_source"]) == ("estimated", "estimated")
    tried = attempt_rows(seen)
    assert [(each["input_tokens"], each["output_tokens"]) for each in tried] == [(100, 10), (None, None), (13, 20)]
    assert row["cost"] == tried[0]["cost"] + tried[2]["cost"] > 0
    assert tried[1]["cost"] is None


def test_a_sum_with_a_part_that_has_no_price_has_none() -> None:
    seen = call()
    attempt(seen, usage=Usage(5, 5), target_model="gpt-5-mini")
    attempt(seen, usage=Usage(5, 5), target_model="mystery")
    row = call_row(seen)
    assert (row["cost"], row["cost_source"], row["input_tokens"]) == (None, "unpriced", 10)


def test_an_answer_that_no_provider_gave() -> None:
    row = call_row(call(usage=Usage(5, 6)))
    assert (row["input_tokens"], row["output_tokens"], row["usage_source"], row["attempts"]) == (5, 6, "provider", 0)


def test_what_a_layer_counted_when_it_ended_the_answer_itself() -> None:
    seen = call(outcome="cut", usage=Usage(5, 6, source="estimated"))
    attempt(seen, outcome="cancelled", answer_bytes=4000)
    row = call_row(seen)
    assert (row["input_tokens"], row["output_tokens"], row["usage_source"]) == (5, 6, "estimated")


@pytest.mark.fault("USE-14")
def test_a_price_is_that_of_the_model_that_was_asked() -> None:
    """`chat-smart` is asked for, `gpt-5` is behind it, and calls itself something else: the row tells both names, the price is gpt-5's."""
    seen = ended(model="chat-smart", usage=Usage(1_000_000, 0), answered_model="gpt-5-nano-2026-01")
    seen.attempts[0].target_model = seen.target_model = "gpt-5"
    seen.attempts[0].answered_model = "gpt-5-nano-2026-01"
    row = call_row(seen)
    assert (row["model"], row["target_model"], row["cost"]) == ("chat-smart", "gpt-5", 1_250_000_000)


def test_time_that_attempts_share_is_counted_once() -> None:
    seen = call()
    for start, end in ((0.1, 0.5), (0.3, 0.6), (0.8, 0.9)):
        attempt(seen, started_ns=STARTED + int(start * 1e9), started=CLOCK + start, ended=CLOCK + end)
    assert call_row(seen)["overhead_ms"] == pytest.approx(400.0, abs=0.01)


def test_decisions() -> None:
    seen = call(config_version="abc")
    seen.notes.add("budget.reserved", rule="search-day", verdict="allow", used=5, limit=10)
    seen.notes.add("access.refused", model="x")
    seen.notes.add("redact.found", mode="shadow", verdict="modify", entities={"email": 2})
    rows = [named(DECISIONS, row) for row in rows_of(seen).decisions]
    assert [(row["policy"], row["kind"], row["rule"], row["verdict"], row["mode"], row["figures"]) for row in rows] == [
        ("budget", "reserved", "search-day", "allow", "enforce", '{"used":5,"limit":10}'),
        ("access", "refused", "", "deny", "enforce", '{"model":"x"}'),
        ("redact", "found", "", "modify", "shadow", '{"entities":{"email":2}}'),
    ]
    assert {(row["call_id"], row["config_version"]) for row in rows} == {("req_1", "abc")}


@pytest.mark.parametrize(
    ("holds", "used"), [({"input": 10, "output": 500}, (10, 500)), (None, (101, 0)), ({"scope": "team:x", "input": "odd"}, (101, 0))]
)
def test_what_was_interrupted_used_what_it_held(holds: dict[str, Any] | None, used: tuple[int, int]) -> None:
    seen = call(team="search", request_bytes=401, target_model="gpt-5-mini", provider="up")
    attempt(seen, outcome=None, system="openai")
    line = spool_lines.read(spool_lines.opening(seen, holds)[:-1])
    assert isinstance(line, Opening)
    rows = Rows(PRICES)
    rows.add_interrupted(line)
    row = named(CALLS, rows.calls[0])
    assert (row["outcome"], row["status"], row["ended_at"], row["duration_ms"], row["attempts"]) == ("interrupted", None, None, None, None)
    assert (row["input_tokens"], row["output_tokens"]) == used
    assert (row["team"], row["usage_source"], row["cost_source"]) == ("search", "estimated", "estimated")
    assert row["cost"] > 0
