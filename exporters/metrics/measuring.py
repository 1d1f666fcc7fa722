"""Calls on their way into metrics: measured soon after they end, some at a time, on the loop unless somebody looks just then. Nothing of
it fails a call: what can't be measured is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...call.seen import Seen
from ..alone import alone
from ..gathered import Gathered
from ..pace import Pace
from ..semconv import GenaiNames
from .measures import Cost, Measures
from .metrics import Metric, Metrics
from .model_names import ModelNames
from .sources import Sources, observe

QUEUE: Final = 8192  # calls

SIGNAL: Final = "metrics"


class Measuring:
    """The Recorder that counts. `collect` and `flush` may be called in any thread but the loop's; they take milliseconds.

    `sources` are the figures that are kept elsewhere; to what was lost there it adds its own.
    """

    def __init__(self, metrics: Metrics, measures: Measures, sources: Sources | None = None, *, queue: int = QUEUE) -> None:
        self.unmeasured = 0
        self.pushed_out = 0
        self._metrics = metrics
        self._measures = measures
        self._most = queue
        self._gathered = Gathered(self._measure)
        self._pace = Pace()
        self._elsewhere = (sources or Sources()).dropped
        observe(metrics, replace(sources or Sources(), dropped=self.dropped))

    @property
    def models(self) -> ModelNames:
        """What models are called; another one may be set at any time, such as after a reload."""
        return self._measures.models

    @models.setter
    def models(self, models: ModelNames) -> None:
        self._measures.models = models

    def watch(self, sources: Sources) -> None:
        """Tell of these figures as well, each of which nobody told of before."""
        observe(self._metrics, sources)

    def record(self, seen: Seen) -> None:
        if len(self._gathered) >= self._most and self._gathered.push_out() is not None:
            self.pushed_out += 1
        self._gathered.add(seen)

    def flush(self) -> None:
        with self._gathered.told(self._pace.rest):
            self._metrics.unsettled.settle(self._pace.rest)

    def collect(self) -> list[Metric]:
        """All of it, as it stands now."""
        with self._gathered.told(self._pace.rest):
            return self._metrics.collect(self._pace.rest)

    def _measure(self, seen: Seen) -> None:
        if alone(self._measures.measure, seen) is not None:
            self.unmeasured += 1
        if self._metrics.unsettled.many:
            self._metrics.unsettled.settle_one()

    def dropped(self) -> dict[tuple[str, str], int]:
        """Items of telemetry that were lost, here and elsewhere, by signal and reason."""
        own = {"queue_full": self.pushed_out, "invalid": self.unmeasured, "overflow": self._metrics.overflowed}
        found = {(SIGNAL, reason): number for reason, number in own.items() if number}
        return {**(self._elsewhere() if self._elsewhere is not None else {}), **found}


def measuring(
    models: ModelNames,
    exemplars: Callable[[Seen], bool],
    *,
    names: GenaiNames = "both",
    sources: Sources | None = None,
    cost: Cost | None = None,
    now: Callable[[], int] = time.time_ns,
) -> Measuring:
    """The recorder that counts, with instruments of its own. `exemplars`: whether a call may be one."""
    metrics = Metrics(now=now)
    measures = Measures(metrics, models, names=names, exemplars=exemplars, cost=cost)
    return Measuring(metrics, measures, sources)
