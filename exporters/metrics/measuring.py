"""Calls on their way into metrics: a bounded queue on the loop, and a thread that measures what is in it.

The loop pays for an append. The thread wakes when there is something worth waking for, and works in slices; whoever reads the metrics
measures first what still waits, so that what they show is never old. Nothing of it fails a call: what can't be measured is counted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ...call.seen import Seen
from ..alone import alone
from ..otlp.config import Exemplars, OtlpConfig
from ..otlp.pace import Pace
from .families import GenaiNames
from .measures import Cost, Measures
from .metrics import Metric, Metrics
from .model_names import ModelNames
from .sources import Sources, observe

WAKE: Final = 512  # calls that are not left until somebody looks
QUEUE: Final = 8192  # calls
SLICE: Final = 0.0009  # seconds; nearly all that wait when it wakes fit in, and each breath costs as much as three calls

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
        self._queue: deque[Seen] = deque()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._pace = Pace(SLICE)
        self._thread: threading.Thread | None = None
        self._ended = False
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
        queue = self._queue
        queue.append(seen)
        waiting = len(queue)
        if waiting >= WAKE and not self._wake.is_set():
            self._hurry()
        if waiting > self._most:
            self._push_out()

    def flush(self) -> None:
        with self._lock:
            self._empty_queue()
            self._metrics.unsettled.settle(self._pace.rest)

    def collect(self) -> list[Metric]:
        """All of it, as it stands now."""
        with self._lock:
            self._empty_queue()
            return self._metrics.collect(self._pace.rest)

    def close(self) -> None:
        """End the thread. What still comes waits for somebody who looks."""
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _hurry(self) -> None:
        self._wake.set()
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="spangate.metrics", daemon=True)
            self._thread.start()

    def _push_out(self) -> None:
        try:
            self._queue.popleft()
        except IndexError:  # the thread has just emptied it
            return
        self.pushed_out += 1

    def _run(self) -> None:
        while not self._ended:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                self._empty_queue()
                if self._metrics.unsettled.many:
                    self._metrics.unsettled.settle(self._pace.rest)

    def _empty_queue(self) -> None:
        """Of those that are in it now: what comes meanwhile wakes the thread again."""
        queue = self._queue
        for _ in range(len(queue)):
            try:
                seen = queue.popleft()
            except IndexError:  # it was full, and its oldest has just been dropped
                return
            if alone(self._measures.measure, seen) is not None:
                self.unmeasured += 1
            self._pace.rest(hurry=len(queue) * 4 > self._most)

    def dropped(self) -> dict[tuple[str, str], int]:
        """Items of telemetry that were lost, here and elsewhere, by signal and reason."""
        own = {"queue_full": self.pushed_out, "invalid": self.unmeasured, "overflow": self._metrics.overflowed}
        found = {(SIGNAL, reason): number for reason, number in own.items() if number}
        return {**(self._elsewhere() if self._elsewhere is not None else {}), **found}


def measuring(
    models: ModelNames,
    config: OtlpConfig,
    *,
    names: GenaiNames = "both",
    sources: Sources | None = None,
    cost: Cost | None = None,
    now: Callable[[], int] = time.time_ns,
) -> Measuring:
    """The recorder that counts, with instruments of its own. Its exemplars are of calls whose spans are sent, unless `config` says
    otherwise."""
    which: Mapping[Exemplars, Callable[[Seen], bool]] = {"always_on": lambda _: True, "always_off": lambda _: False}
    metrics = Metrics(now=now)
    measures = Measures(metrics, models, names=names, exemplars=which.get(config.exemplars, config.sampling.keeps), cost=cost)
    return Measuring(metrics, measures, sources)
