"""exporters/metrics/metrics.py: instruments, their series, and what stands in them."""

from __future__ import annotations

import random
from bisect import bisect_left

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.exporters.metrics.batches import Batch, Mark
from spangate.exporters.metrics.metrics import MOST, OVERFLOW, Exemplar, Labels, Metrics, Point, Spread
from spangate.exporters.semconv import Instrument

from measured import points, series, value

CALLS = Instrument("calls", "counter", "{call}", "Calls.")
OPEN = Instrument("open", "updown", "{call}", "Open.")
SIZE = Instrument("size", "gauge", "By", "Size.")
TIME = Instrument("time", "histogram", "s", "Time.", (1, 2.5, 5))

A: Labels = (("who", "a"),)
B: Labels = (("who", "b"),)


@pytest.fixture
def metrics() -> Metrics:
    times = iter(range(100, 10_000, 100))
    return Metrics(now=lambda: next(times))


def test_a_counter_rises(metrics: Metrics) -> None:
    calls = metrics.counter(CALLS)
    calls.series(A).add(2)
    calls.series(A).add(3)
    calls.series(A).add(-7)
    calls.series(B).add(0)
    [metric] = metrics.collect()
    assert metric.points == [Point(A, 5), Point(B, 0)]
    assert (metric.spec, metric.start, metric.at, metric.asked, metric.delta) == (CALLS, 100, 200, False, False)


def test_an_up_down_counter_does_both(metrics: Metrics) -> None:
    open = metrics.counter(OPEN).series(A)
    open.add(2)
    open.add(-3)
    assert value(metrics.collect(), OPEN) == -1


def test_a_gauge_is_asked_when_somebody_looks(metrics: Metrics) -> None:
    sizes = {"a": 1, "b": 2}
    metrics.observed(SIZE, lambda: [((("who", who),), size) for who, size in sizes.items()])
    sizes["a"] = 7
    assert points(metrics.collect(), SIZE) == [Point(A, 7), Point(B, 2)]
    assert metrics.collect()[0].asked


def test_one_that_fails_says_nothing_and_harms_nobody(metrics: Metrics) -> None:
    broken = metrics.observed(SIZE, lambda: [((), 1 // 0)])
    metrics.counter(CALLS).series(A).add(1)
    assert value(metrics.collect(), CALLS) == 1
    assert points(metrics.collect(), SIZE) == []
    assert broken.failed == 2


@pytest.mark.parametrize(
    ("number", "counts"), [(0, (1, 0, 0, 0)), (1, (1, 0, 0, 0)), (1.1, (0, 1, 0, 0)), (5, (0, 0, 1, 0)), (9, (0, 0, 0, 1))]
)
def test_a_bound_belongs_to_the_bucket_below_it(metrics: Metrics, number: float, counts: tuple[int, ...]) -> None:
    metrics.histogram(TIME).series(A).record(number)
    assert points(metrics.collect(), TIME) == [Spread(A, counts, number, number, number)]


@given(st.lists(st.floats(0, 10), min_size=1))
def test_a_histogram_counts_each_value_once(values: list[float]) -> None:
    metrics = Metrics()
    times = metrics.histogram(TIME).series(())
    for each in values:
        times.record(each)
    [spread] = points(metrics.collect(), TIME)
    assert spread.count == sum(spread.counts) == len(values)
    assert spread.sum == pytest.approx(sum(values))
    assert (spread.low, spread.high) == (min(values), max(values))
    assert all(spread.counts[place] == sum(bisect_left(TIME.buckets, each) == place for each in values) for place in range(4))


values = st.floats(0, 10) | st.integers(0, 9) | st.sampled_from([1, 2.5, 5])
marks = st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@given(st.lists(st.lists(st.tuples(values, marks), min_size=1, max_size=20), max_size=5))
def test_many_at_once_are_as_one_by_one(batches: list[list[tuple[float, Mark | None]]]) -> None:
    metrics = Metrics()
    calls, times = metrics.counter(CALLS), metrics.histogram(TIME)
    for batch in batches:
        waiting = Batch(metrics.unsettled, ((calls.series(A), times.series(A)),))
        for amount, mark in batch:
            calls.series(B).add(amount, mark)
            times.series(B).record(amount, mark)
            waiting.tell((amount, mark))
    for metric in metrics.collect():
        at_once, singly = metric.points
        total = {"sum": singly.sum} if isinstance(singly, Spread) else {"value": singly.value}
        assert msgspec.structs.replace(at_once, labels=B, **total) == singly
        assert value([metric], metric.spec, dict(A)) == pytest.approx(value([metric], metric.spec, dict(B)))


def test_who_looks_sees_what_waited_without_being_told(metrics: Metrics) -> None:
    calls = Batch(metrics.unsettled, (), (metrics.counter(CALLS).series(A),))
    for expected in (1, 2):
        calls.tell((None,))
        assert value(metrics.collect(), CALLS) == expected


def test_a_series_without_a_value_has_no_least_one(metrics: Metrics) -> None:
    metrics.histogram(TIME).series(A)
    assert points(metrics.collect(), TIME) == [Spread(A, (0, 0, 0, 0), 0.0)]


def test_what_was_read_stays_as_it_was(metrics: Metrics) -> None:
    times = metrics.histogram(TIME).series(A)
    times.record(1)
    before = metrics.collect()
    times.record(1)
    assert value(before, TIME) == 1
    assert value(metrics.collect(), TIME) == 2


def test_an_instrument_without_series_is_not_there(metrics: Metrics) -> None:
    metrics.counter(CALLS)
    metrics.histogram(TIME)
    metrics.observed(SIZE, list)
    assert metrics.collect() == []


def test_an_instrument_is_made_once(metrics: Metrics) -> None:
    metrics.counter(CALLS)
    with pytest.raises(ValueError, match="calls is there already"):
        metrics.counter(CALLS)


def test_an_exemplar_is_the_last_of_its_bucket(metrics: Metrics) -> None:
    times = metrics.histogram(TIME).series(A)
    for number, mark in ((0.5, (1, 2, 3)), (4, (5, 6, 7)), (0.25, (8, 9, 10)), (0.1, None)):
        times.record(number, mark)
    [spread] = points(metrics.collect(), TIME)
    assert spread.exemplars == (Exemplar(0.25, at=10, trace_id=8, span_id=9), Exemplar(4, at=7, trace_id=5, span_id=6))


def test_a_counter_has_one_too(metrics: Metrics) -> None:
    calls = metrics.counter(CALLS).series(A)
    calls.add(1, (1, 2, 3))
    calls.add(5, (4, 5, 6))
    calls.add(1)
    assert points(metrics.collect(), CALLS) == [Point(A, 7, Exemplar(5, at=6, trace_id=4, span_id=5))]


def test_what_is_too_much_is_one_series() -> None:
    metrics = Metrics(most=3)
    calls, times = metrics.counter(CALLS), metrics.histogram(TIME)
    for number in range(10):
        calls.series((("n", number),)).add(1)
        times.series((("n", number),)).record(1)
    assert value(metrics.collect(), CALLS, dict(OVERFLOW)) == 7
    assert value(metrics.collect(), TIME, dict(OVERFLOW)) == 7
    assert dict(OVERFLOW) == {"otel.metric.overflow": True}
    assert len(calls) == len(times) == 4
    assert calls.overflowed == times.overflowed == 7
    assert metrics.overflowed == 14
    calls.series((("n", 1),)).add(1)
    assert value(metrics.collect(), CALLS, {"n": 1}) == 2


def test_what_is_asked_is_bounded_too() -> None:
    metrics = Metrics(most=3)
    counted = metrics.observed(CALLS, lambda: [((("n", number),), 2) for number in range(10)])
    sized = metrics.observed(SIZE, lambda: [((("n", number),), 2) for number in range(10)])
    found = metrics.collect()
    assert value(found, CALLS, dict(OVERFLOW)) == 14
    assert (series(found), counted.overflowed, sized.overflowed) == (7, 7, 7)


def test_two_thousand_unless_told_otherwise() -> None:
    metrics = Metrics()
    calls = metrics.counter(CALLS)
    for _ in range(3000):
        calls.series((("n", random.getrandbits(60)),)).add(1)
    assert len(calls) == MOST + 1 == 2001


def test_a_long_look_rests_after_each_series(metrics: Metrics) -> None:
    for number in range(5):
        metrics.counter(Instrument(f"c{number}", "counter", "", "")).series(A).add(1)
    rests: list[None] = []
    metrics.collect(lambda: rests.append(None))
    assert len(rests) == 5


def test_one_series_under_two_names() -> None:
    metrics = Metrics(most=2)
    first, second = metrics.histogram(TIME), metrics.histogram(Instrument("other", "histogram", "s", "Other.", TIME.buckets))
    assert second.share(first.series(A))
    assert second.share(first.series(A))
    first.series(A).record(3)
    assert [metric.points[0] for metric in metrics.collect()] == [Spread(A, (0, 0, 1, 0), 3, 3, 3)] * 2


def test_what_has_no_place_is_not_shared() -> None:
    metrics = Metrics(most=1)
    first, second = metrics.histogram(TIME), metrics.histogram(Instrument("other", "histogram", "s", "Other.", TIME.buckets))
    own = second.series(B)
    assert not second.share(first.series(A))
    assert not second.share(first.series(B))  # there is no place for it in the first
    assert second.series(B) is own
    assert len(second) == 1
