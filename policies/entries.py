"""What a call has on each counter that concerns it: entries, the sheet that says which those are, and the notes that tell of one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from .bounds import Bound, Place, plain
from .ledger.ledger import Standing
from .refusals import when


class Entry(msgspec.Struct, eq=False, gc=False):
    """A call's part in one counter: what is held, what is used by now, and how the counter stood when that was held."""

    bound: Bound
    place: Place
    held: int = 0
    used: int = 0
    standing: Standing | None = None


class Sheet:
    """The bounds that concern a call, with the counter of each, and what follows from these alone: worked out once for all calls of one
    caller. `claims` are what all calls ask alike, with a gap for each that goes `by_tokens`, of which the place in that list is told too.
    `capping` are those by which answers are capped, `waits` seconds of patience by a counter's name."""

    __slots__ = ("by_tokens", "capping", "claims", "places", "waits")

    def __init__(self, places: Sequence[tuple[Bound, Place]]) -> None:
        self.places = places
        self.claims = [place.claim or bound.claim(place.counter, 0) for bound, place in places]
        self.by_tokens = [(at, bound, place) for at, (bound, place) in enumerate(places) if bound.by_tokens]
        self.capping = [(bound, place) for bound, place in places if bound.by_tokens and bound.capping]
        self.waits = {bound.counter_name: bound.wait for bound, _ in places if bound.wait}

    def bound_of(self, standing: Standing) -> Bound:
        """Whose counter that is."""
        return next(bound for bound, place in self.places if place.counter == standing.counter)


class Settled(msgspec.Struct, gc=False):
    """The ledger's line of a call, as a note: how the budget stood before it, what was held, what it came to."""

    name: ClassVar[str] = "budget.settled"

    place: Place
    standing: Standing
    held: int
    used: int
    estimated: bool
    overshoot: int
    _figures: dict[str, Any] | None = None

    @property
    def figures(self) -> dict[str, Any]:
        if self._figures is None:
            self._figures = self._worked_out()
        return self._figures

    def _worked_out(self) -> dict[str, Any]:
        standing = self.standing
        left = standing.limit - standing.used - standing.reserved + self.held - self.used
        return {
            **self.place.told,
            "resets_at": when(standing.resets_at),
            "limit": plain(standing.limit),
            "used": plain(standing.used),
            "reserved": plain(self.held),
            "settled": plain(self.used),
            "remaining": plain(left) if left > 0 else 0,
            **({"estimated": True} if self.estimated else {}),
            **({"overshoot": plain(self.overshoot)} if self.overshoot > 0 else {}),
        }


def line(bound: Bound, standing: Standing) -> dict[str, Any]:
    """How a note tells of a counter: whose it is, and how it stood."""
    return {
        **bound.place_of(standing.counter.home, standing.counter.scope).told,
        "resets_at": when(standing.resets_at),
        "limit": plain(standing.limit),
        "used": plain(standing.used),
        "reserved": plain(standing.reserved),
    }
