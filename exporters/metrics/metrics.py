"""Instruments of our own, and what stands in them at one moment as plain points. What they are called and what is put into them stands
elsewhere.

An instrument has a series for each set of attributes, 2000 at most; whatever more comes is put together in one series that says so. A
series remembers an exemplar: the last value that it took with a mark, in each bucket of a histogram. Everything is cumulative, from the
moment on that the instruments were made. They belong to one thread at a time.

https://opentelemetry.io/docs/specs/otel/metrics/data-model/
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from .. import semconv
from ..alone import alone
from ..record import Scalar
from ..semconv import Instrument
from .batches import Figures, Mark, Unsettled

MOST: Final = 2000  # series of an instrument
OVERFLOW: Final = ((semconv.METRIC_OVERFLOW, True),)

Labels: TypeAlias = tuple[tuple[str, Scalar], ...]
Read: TypeAlias = Callable[[], Iterable[tuple[Labels, float]]]


class Exemplar(msgspec.Struct, frozen=True, gc=False):
    """One value of many, and the span that it comes from."""

    value: float
    at: int
    trace_id: int
    span_id: int


class Point(msgspec.Struct, frozen=True, gc=False):
    """What stands in a counter's or a gauge's series."""

    labels: Labels
    value: float
    exemplar: Exemplar | None = None


class Spread(msgspec.Struct, frozen=True, gc=False):
    """What stands in a histogram's series. `counts` has one place more than there are bounds. `low` and `high`: the least and the most
    of its values; None: not known of this time."""

    labels: Labels
    counts: tuple[int, ...]
    sum: float
    low: float | None = None
    high: float | None = None
    exemplars: tuple[Exemplar, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metric(msgspec.Struct, frozen=True, gc=False):
    """All series of an instrument, from `start` until `at`, in nanoseconds of wall time. Points of a histogram are Spreads, others
    Points. `asked`: the figures are kept elsewhere. `delta`: they are those since the time before."""

    spec: Instrument
    points: Sequence[Point | Spread]
    start: int
    at: int
    asked: bool = False
    delta: bool = False


class Sum:
    """A series of a counter: it only rises, unless its instrument is one that goes up and down."""

    __slots__ = ("_rises", "exemplar", "labels", "value")

    def __init__(self, labels: Labels, spec: Instrument) -> None:
        self.labels = labels
        self.value: float = 0
        self.exemplar: tuple[float, Mark] | None = None
        self._rises = spec.kind == "counter"

    def add(self, amount: float, mark: Mark | None = None) -> None:
        if amount < 0 and self._rises:
            return
        self.value += amount
        if mark is not None:
            self.exemplar = (amount, mark)

    def take(self, figures: Figures) -> None:
        """Add each; none is below 0."""
        self.value += figures.total
        self.exemplar = figures.latest or self.exemplar

    def point(self) -> Point:
        return Point(self.labels, self.value, _exemplar(self.exemplar) if self.exemplar else None)


class Buckets:
    """A series of a histogram."""

    __slots__ = ("_bounds", "counts", "exemplars", "high", "labels", "low", "sum")

    def __init__(self, labels: Labels, spec: Instrument) -> None:
        self.labels = labels
        self._bounds = spec.buckets
        self.counts = [0] * (len(spec.buckets) + 1)
        self.sum = 0.0
        self.low = float("inf")
        self.high = float("-inf")
        self.exemplars: list[tuple[float, Mark] | None] = [None] * (len(spec.buckets) + 1)

    def record(self, value: float, mark: Mark | None = None) -> None:
        place = bisect_left(self._bounds, value)
        self.counts[place] += 1
        self.sum += value
        if value < self.low:  # noqa: PLR1730 - min() costs as much as the rest of this
            self.low = value
        if value > self.high:  # noqa: PLR1730
            self.high = value
        if mark is not None:
            self.exemplars[place] = (value, mark)

    def take(self, figures: Figures) -> None:
        """Record each."""
        ordered, bounds, start = figures.ordered(), self._bounds, 0
        while start < len(ordered):
            place = bisect_left(bounds, ordered[start])
            end = bisect_right(ordered, bounds[place], start) if place < len(bounds) else len(ordered)
            self.counts[place] += end - start
            self.exemplars[place] = figures.last(start, end) or self.exemplars[place]
            start = end
        self.sum += figures.total
        self.low = min(self.low, ordered[0])
        self.high = max(self.high, ordered[-1])

    def point(self) -> Spread:
        marked = tuple(_exemplar(each) for each in self.exemplars if each is not None)
        low, high = (self.low, self.high) if self.low <= self.high else (None, None)
        return Spread(self.labels, tuple(self.counts), self.sum, low, high, marked)


def _exemplar(marked: tuple[float, Mark]) -> Exemplar:
    value, (trace_id, span_id, at) = marked
    return Exemplar(value, at, trace_id, span_id)


class _Pointing(Protocol):
    labels: Labels

    def point(self) -> Point | Spread: ...


S = TypeVar("S", bound=_Pointing)


class Table(Generic[S]):
    """An instrument that is told of values. `overflowed`: how often a series was asked for that has no place any more."""

    def __init__(self, spec: Instrument, make: Callable[[Labels, Instrument], S], most: int = MOST) -> None:
        self.spec = spec
        self.overflowed = 0
        self._make = make
        self._most = most
        self._series: dict[Labels, S] = {}
        self._rest: S | None = None

    def series(self, labels: Labels) -> S:
        """The one with these attributes. It may be kept and used again."""
        found = self._series.get(labels)
        if found is not None:
            return found
        if len(self._series) >= self._most:
            self.overflowed += 1
            if self._rest is None:
                self._rest = self._make(OVERFLOW, self.spec)
            return self._rest
        found = self._series[labels] = self._make(labels, self.spec)
        return found

    def share(self, series: S) -> bool:
        """Show the series of another instrument here as well: one with two names. False: it has no place, or others do instead."""
        labels = series.labels
        if labels == OVERFLOW or (labels not in self._series and len(self._series) >= self._most):
            return False
        return self._series.setdefault(labels, series) is series

    def __len__(self) -> int:
        return len(self._series) + (self._rest is not None)

    def points(self, rest: Callable[[], None]) -> list[Point | Spread]:
        points = []
        for each in (*self._series.values(), *((self._rest,) if self._rest is not None else ())):
            points.append(each.point())
            rest()
        return points


class Observed:
    """An instrument that is asked: what `read` says when somebody looks. One that fails says nothing, and is counted in `failed`."""

    def __init__(self, spec: Instrument, read: Read, most: int = MOST) -> None:
        self.spec = spec
        self.failed = 0
        self.overflowed = 0
        self._read = read
        self._most = most

    def points(self, rest: Callable[[], None]) -> list[Point | Spread]:
        rest()
        found = alone(lambda: list(self._read()))
        if isinstance(found, Exception):
            self.failed += 1
            return []
        over = sum(value for _, value in found[self._most :])
        self.overflowed += max(0, len(found) - self._most)
        more: list[Point | Spread] = [Point(OVERFLOW, over)] if len(found) > self._most and self.spec.kind != "gauge" else []
        return [Point(labels, value) for labels, value in found[: self._most]] + more


def _at_once() -> None:
    """No rest."""


class Metrics:
    """All instruments of a process, each made once, shown in that order."""

    def __init__(self, *, most: int = MOST, now: Callable[[], int] = time.time_ns) -> None:
        self.started = now()
        self.unsettled = Unsettled()
        self._most = most
        self._now = now
        self._instruments: dict[str, Table[Sum] | Table[Buckets] | Observed] = {}

    def histogram(self, spec: Instrument) -> Table[Buckets]:
        made = Table(spec, Buckets, self._most)
        self._add(made)
        return made

    def counter(self, spec: Instrument) -> Table[Sum]:
        """One that is told of amounts: a counter, or one that goes up and down."""
        made = Table(spec, Sum, self._most)
        self._add(made)
        return made

    def observed(self, spec: Instrument, read: Read) -> Observed:
        """One that is asked: a gauge, or a count that is kept elsewhere."""
        made = Observed(spec, read, self._most)
        self._add(made)
        return made

    @property
    def overflowed(self) -> int:
        """How often a series had no place, in all of them."""
        return sum(each.overflowed for each in self._instruments.values())

    def collect(self, rest: Callable[[], None] = _at_once) -> list[Metric]:
        """What stands in those that have a series, with all that waited. `rest` is called after each of these."""
        self.unsettled.settle(rest)
        at = self._now()
        found = [(each, each.points(rest)) for each in list(self._instruments.values())]
        return [Metric(each.spec, points, self.started, at, isinstance(each, Observed)) for each, points in found if points]

    def _add(self, made: Table[Sum] | Table[Buckets] | Observed) -> None:
        if self._instruments.setdefault(made.spec.name, made) is not made:
            raise ValueError(f"{made.spec.name} is there already")
