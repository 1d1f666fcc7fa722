"""Reading metrics in tests: the points of an instrument, by what stands on them.

[point] = points(metrics, semconv.REQUESTS)
assert value(metrics, semconv.REQUESTS, {semconv.OUTCOME: "refused"}) == 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spangate.exporters.metrics.metrics import Metric, Spread
from spangate.exporters.semconv import Instrument


def points(metrics: Sequence[Metric], spec: Instrument) -> list[Any]:
    """None where the instrument has nothing to say."""
    return [point for metric in metrics if metric.spec == spec for point in metric.points]


def labels(metrics: Sequence[Metric], spec: Instrument) -> list[dict[str, Any]]:
    return [dict(point.labels) for point in points(metrics, spec)]


def value(metrics: Sequence[Metric], spec: Instrument, at: Mapping[str, Any] | None = None) -> Any:
    """Of the one point that bears at least these labels: its number; of a histogram the sum of its values."""
    [found] = [point for point in points(metrics, spec) if (at or {}).items() <= dict(point.labels).items()]
    return found.sum if isinstance(found, Spread) else found.value


def names(metrics: Sequence[Metric]) -> set[str]:
    return {metric.spec.name for metric in metrics}


def series(metrics: Sequence[Metric]) -> int:
    return sum(len(metric.points) for metric in metrics)
