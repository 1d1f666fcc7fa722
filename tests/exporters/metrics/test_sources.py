"""exporters/metrics/sources.py: figures that are kept elsewhere become metrics when somebody looks."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.exporters import semconv
from spangate.exporters.metrics.metrics import Metric, Metrics
from spangate.exporters.metrics.sources import BudgetFigures, Sources, observe
from spangate.exporters.semconv import Instrument

from measured import labels, value


def observed(**sources: Any) -> list[Metric]:
    metrics = Metrics()
    observe(metrics, Sources(**sources))
    return metrics.collect()


def test_what_is_not_known_is_not_told() -> None:
    assert observed() == []


@pytest.mark.parametrize(
    ("source", "said", "spec", "expected"),
    [
        ("streams", {"chat": 3}, semconv.STREAMS_ACTIVE, [({"spangate.api": "chat_completions"}, 3)]),
        ("streams", {"embeddings": 0}, semconv.STREAMS_ACTIVE, [({"spangate.api": "embeddings"}, 0)]),
        ("resends", 4, semconv.UPSTREAM_RESENDS, [({}, 4)]),
        ("rows", {"written": 9, "dropped": 1}, semconv.USAGE_RECORDS, [({"outcome": "written"}, 9), ({"outcome": "dropped"}, 1)]),
        ("dropped", {("traces", "queue_full"): 5}, semconv.TELEMETRY_DROPPED, [({"signal": "traces", "reason": "queue_full"}, 5)]),
        ("reload_failed", True, semconv.CONFIG_RELOAD_FAILED, [({}, 1)]),
        ("reload_failed", False, semconv.CONFIG_RELOAD_FAILED, [({}, 0)]),
        ("loaded", 1.7e9, semconv.CONFIG_LOADED, [({}, 1.7e9)]),
        ("state_unavailable", True, semconv.STATE_UNAVAILABLE, [({}, 1)]),
        ("state_lost", 3, semconv.STATE_LOST, [({}, 3)]),
        ("refused", 2, semconv.CONNECTIONS_REFUSED, [({}, 2)]),
        (
            "estimates",
            {("input", "beyond"): 7},
            semconv.ESTIMATED_TOKENS,
            [({"gen_ai.token.type": "input", "spangate.estimate.kind": "beyond"}, 7)],
        ),
    ],
)
def test_each_has_its_metric(source: str, said: Any, spec: Instrument, expected: list[tuple[dict[str, Any], float]]) -> None:
    found = observed(**{source: lambda: said})
    assert [metric.spec for metric in found] == [spec]
    assert labels(found, spec) == [labels for labels, _ in expected]
    assert [value(found, spec, labels) for labels, _ in expected] == [number for _, number in expected]


def test_they_are_asked_each_time() -> None:
    metrics, resends = Metrics(), iter([1, 2])
    observe(metrics, Sources(resends=lambda: next(resends)))
    assert [value(metrics.collect(), semconv.UPSTREAM_RESENDS) for _ in range(2)] == [1, 2]


def test_a_budget_has_four_figures_and_nobodys_name_but_the_configurations() -> None:
    rows = [
        BudgetFigures("b", "team", "search", "month", "usd", 200.0, 50.0, 10.0),
        BudgetFigures("o", "organisation", "acme", "total", "requests", 0.0, 0.0, 0.0),
    ]
    found = {metric.spec.name: [(dict(point.labels), point.value) for point in metric.points] for metric in observed(budgets=lambda: rows)}
    team = {"spangate.budget.name": "b", "spangate.budget.scope": "team", "spangate.budget.window": "month", "spangate.budget.unit": "usd"}
    organisation = {**team, "spangate.budget.name": "o", "spangate.budget.scope": "organisation", "spangate.budget.window": "total"}
    organisation["spangate.budget.unit"] = "requests"
    team["spangate.team"] = "search"
    assert found == {
        "spangate.budget.limit": [(team, 200.0), (organisation, 0.0)],
        "spangate.budget.used": [(team, 50.0), (organisation, 0.0)],
        "spangate.budget.reserved": [(team, 10.0), (organisation, 0.0)],
        "spangate.budget.utilization": [(team, 0.3), (organisation, 1.0)],
    }
