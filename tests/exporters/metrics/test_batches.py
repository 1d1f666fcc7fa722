"""exporters/metrics/batches.py: figures wait for each other, and no more of them than a few."""

from __future__ import annotations

from spangate.exporters.metrics.batches import FULL, MANY, Batch, Figures, Unsettled


class Taken:
    """A series that remembers what it took."""

    def __init__(self) -> None:
        self.all: list[Figures] = []

    def take(self, figures: Figures) -> None:
        self.all.append(figures)


def rest() -> None:
    """None."""


def test_nothing_is_told_until_somebody_looks() -> None:
    unsettled, series = Unsettled(), Taken()
    batch = Batch(unsettled, ((series,),))
    for value in (3, 1, 2):
        batch.tell((value, None))
    assert series.all == []
    unsettled.settle(rest)
    unsettled.settle(rest)
    [figures] = series.all
    assert (figures.total, figures.ordered(), figures.latest) == (6, [1, 2, 3], None)


def test_a_full_batch_waits_for_nobody() -> None:
    unsettled, series = Unsettled(), Taken()
    batch = Batch(unsettled, ((series,),))
    for _ in range(2 * FULL + 1):
        batch.tell((1, None))
    assert [figures.total for figures in series.all] == [FULL, FULL]
    unsettled.settle(rest)
    assert [figures.total for figures in series.all] == [FULL, FULL, 1]


def test_each_column_has_its_series_and_may_have_none() -> None:
    unsettled, first, other, both, rows = Unsettled(), Taken(), Taken(), Taken(), Taken()
    batch = Batch(unsettled, ((first, both), (), (other, both)), (rows,))
    batch.tell((1, 10, 100, None))
    batch.tell((2, 20, 200, None))
    unsettled.settle(rest)
    assert [[figures.total for figures in series.all] for series in (first, other, both, rows)] == [[3], [300], [3, 300], [2]]


def test_a_mark_is_that_of_the_last_that_has_one() -> None:
    unsettled, series = Unsettled(), Taken()
    batch = Batch(unsettled, ((series,),))
    for value, mark in ((5, (1, 1, 1)), (1, (2, 2, 2)), (4, (3, 3, 3)), (9, None), (1, None)):
        batch.tell((value, mark))
    unsettled.settle(rest)
    [figures] = series.all
    assert figures.ordered() == [1, 1, 4, 5, 9]
    assert figures.latest == (4, (3, 3, 3))
    assert figures.last(0, 2) == (1, (2, 2, 2))
    assert figures.last(2, 5) == (4, (3, 3, 3))
    assert figures.last(4, 5) is None


def test_a_breath_after_each_batch() -> None:
    unsettled, series = Unsettled(), Taken()
    seen: list[int] = []
    for _ in range(3):
        Batch(unsettled, ((series,),)).tell((1, None))
    unsettled.settle(lambda: seen.append(len(series.all)))
    assert seen == [1, 2, 3]


def test_many_is_said() -> None:
    unsettled, series = Unsettled(), Taken()
    for number in range(MANY + 1):
        assert not unsettled.many, number
        Batch(unsettled, ((series,),)).tell((1, None))
    assert unsettled.many
    unsettled.settle(rest)
    assert not unsettled.many
