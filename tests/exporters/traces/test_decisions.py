"""exporters/traces/decisions.py: what policies noted, as events, and which of it is logged."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from spangate.exporters.record import INFO, WARN
from spangate.exporters.traces.decisions import events_of, logs_of, summary_of

from finished import STARTED, call


def noted(name: str, **figures: Any) -> Any:
    seen = call(team="search")
    seen.notes.add(name, **figures)
    return seen


def test_figures_stand_under_their_policy() -> None:
    seen = noted("budget.reserved", used=Decimal("1.5"), limit=5, window="month", models=("a", "b"), left=None, resets={"at": 1}, ok=True)
    [event] = events_of(seen, STARTED)
    assert event.attributes == {
        "spangate.policy.name": "budget",
        "spangate.policy.note": "budget.reserved",
        "spangate.budget.used": 1.5,
        "spangate.budget.limit": 5,
        "spangate.budget.window": "month",
        "spangate.budget.models": ["a", "b"],
        "spangate.budget.resets": '{"at": 1}',
        "spangate.budget.ok": True,
    }
    assert logs_of(seen, STARTED, {}, sampled=True) == []
    assert summary_of(seen) == {}


def test_what_every_policy_may_say_stands_under_policy() -> None:
    seen = noted("redact.acted", verdict="modify", mode="enforce", stage="request", rule="email", count=2)
    [event] = events_of(seen, STARTED)
    assert event.attributes == {
        "spangate.policy.name": "redact",
        "spangate.policy.note": "redact.acted",
        "spangate.policy.verdict": "modify",
        "spangate.policy.action": "modify",
        "spangate.policy.mode": "enforce",
        "spangate.policy.stage": "request",
        "spangate.policy.rule": "email",
        "spangate.redact.count": 2,
    }


def test_the_worst_is_the_summary() -> None:
    seen = noted("redact.acted", verdict="modify", rule="email")
    seen.notes.add("guard.asked", verdict="allow")
    seen.notes.add("budget.refused", used=6)
    seen.notes.add("stream.malformed", events=2)
    assert summary_of(seen) == {
        "spangate.policy.verdict": "deny",
        "spangate.policy.action": "block",
        "spangate.policy.matched": ["redact/email", "budget"],
    }


def test_a_shadow_denies_and_lets_pass() -> None:
    seen = noted("budget.refused", mode="shadow")
    assert summary_of(seen)["spangate.policy.action"] == "allow"
    [log] = logs_of(seen, STARTED, {}, sampled=True)
    assert log.severity == INFO


@pytest.mark.parametrize(
    ("name", "event", "severity"),
    [
        ("access.refused", "spangate.policy.decision", WARN),
        ("guard.blocked", "spangate.policy.decision", WARN),
        ("budget.refused", "spangate.budget.refusal", WARN),
        ("budget.threshold", "spangate.budget.threshold", INFO),
        ("rate_limit.refused", "spangate.rate_limit.refusal", WARN),
    ],
)
def test_decisions_are_logged(name: str, event: str, severity: int) -> None:
    seen = noted(name, limit=5)
    [log] = logs_of(seen, STARTED, {"spangate.team": "search"}, sampled=False)
    assert (log.event, log.severity, log.at, log.trace_id, log.span_id, log.sampled) == (
        event, severity, STARTED, seen.trace_id, seen.span_id, False,
    )  # fmt: skip
    assert log.attributes["spangate.team"] == "search"
    assert log.attributes["spangate.request.id"] == "req_1"
    assert log.attributes[f"spangate.{name.partition('.')[0]}.limit"] == 5
