"""What a call has on each counter that concerns it: entries, which are the ledger's lines in its notes, and the sheet that says which
counters those are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from .bounds import Bound, Place, plain
from .ledger.ledger import Standing
from .refusals import when


class Entry(msgspec.Struct, eq=False, gc=False):
    """A call's part in one counter: what is held, what is used by now, and how the counter stood when that was held. When the call has
    ended it is a note, the ledger's line of it: from then on nothing changes it."""

    name: ClassVar[str] = "budget.settled"

    bound: Bound
    place: Place
    held: int = 0
    used: int = 0
    standing: Standing | None = None
    estimated: bool = False
    overshoot: int = 0
    _figures: dict[str, Any] | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """How the budget stood before the call, what was held, what it came to."""
        if self._figures is None:
            self._figures = self._worked_out()
        return self._figures

    def _worked_out(self) -> dict[str, Any]:
        standing = self.standing
        assert standing is not None, "told before it was held"
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


class Sheet:
    """The bounds that concern a call, with the counter of each, and what follows from these alone: worked out once for all calls of one
    caller. `claims` are what all calls ask alike, with a gap for each that goes `by_tokens`, of which the place in that list is told too,
    as it is of those that are `settling` at a call's end and of those whose `limits` headers tell. `capping` are those by which answers are
    capped, `waits` seconds of patience by a counter's name."""

    __slots__ = ("by_tokens", "capping", "claims", "limits", "places", "settling", "waits")

    def __init__(self, places: Sequence[tuple[Bound, Place]]) -> None:
        self.places = places
        self.claims = [place.claim or bound.claim(place.counter, 0) for bound, place in places]
        numbered = [(at, bound, place) for at, (bound, place) in enumerate(places)]
        self.by_tokens = [each for each in numbered if each[1].by_tokens]
        self.settling = [each for each in numbered if each[1].settles]
        self.limits = [(at, bound) for at, bound, _ in numbered if bound.header is not None and not bound.shadow]
        self.capping = [(bound, place) for bound, place in places if bound.by_tokens and bound.capping]
        self.waits = {bound.counter_name: bound.wait for bound, _ in places if bound.wait}

    def bound_of(self, standing: Standing) -> Bound:
        """Whose counter that is."""
        return next(bound for bound, place in self.places if place.counter == standing.counter)


def line(bound: Bound, standing: Standing) -> dict[str, Any]:
    """How a note tells of a counter: whose it is, and how it stood."""
    return {
        **bound.place_of(standing.counter.home, standing.counter.scope).told,
        "resets_at": when(standing.resets_at),
        "limit": plain(standing.limit),
        "used": plain(standing.used),
        "reserved": plain(standing.reserved),
    }
