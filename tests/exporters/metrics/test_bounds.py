"""exporters/metrics/bounds.py: notes of budgets and limits as metrics, and nothing on them that a caller may choose."""

from __future__ import annotations

from typing import Any

from spangate.call.notes import Note
from spangate.exporters import semconv
from spangate.exporters.metrics.bounds import BoundSeries
from spangate.exporters.metrics.metrics import Metrics


def told(*notes: tuple[str, dict[str, Any]]) -> dict[str, list[Any]]:
    metrics = Metrics()
    series = BoundSeries(metrics)
    for name, figures in notes:
        series.tell(Note(name, figures), None)
    return {metric.spec.name: list(metric.points) for metric in metrics.collect() if metric.points}


def test_refusals_are_counted_by_name_and_scope() -> None:
    figures = {"name": "b", "scope": "key:search/ci"}
    found = told(("budget.refused", figures), ("budget.refused", figures), ("rate_limit.refused", {"name": "r", "scope": "team:search"}))
    [point] = found["spangate.budget.refusals"]
    assert (dict(point.labels), point.value) == ({semconv.BUDGET_NAME: "b", semconv.BUDGET_SCOPE: "key"}, 2)
    [point] = found["spangate.rate_limit.refusals"]
    assert (dict(point.labels), point.value) == ({semconv.RATE_LIMIT_NAME: "r", semconv.RATE_LIMIT_SCOPE: "team"}, 1)


def test_overshoot_and_waits() -> None:
    found = told(
        ("budget.settled", {"name": "b", "scope": "team:x", "overshoot": 12.5}),
        ("budget.settled", {"name": "b", "scope": "team:y", "overshoot": 2}),
        ("budget.settled", {"name": "b", "scope": "team:x"}),
        ("rate_limit.waited", {"seconds": 0.25}),
    )
    [point] = found["spangate.budget.overshoot"]
    assert point.value == 14.5
    assert [spread.count for spread in found["spangate.rate_limit.wait.duration"]] == [1]


def test_shadow_and_other_notes_count_nothing() -> None:
    shadow = {"name": "b", "scope": "team:x", "mode": "shadow", "overshoot": 3}
    assert told(("budget.refused", shadow), ("budget.settled", shadow), ("access.refused", {}), ("budget.capped", {})) == {}
    [point] = told(("budget.refused", {"name": "b", "scope": "zebra:1"}))["spangate.budget.refusals"]
    assert dict(point.labels)[semconv.BUDGET_SCOPE] == semconv.OTHER
