"""Figures that wait until they are put into their series together. Calls are of few kinds, and one of a kind touches the same twenty
series as the one before it: many figures at once cost a series little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

FULL: Final = 128  # rows of a batch, which go into its series in an eighth of a millisecond
MANY: Final = 64  # batches

Mark: TypeAlias = tuple[int, int, int]
"""Where a value came from: trace id, span id, nanoseconds of wall time."""


class Figures:
    """Those of one column, each with its mark. What several series ask of them is worked out once. `latest`: the one that came last
    with a mark."""

    __slots__ = ("_marks", "_ordered", "_rows", "_values", "latest", "total")

    def __init__(self, values: Sequence[float], marks: Sequence[Mark | None], last: int) -> None:
        self._values = values
        self._marks = marks
        self.total = sum(values)
        self.latest = self._at(last)
        self._ordered: list[float] = []
        self._rows: list[int] = []

    def ordered(self) -> list[float]:
        """From the least to the most, and where each of them stood; -1 where it came without a mark."""
        if not self._ordered:
            self._ordered = sorted(self._values)
            self._rows = sorted(range(len(self._values)), key=list(self._values).__getitem__)
            if None in self._marks:
                self._rows = [row if self._marks[row] is not None else -1 for row in self._rows]
        return self._ordered

    def last(self, start: int, end: int) -> tuple[float, Mark] | None:
        """The one of this part of `ordered` that came last with a mark."""
        return self._at(max(self._rows[start:end]))

    def _at(self, row: int) -> tuple[float, Mark] | None:
        mark = self._marks[row] if row >= 0 else None
        return (self._values[row], mark) if mark is not None else None


class Taking(Protocol):
    """A series that takes many values at once."""

    def take(self, figures: Figures) -> None: ...


class Unsettled:
    """The batches in which something waits, in the order in which it began to."""

    def __init__(self) -> None:
        self._batches: dict[Batch, None] = {}

    def add(self, batch: Batch) -> None:
        self._batches[batch] = None

    def discard(self, batch: Batch) -> None:
        self._batches.pop(batch, None)

    def settle(self, rest: Callable[[], None]) -> None:
        """Put all that waits into its series. `rest` is called after each batch."""
        while self._batches:
            self.settle_one()
            rest()

    def settle_one(self) -> None:
        """The one that waits longest; one does."""
        next(iter(self._batches)).fold()

    @property
    def many(self) -> bool:
        """They take more memory than is worth saving the work."""
        return len(self._batches) > MANY


class Batch:
    """What is told of one kind, 128 rows at most. A row holds a figure for each of `columns`, never below 0 where counters are among
    its series, and a mark or None; a column's figures go into all of its series. `counts` are told how many rows there are."""

    __slots__ = ("columns", "counts", "rows", "unsettled")

    def __init__(self, unsettled: Unsettled, columns: Sequence[Sequence[Taking]], counts: Sequence[Taking] = ()) -> None:
        self.columns = columns
        self.counts = counts
        self.rows: list[tuple[Any, ...]] = []
        self.unsettled = unsettled

    def tell(self, row: tuple[Any, ...]) -> None:
        rows = self.rows
        rows.append(row)
        waiting = len(rows)
        if waiting == 1:
            self.unsettled.add(self)
        elif waiting >= FULL:
            self.fold()

    def fold(self) -> None:
        """Put what waits into the series; something does."""
        rows, self.rows = self.rows, []
        self.unsettled.discard(self)
        *columns, marks = zip(*rows, strict=True)
        last = next((row for row in reversed(range(len(rows))) if marks[row] is not None), -1)
        for series, values in zip(self.columns, columns, strict=True):
            if series:
                figures = Figures(values, marks, last)
                for each in series:
                    each.take(figures)
        if self.counts:
            ones = Figures((1,) * len(rows), marks, last)
            for each in self.counts:
                each.take(ones)
