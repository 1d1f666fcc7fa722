"""Waiting for room: a rule with `wait` lets a call stand in line until its claims fit, or its patience ends.

There is a line for each counter that refused somebody, and everybody has the number of their arrival. Nobody overtakes: whoever comes to
a counter with a line stands there too, and only who is first in each of their lines asks the ledger. The lowest number is first
everywhere, so there is always somebody who may. Calls that concern no such counter pass by.

Who is first asks again when a call of this gateway leaves room, when the refusal said that it would fit, and now and then, as another
gateway's calls leave room too and say nothing. Fair within one gateway; between several whoever asks first is served.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import insort
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress

from .ledger import Answer, Claim, Counter, Hold, Ledger

LONGEST = 1000  # of a line: who comes then is refused
OFTEN, SELDOM = 0.05, 0.5  # seconds between two questions: where nobody knows when it fits; where somebody said later


class Waiting:
    """The lines of one gateway."""

    def __init__(self, ledger: Ledger, *, longest: int = LONGEST) -> None:
        self._ledger = ledger
        self._longest = longest
        self._numbers = itertools.count()
        self._lines: dict[Counter, list[Place]] = {}

    @property
    def standing(self) -> int:
        """How many wait."""
        return len({place for line in self._lines.values() for place in line})

    def reserve(self, hold: Hold, claims: Sequence[Claim], waits: Mapping[str, float], spare: int = 0) -> Awaitable[Answer]:
        """`hold.reserve`, waiting for room on the counters that `waits` names, with seconds of patience for each.

        Raises:
            StateUnavailable: as `hold.reserve`.
        """
        if not waits and not self._lines:  # as nearly always
            return hold.reserve(claims, spare)
        return self._reserve(hold, claims, waits, spare)

    async def _reserve(self, hold: Hold, claims: Sequence[Claim], waits: Mapping[str, float], spare: int) -> Answer:
        number, answer = next(self._numbers), None
        if not self._lines:
            answer = await hold.reserve(claims, spare)
            if answer.admitted:
                return answer
        place = Place(number)
        try:
            self._stand(place, [claim.counter for claim in claims if claim.counter in self._lines])
            while True:
                if answer is None and self._first_everywhere(place):
                    answer = await hold.reserve(claims, spare)
                if answer is not None:
                    if answer.admitted:
                        return answer
                    self._stand(place, [each.counter for each in answer.refused])
                left = place.left(waits)
                if left <= 0 or any(len(self._lines[counter]) > self._longest for counter in place.counters):
                    return answer or await self._refusal(place, claims)
                await place.woken(min(left, _pause(answer) if answer else left))
                answer = None
        finally:
            self._leave(place)

    def _first_everywhere(self, place: Place) -> bool:
        return all(self._lines[counter][0] is place for counter in place.counters)

    def _stand(self, place: Place, counters: Iterable[Counter]) -> None:
        for counter in counters:
            if counter not in place.counters:
                place.counters.append(counter)
                insort(self._lines.setdefault(counter, []), place, key=lambda each: each.number)
        if self._lines:
            self._ledger.watch = self._room

    def _leave(self, place: Place) -> None:
        for counter in place.counters:
            line = self._lines[counter]
            line.remove(place)
            if not line:
                del self._lines[counter]
        self._room(place.counters)
        if not self._lines:
            self._ledger.watch = None

    def _room(self, counters: Iterable[Counter]) -> None:
        for counter in counters:
            line = self._lines.get(counter)
            if line:
                line[0].wake()

    async def _refusal(self, place: Place, claims: Sequence[Claim]) -> Answer:
        """For one who never had a turn: those that they stood in line for said no."""
        standings = await self._ledger.read(claims)
        refused = tuple(each for each in standings if each.counter in place.counters)
        return Answer(standings, refused, over=any(each.over for each in standings))


class Place:
    """Somebody's place in the lines of some counters."""

    __slots__ = ("_came", "_event", "_loop", "counters", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counters: list[Counter] = []
        self._loop = asyncio.get_running_loop()
        self._came = self._loop.time()
        self._event = asyncio.Event()

    def left(self, waits: Mapping[str, float]) -> float:
        """Seconds of patience, with the counter for which there is the least."""
        patience = min((waits.get(counter.name, 0.0) for counter in self.counters), default=0.0)
        return self._came + patience - self._loop.time()

    def wake(self) -> None:
        self._event.set()

    async def woken(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


def _pause(answer: Answer) -> float:
    """Until it may fit: when the last of those that refused said so."""
    return max(OFTEN if each.fits_after is None else min(max(each.fits_after, 0.001), SELDOM) for each in answer.refused)
