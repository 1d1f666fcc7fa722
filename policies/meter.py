"""The meter: innermost but one, around each attempt. Before one it sees to it that what is about to be sent is held, after it it adds what
that has used to the call's charge, exactly once, however it ended. What it costs is the price of the target that answered.

Limits of a provider are held here too, since only here it is known which provider is asked: a hold of their own for each attempt.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.errors import ProviderFault, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from ..call.events import Closed, Delta, Event, Usage
from .bounds import Bound, Price
from .charge import Books, Charge, Entry, line
from .ledger.ledger import Hold, StateUnavailable
from .refusals import refused


class Meter:
    """`providers`: bounds whose counters are providers'."""

    stage: ClassVar[int] = 90

    def __init__(self, books: Books, providers: Sequence[Bound] = ()) -> None:
        self._books = books
        self._providers = tuple(providers)

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        charge = call.meter
        if charge is not None:
            return self._metered(call, next, charge)
        return next(call)

    async def _metered(self, call: Call, next: Next, charge: Charge) -> AsyncIterator[Event]:
        await charge.before(call)
        own = OfProvider(self._books, call, self._providers)
        closed: Closed | None = None
        fault: ProviderFault | None = None
        deltas = 0
        try:
            if own.entries:
                await own.reserve(call, charge)
            async with pulling(next(call)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        deltas += 1
                    elif isinstance(event, Closed):
                        closed = event
                    yield event
        except ProviderFault as error:
            fault = error
            raise
        finally:
            if own.sent:
                said, spoken = _said(call)
                usage = charge.after(
                    call,
                    closed.usage if closed is not None else None,
                    said=said,
                    deltas=spoken,
                    reached=fault is None or bool(deltas) or may_have_worked(fault),
                    cut=closed is not None and closed.finish == "length",
                )
                own.settle(usage, charge.price_of(call), charge)


class OfProvider:
    """What one attempt holds on its provider's counters. `sent`: nothing there keeps it from being sent."""

    __slots__ = ("_books", "_hold", "entries", "sent")

    def __init__(self, books: Books, call: Call, bounds: Sequence[Bound]) -> None:
        self._books = books
        self._hold: Hold | None = None
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
            answer = await hold.reserve([entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in self.entries])
        except StateUnavailable:
            hold.release()
            self._hold = None
            if any(entry.bound.on_state_error == "refuse" and not entry.bound.shadow for entry in self.entries):
                raise
            self.sent = True
            return
        except BaseException:
            hold.release()
            raise
        if not answer.admitted:
            standing = answer.refused[0]
            bound = next(entry.bound for entry in self.entries if entry.place.counter == standing.counter)
            call.notes.add(f"{bound.kind}.refused", **line(bound, standing))
            raise refused(bound, standing, self._books.clock.wall(), target=True)
        for entry, standing in zip(self.entries, answer.standings, strict=True):
            entry.standing, entry.held = standing, entry.bound.amount(need)
            if entry.bound.shadow and standing.over:
                call.notes.add(f"{entry.bound.kind}.refused", **line(entry.bound, standing))
        charge.beside = self.entries
        self.sent = True

    def settle(self, usage: Usage | None, price: Price | None, charge: Charge) -> None:
        if self._hold is None:
            return
        charge.beside = ()
        counted = {}
        for entry in self.entries:
            bound = entry.bound
            if bound.by_tokens:
                entry.used = 0 if usage is None else bound.used(usage, price)
                counted[bound.counter_name] = entry.used
            else:
                entry.used = entry.held
        self._hold.settle(counted)
        for entry in self.entries:
            if entry.bound.kind == "budget" and entry.standing is not None and not (entry.bound.shadow and entry.standing.over):
                charge.tell(entry, entry.standing)


def may_have_worked(fault: ProviderFault) -> bool:
    """Whether a provider that failed so may have used tokens: not if it was never asked, or answered with an error."""
    if isinstance(fault, UpstreamUnreachable):
        return False
    if isinstance(fault, UpstreamTimeout):
        return fault.limit != "connect"
    return not isinstance(fault, UpstreamError)


def _said(call: Call) -> tuple[int, int]:
    """Bytes of text of the attempt that has ended, and the deltas that said it, where they were counted."""
    attempts = call.seen.attempts
    return (attempts[-1].answer_bytes, attempts[-1].content_deltas) if attempts else (0, 0)
