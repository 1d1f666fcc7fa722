"""The meter: innermost but one, around each attempt. Before one it sees to it that what is about to be sent is held. What that has used the
charge hears from the layer inside, which makes the attempt and knows what it is billed: once, however it ended, at the price of the target
that was asked. Most attempts are their call's first, and held for: these it lets by.

Limits of a provider are held here too, since only here it is known which provider is asked: a hold of their own for each attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.events import Event, Usage
from .bounds import Bound, Need, Price
from .charge import Books, Charge
from .entries import Entry, line
from .ledger.ledger import Hold, StateUnavailable
from .refusals import refused
from .without_state import apart


class Meter:
    """`providers`: bounds whose counters are providers'."""

    stage: ClassVar[int] = 90

    def __init__(self, books: Books, providers: Sequence[Bound] = ()) -> None:
        self._books = books
        self._providers = tuple(providers)

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        charge = call.meter
        if charge is None:
            return next(call)
        if not self._providers and charge.covers(call):
            return next(call)
        return self._metered(call, next, charge)

    async def _metered(self, call: Call, next: Next, charge: Charge) -> AsyncIterator[Event]:
        await charge.before(call)
        own = OfProvider(self._books, call, self._providers)
        attempts, made = call.seen.attempts, len(call.seen.attempts)
        try:
            if own.entries:
                await own.reserve(call, charge)
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event
        finally:
            if own.sent:
                own.settle(attempts[made].billed if len(attempts) > made else None, charge.price_of(call), charge)


class OfProvider:
    """What one attempt holds on its provider's counters. `sent`: nothing there keeps it from being sent."""

    __slots__ = ("_aside", "_books", "_hold", "_local", "entries", "sent")

    def __init__(self, books: Books, call: Call, bounds: Sequence[Bound]) -> None:
        self._books = books
        self._hold: Hold | None = None
        self._local: Hold | None = None
        self._aside: Sequence[Entry] = ()
        self.entries = [Entry(bound, place) for bound in bounds if (place := bound.place(call)) is not None]
        self.sent = not self.entries

    async def reserve(self, call: Call, charge: Charge) -> None:
        """
        Raises:
            TargetRefused: there is no room.
            StateUnavailable: nobody knows, and a rule wants to be sure.
        """
        need = await charge.need_of(call)
        hold = self._hold = self._books.ledger.hold(f"{call.id}/{charge.sent}")
        try:
            try:
                await self._held(hold, self.entries, need, call)
            except StateUnavailable:
                await self._without_state(hold, need, call)
        except BaseException:
            hold.release()
            self._hold = None
            raise
        charge.beside = self.entries
        self.sent = True

    async def _held(self, hold: Hold, entries: Sequence[Entry], need: Need, call: Call) -> None:
        answer = await hold.reserve([entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in entries])
        if not answer.admitted:
            standing = answer.refused[0]
            bound = next(entry.bound for entry in entries if entry.place.counter == standing.counter)
            call.notes.add(f"{bound.kind}.refused", **line(bound, standing))
            raise refused(bound, standing, self._books.clock.wall(), target=True)
        for entry, standing in zip(entries, answer.standings, strict=True):
            entry.standing, entry.held = standing, entry.bound.amount(need)
            if entry.bound.shadow and standing.over:
                call.notes.add(f"{entry.bound.kind}.refused", **line(entry.bound, standing))

    async def _without_state(self, hold: Hold, need: Need, call: Call) -> None:
        local, owed = apart(self.entries, call.notes)
        if local:
            self._local = self._books.local.hold(hold.id)
            await self._held(self._local, local, need, call)
        self._aside, self.entries = local, owed
        if not owed:
            hold.release()

    def settle(self, usage: Usage | None, price: Price | None, charge: Charge) -> None:
        if self._hold is None:
            return
        charge.beside = ()
        counted = self._counted(self.entries, usage, price)
        self._hold.settle(counted | {entry.bound.counter_name: 0 for entry in self._aside})
        if self._local is not None:
            self._local.settle(self._counted(self._aside, usage, price))
        for entry in self.entries:
            if entry.bound.kind == "budget" and entry.standing is not None and not (entry.bound.shadow and entry.standing.over):
                charge.tell(entry)

    def _counted(self, entries: Sequence[Entry], usage: Usage | None, price: Price | None) -> dict[str, int]:
        """What to settle by a counter's name; of requests it is what was held."""
        counted = {}
        for entry in entries:
            bound = entry.bound
            if bound.by_tokens:
                entry.used = 0 if usage is None else bound.used(usage, price)
                counted[bound.counter_name] = entry.used
            else:
                entry.used = entry.held
        return counted
