"""Metrics → OTLP, and their way to a collector: everything that stands in them, once in `interval` seconds and at drain.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from ...call.seen import Seen
from ..alone import alone
from ..metrics.measuring import Measuring
from ..metrics.metrics import Exemplar, Labels, Metric, Point, Spread
from ..pace import Pace
from ..record import Resource
from ..semconv import Instrument
from ..utf8 import text
from . import encoding, protobuf
from .attributes import NAME, Pairs
from .config import OtlpConfig, Temporality
from .outlet import PATIENCE, Counts, Outlet, end, sender_of
from .printed import Printed
from .protobuf import counted, double, packed_double, packed_uint64, uint64

LATE: Final = 10**9  # nanoseconds after its call's end for which an exemplar is still new

_DELTA, _CUMULATIVE = b"\x10\x01", b"\x10\x02"
_INT64: Final = 2**63


def encoded(metric: Metric, pairs: Pairs, rest: Callable[[], None] = lambda: None) -> bytes:
    """A Metric of the protocol, with its length before it. `rest` is called after each point."""
    spec = metric.spec
    times = b"\x11" + uint64(metric.start) + b"\x19" + uint64(metric.at)
    points = []
    for point in metric.points:
        if isinstance(point, Spread):
            points.append(_histogram_point(point, spec, times, pairs))
        else:
            points.append(_number_point(point, b"\x19" + uint64(metric.at) if spec.kind == "gauge" else times, pairs))
        rest()
    data = protobuf.repeated(b"\x0a", points)
    temporality = _DELTA if metric.delta else _CUMULATIVE
    if spec.kind == "histogram":
        data = b"\x4a" + counted(data + temporality)
    elif spec.kind == "gauge":
        data = b"\x2a" + counted(data)
    else:
        data = b"\x3a" + counted(data + temporality + (b"\x18\x01" if spec.kind == "counter" else b""))
    return counted(_head(spec) + data)


@lru_cache(256)
def _head(spec: Instrument) -> bytes:
    said = {b"\x0a": spec.name, b"\x12": spec.about, b"\x1a": spec.unit}
    return b"".join(field + counted(text(each, NAME)) for field, each in said.items())


@lru_cache(64)
def _bounds(buckets: tuple[float, ...]) -> bytes:
    return packed_double(buckets)


def _number_point(point: Point, times: bytes, pairs: Pairs) -> bytes:
    exemplars = [_exemplar(point.exemplar)] if point.exemplar is not None else []
    return counted(_attributes(point.labels, b"\x3a", pairs) + times + _value(point.value, b"\x21") + protobuf.repeated(b"\x2a", exemplars))


def _histogram_point(spread: Spread, spec: Instrument, times: bytes, pairs: Pairs) -> bytes:
    parts = [
        _attributes(spread.labels, b"\x4a", pairs),
        times,
        b"\x21" + uint64(spread.count) + b"\x29" + double(spread.sum),
        b"\x32" + packed_uint64(spread.counts) + b"\x3a" + _bounds(spec.buckets),
        protobuf.repeated(b"\x42", [_exemplar(each) for each in spread.exemplars]),
        b"\x59" + double(spread.low) if spread.low is not None else b"",
        b"\x61" + double(spread.high) if spread.high is not None else b"",
    ]
    return counted(b"".join(parts))


def _attributes(labels: Labels, field: bytes, pairs: Pairs) -> bytes:
    return pairs.encode(dict(labels), field)[0]


def _value(value: float, as_double: bytes) -> bytes:
    """A whole number as one; both kinds of values have their number at the same place of either message."""
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return b"\x31" + uint64(value & protobuf.MAX_UINT64)
    return as_double + double(value)


def _exemplar(exemplar: Exemplar) -> bytes:
    ids = b"\x22\x08" + exemplar.span_id.to_bytes(8, "big") + b"\x2a\x10" + exemplar.trace_id.to_bytes(16, "big")
    return counted(b"\x11" + uint64(exemplar.at) + _value(exemplar.value, b"\x19") + ids)


class Since:
    """What has to be told after what was told before: exemplars once, and counts as the temporality wants them."""

    def __init__(self, temporality: Temporality) -> None:
        self._temporality = temporality
        self._before: dict[str, dict[Labels, Point | Spread]] = {}
        self._at = 0

    def tell(self, metrics: Sequence[Metric]) -> list[Metric]:
        told = [self._since(metric) for metric in metrics]
        self._at = max((metric.at for metric in metrics), default=self._at)
        return [metric for metric in told if metric.points]

    def _since(self, metric: Metric) -> Metric:
        points = [_with_new(point, self._at - LATE) for point in metric.points] if self._at else metric.points
        if not self._is_delta(metric):
            return replace(metric, points=points)
        before = self._before.get(metric.spec.name, {})
        self._before[metric.spec.name] = {point.labels: point for point in metric.points}
        changes = [change for point in points if (change := _change(point, before.get(point.labels))) is not None]
        return replace(metric, points=changes, start=self._at or metric.start, delta=True)

    def _is_delta(self, metric: Metric) -> bool:
        if self._temporality == "cumulative" or metric.spec.kind not in ("counter", "histogram"):
            return False
        return not (metric.asked and self._temporality == "lowmemory")


def _with_new(point: Point | Spread, at: int) -> Point | Spread:
    """The same with the exemplars from then on."""
    if isinstance(point, Spread):
        return replace(point, exemplars=tuple(each for each in point.exemplars if each.at >= at)) if point.exemplars else point
    return replace(point, exemplar=None) if point.exemplar is not None and point.exemplar.at < at else point


def _change(point: Point | Spread, before: Point | Spread | None) -> Point | Spread | None:
    """What came since; None: nothing did. What is less than before began anew. The least and the most of the time in between nobody
    knows."""
    if before is None:
        return replace(point, low=None, high=None) if isinstance(point, Spread) else point
    if isinstance(point, Spread) and isinstance(before, Spread):
        counts = tuple(now - then for now, then in zip(point.counts, before.counts, strict=True))
        return replace(point, counts=counts, sum=point.sum - before.sum, low=None, high=None) if any(counts) else None
    assert isinstance(point, Point)
    assert isinstance(before, Point)
    if point.value == before.value:
        return None
    return replace(point, value=point.value - before.value) if point.value > before.value else point


class Pushing:
    """The Recorder that counts, and sends what it counted. `start` it, or the first call does."""

    def __init__(self, measuring: Measuring, config: OtlpConfig, resource: Resource, counts: Counts | None = None) -> None:
        self.measuring = measuring
        self.counts = counts or Counts()
        self._interval = config.interval
        encoder = encoding.Encoder(encoding.Limits(attributes=None))
        self._pairs = encoder.pairs
        self._outlet: Outlet | None = None
        if config.metrics.target is not None:
            start = encoder.resource(resource), encoder.scope(encoding.GATEWAY)
            self._outlet = Outlet("metrics", sender_of(config.metrics.target, "metrics"), start, config.batch, self.counts)
        self._printed = Printed() if config.metrics.console else None
        self._since = Since(config.temporality)
        self._pace = Pace()
        self._wake = threading.Event()
        self._asked: deque[threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="spangate.metrics.export", daemon=True)
            self._thread.start()

    def record(self, seen: Seen) -> None:
        if self._thread is None:
            self.start()
        self.measuring.record(seen)

    def flush(self) -> None:
        self.wait()

    def wait(self, timeout: float = PATIENCE) -> bool:
        """Send all that stands in the metrics now, and wait for that, `timeout` seconds at most; whether it is done. Not on a loop."""
        self.start()
        if self._ended.is_set():
            return False
        done = threading.Event()
        self._asked.append(done)
        self._wake.set()
        return done.wait(timeout)

    def close(self, timeout: float = PATIENCE) -> bool:
        """Send for the last time, then end the thread and what is under way, within `timeout` seconds altogether. What is left is lost,
        and counted."""
        sent = end(self.wait, self._break_off, lambda: self._thread, timeout)
        if self._outlet is not None:
            self._outlet.give_up()
        self.counts.tell()
        return sent

    def _break_off(self) -> None:
        self._ended.set()
        if self._outlet is not None:
            self._outlet.sender.close()
        self._wake.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            asked = len(self._asked)
            if not self._ended.is_set():
                self._push()
            for _ in range(asked):
                self._asked.popleft().set()

    def _push(self) -> None:
        """One round; what goes wrong costs that one, or one metric."""
        told = alone(lambda: self._since.tell(self.measuring.collect()))
        if isinstance(told, Exception):
            self.counts.lose("metrics", 1, "invalid", type(told).__name__)
            return
        for metric in told:
            message = alone(encoded, metric, self._pairs, self._pace.rest)
            if isinstance(message, Exception):
                self.counts.lose("metrics", 1, "invalid", type(message).__name__)
            elif self._outlet is not None:
                self._outlet.add([message])
        if self._printed is not None:
            self._printed.print(told)
        if self._outlet is not None:
            self._outlet.send()


def pushing(
    config: OtlpConfig,
    measuring: Measuring,
    counts: Counts | None = None,
    resource: Callable[[], Resource] = encoding.detected_resource,
) -> Pushing | None:
    """The recorder for a configuration, around the one that counts; None where metrics go nowhere. `counts`: those of the other signals."""
    return Pushing(measuring, config, resource(), counts) if config.metrics else None
