"""Notes of budgets and rate limits as metrics. A budget is known by its name, what it is per and its window: whose it is (a key, a user)
stands on no metric."""

from __future__ import annotations

from typing import Any

from ...call.notes import Told
from .. import semconv
from .batches import Mark
from .metrics import Labels, Metrics

KINDS = frozenset({"organisation", "team", "user", "key", "model", "provider", "tag", "thread", "reply"})


class BoundSeries:
    """`tell` each note once; of any other it says nothing."""

    def __init__(self, metrics: Metrics) -> None:
        self._refused = {
            "budget": metrics.counter(semconv.BUDGET_REFUSALS),
            "rate_limit": metrics.counter(semconv.RATE_LIMIT_REFUSALS),
        }
        self._overshoot = metrics.counter(semconv.BUDGET_OVERSHOOT)
        self._waited = metrics.histogram(semconv.RATE_LIMIT_WAIT)

    def tell(self, note: Told, mark: Mark | None) -> None:
        figures = note.figures
        if note.name == "budget.settled" and "overshoot" not in figures:  # as nearly every note is
            return
        kind, _, what = note.name.partition(".")
        if figures.get("mode") == "shadow":
            return
        if what == "refused" and kind in self._refused:
            names = (semconv.BUDGET_NAME, semconv.BUDGET_SCOPE) if kind == "budget" else (semconv.RATE_LIMIT_NAME, semconv.RATE_LIMIT_SCOPE)
            self._refused[kind].series(_labels(figures, *names)).add(1, mark)
        elif what == "settled" and kind == "budget":
            overshoot = figures.get("overshoot")
            if isinstance(overshoot, int | float) and overshoot > 0:
                self._overshoot.series(_labels(figures, semconv.BUDGET_NAME, semconv.BUDGET_SCOPE)).add(overshoot, mark)
        elif what == "waited" and kind == "rate_limit":
            seconds = figures.get("seconds")
            if isinstance(seconds, int | float) and seconds >= 0:
                self._waited.series(()).record(seconds, mark)


def _labels(figures: dict[str, Any], name: str, scope: str) -> Labels:
    """The rule's name, which is the configuration's, and what it is per."""
    per = str(figures.get("scope", "")).partition(":")[0]
    return (name, str(figures.get("name", ""))), (scope, per if per in KINDS else semconv.OTHER)
