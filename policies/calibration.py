"""Figures that mend themselves by what providers report: how far off an estimate is, and how much is usually used.

Pure, and bounded: a figure for each name that was met lately, the rest by what holds for all. Nothing here lasts longer than the process.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from math import ceil, log2
from typing import Generic, TypeVar

T = TypeVar("T")

ROOM = 1024  # names that have a figure of their own
LONGEST = 128  # characters of a name that has one


class Kept(Generic[T]):
    """A value a name, made when it is first learned about. Of names that nobody configured there may be any number: those that were not
    met for longest go."""

    def __init__(self, make: Callable[[], T], room: int = ROOM) -> None:
        self._make = make
        self._room = room
        self._values: dict[Hashable, T] = {}

    def get(self, *name: str) -> T | None:
        return self._values.get(name)

    def at(self, *name: str) -> T | None:
        """The value to learn with; None for a name too long to be anybody's."""
        if max(map(len, name)) > LONGEST:
            return None
        value = self._values.pop(name, None)
        if value is None:
            value = self._make()
            if len(self._values) >= self._room:
                del self._values[next(iter(self._values))]
        self._values[name] = value  # now the last to go
        return value

    def __len__(self) -> int:
        return len(self._values)


class Ratio:
    """What was used ÷ what was estimated: its `mean`, and what it hardly ever exceeds (`upper`), by how far it strays, as TCP learns how
    long an answer takes (RFC 6298).

    A small request says little: what a provider adds to every one of them, such as its own instructions, is then most of it.
    """

    __slots__ = ("_deviation", "known", "mean", "upper")

    HALF = 128  # tokens of an estimate that is believed half as much as a large one
    LEAST, MOST = 0.02, 20.0  # beyond is no matter of counting

    def __init__(self, mean: float = 1.0, deviation: float = 0.0) -> None:
        self._is(mean, deviation)
        self.known = 0

    def _is(self, mean: float, deviation: float) -> None:
        self.mean = mean
        self._deviation = deviation
        self.upper = mean + 4 * deviation

    def learn(self, estimated: float, used: float) -> None:
        if estimated <= 0 or used <= 0:
            return
        seen = min(max(used / estimated, self.LEAST), self.MOST)
        weight = estimated / (estimated + self.HALF)
        if self.known == 0:
            self._is(seen, seen / 4)
        else:
            # The first few count more, so that the figure is good after some calls and not after some hundreds.
            share = max(1 / 16, 1 / (self.known + 1)) * weight
            deviation = self._deviation + 2 * min(share, 0.5) * (abs(seen - self.mean) - self._deviation)
            self._is(self.mean + share * (seen - self.mean), deviation)
        self.known += 1


class Usual:
    """How much is usually used: a histogram on a scale of powers, a fifth apart, in which what is long ago fades."""

    __slots__ = ("_counts", "known")

    STEPS = 4  # to a doubling
    BUCKETS = 4 * 21  # up to two million
    FADES = 256  # after so many all count half

    def __init__(self) -> None:
        self._counts = array("H", bytes(2 * self.BUCKETS))
        self.known = 0

    def learn(self, used: int) -> None:
        bucket = ceil(log2(max(used, 1)) * self.STEPS)
        self._counts[min(bucket, self.BUCKETS - 1)] += 1
        self.known += 1
        if self.known >= self.FADES:
            self._counts = array("H", [count // 2 for count in self._counts])
            self.known = sum(self._counts)

    def below(self, share: float) -> int:
        """What that share of uses stays within; 0 where nothing is known."""
        wanted, seen = share * self.known, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen and seen >= wanted:
                return ceil(2 ** (bucket / self.STEPS))
        return 0
