"""exporters/traces/outcomes.py: the words for ends, the same on spans and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.exporters import semconv
from spangate.exporters.traces import outcomes

from finished import attempt, call


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("429", "429"),
        ("rate_limit_exceeded", "rate_limit_exceeded"),
        ("upstream_timeout", "timeout"),
        ("upstream_unreachable", "connection_error"),
        ("upstream_incomplete", "stream_interrupted"),
        ("upstream_error", "invalid_response"),
        ("a provider's own words, with a prompt in them", "_OTHER"),
        ("٤٢٩", "_OTHER"),
        ("", "_OTHER"),
    ],
)
def test_the_error_of_an_attempt(said: str, word: str) -> None:
    made = attempt(call(), outcome="error", error_type=said)
    assert outcomes.attempt_error(made) == word
    assert word in semconv.ERROR_TYPES or word == "429"


def test_an_error_inside_a_stream_interrupts_it() -> None:
    assert outcomes.attempt_error(attempt(call(), outcome="error", error_type="upstream_error", first_content=1.0)) == "stream_interrupted"


@pytest.mark.parametrize("outcome", ["success", "cancelled", None])
def test_only_a_failure_has_one(outcome: Any) -> None:
    assert outcomes.attempt_error(attempt(call(), outcome=outcome, error_type="429")) == ""


@pytest.mark.parametrize(
    ("error_type", "reason"),
    [
        ("429", "rate_limited"),
        ("upstream_timeout", "timeout"),
        ("504", "timeout"),
        ("upstream_unreachable", "connection_error"),
        ("context_length_exceeded", "context_length"),
        ("500", "server_error"),
    ],
)
def test_why_there_was_a_fallback(error_type: str, reason: str) -> None:
    assert outcomes.fallback(attempt(call(), outcome="error", error_type=error_type)) == reason


def test_what_a_finished_call_was_refused_for() -> None:
    assert outcomes.refusal(call(outcome="refused", error_code="request_too_large")) == "invalid_request"
    assert outcomes.refusal(call(outcome="failed", error_code="budget_exceeded")) == ""


def test_an_attempt_that_ended_before_its_stream_began_was_broken_by_nobody() -> None:
    seen = call(outcome="failed", status=502, stream=True)
    assert outcomes.attempt_broken_by(attempt(seen, stream=True, outcome="error"), seen) == ""
    assert outcomes.call_broken_by(seen) == ""


def test_a_stream_that_we_ended() -> None:
    seen = call(outcome="failed", status=200, error_code="draining", stream=True)
    stopped = attempt(seen, stream=True, outcome="cancelled", first_content=1.0)
    assert (outcomes.call_broken_by(seen), outcomes.attempt_broken_by(stopped, seen)) == ("gateway", "gateway")
