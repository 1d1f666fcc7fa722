"""Admission: one reservation over all budgets and limits that concern a call, all or none; settled once, however the call ends.

A call holds its input at an upper estimate and its output at a cap: the caller's, or where it set none, or one that doesn't fit, a cap
that does, which the request is then sent with. Where budgets don't cap, a stream holds what is usual, and more in slices while it runs; it
is ended when no slice can be had.

The gateway makes one of these of all rules that a team has. A call that no rule concerns passes by.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import ClassVar

from msgspec.structs import replace

from ..call.call import Call, Caller, Target
from ..call.chain import Next, pulling
from ..call.errors import SpangateError
from ..call.events import Delta, Envelope, Event, Opened, Usage
from ..call.spoken import BYTES_A_TOKEN, Sample, measured, sampled, tokens_of, words_in
from .bounds import STAGE, Bound
from .charge import Books, Charge
from .content import after_look, unseen
from .cutting import ending
from .entries import Sheet, line
from .ledger.ledger import StateUnavailable
from .output_cap import HEADER, capped, over
from .refusals import limit_headers
from .reserving import Reserving
from .tokens import SHORT
from .wrap_up import wrapped_up

MOST_CALLERS = 4096  # of whom it is known by heart which counters they have
FRESH = 1.0  # seconds for which what is left of a limit is told as it was when the call was admitted
SLICE = 256  # tokens of output that a stream gets more at a time

TargetOf = Callable[[Call], Target | None]
Elsewhere = Callable[[str], Next]


def _nowhere(call: Call) -> Target | None:
    return call.target


class Admission:
    """`target_of`: where a call will most likely go. `elsewhere`: who answers for another model, inside of this layer."""

    stage: ClassVar[int] = STAGE

    def __init__(
        self, bounds: Sequence[Bound], books: Books, *, target_of: TargetOf = _nowhere, elsewhere: Elsewhere | None = None
    ) -> None:
        self._bounds = [bound for bound in bounds if bound.per != "provider"]
        self._always = len(self._bounds) < len(bounds)  # the meter has limits of its own
        self._books = books
        self._target_of = target_of
        self._elsewhere = elsewhere
        self._by_caller = all(bound.by_caller for bound in self._bounds)
        self._known: dict[Caller, Sheet] = {}
        self._in_dollars = any(bound.unit == "usd" for bound in bounds)
        self._looks = any(bound.by_tokens or (bound.applies is not None and bound.applies.looks) for bound in self._bounds)

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        if call.meter is not None:
            return next(call)  # a call within a call: its charge is that one's
        if self._looks and unseen(call):
            return after_look(call, self, next)
        sheet = self._known.get(call.caller) or self._sheet(call)
        if sheet.places or self._always:
            return self._held(call, next, sheet)
        return next(call)

    def _sheet(self, call: Call) -> Sheet:
        """The bounds that concern the call. Most ask for its caller alone, and callers come again: then it is known the next time."""
        sheet = Sheet([(bound, place) for bound in self._bounds if (place := bound.place(call)) is not None])
        if self._by_caller:
            if len(self._known) >= MOST_CALLERS:
                self._known.clear()
            self._known[call.caller] = sheet
        return sheet

    async def _held(self, call: Call, next: Next, sheet: Sheet) -> AsyncIterator[Event]:
        charge = Charge.of(self._books, call, sheet, in_dollars=self._in_dollars)
        counting: Counting | None = None
        headers: dict[str, str] = {}
        cut = False
        try:
            if sheet.places:
                await Reserving(self._books, charge).reserve(call, self._target_of(call))
                if charge.over:
                    call, next = self._judged(call, next, charge)
                call, headers = _capped(call, charge)
                counting = _counting(call, charge)
            async with pulling(next(replace(call, meter=charge))) as events:
                async for event in events:
                    if isinstance(event, Opened):
                        if counting is not None:
                            counting.begins(event)
                        if self._books.clock.mono() - charge.reserved_at > FRESH:
                            await charge.look_again()
                        yield _telling(event, charge, headers, self._books)
                        continue
                    yield event
                    if counting is not None and isinstance(event, Delta) and not await counting.covers(event):
                        cut = True
                        break
            if cut and counting is not None:
                for event in ending(call, counting.envelope, counting.usage):
                    yield event
        except SpangateError as error:
            error.headers = {**_limits(charge, self._books), **error.headers}
            raise
        finally:
            charge.settle()

    def _judged(self, call: Call, next: Next, charge: Charge) -> tuple[Call, Next]:
        """What becomes of a call that went over a limit and was let in all the same."""
        for entry in charge.entries:
            bound, standing = entry.bound, entry.standing
            if standing is None or not standing.over or bound.shadow or bound.kind != "budget":
                continue
            if bound.exceeded == "warn":
                charge.notes.add("budget.exceeded", verdict="warn", **line(bound, standing))
            elif bound.exceeded == "wrap_up":
                charge.notes.add("budget.wrapped_up", verdict="modify", **line(bound, standing))
                call = wrapped_up(call)
            elif bound.exceeded == "downgrade" and self._elsewhere is not None and call.model != bound.downgrade_to:
                charge.notes.add("budget.downgraded", verdict="modify", **line(bound, standing), model=bound.downgrade_to)
                body = call.body.changed(model=bound.downgrade_to)
                call, next = replace(call, model=bound.downgrade_to, body=body), self._elsewhere(bound.downgrade_to)
                charge.target = None  # so that the meter looks what that one costs
        return call, next


def _capped(call: Call, charge: Charge) -> tuple[Call, dict[str, str]]:
    """The call with the cap that is held for it, if it has none or a higher one; and the headers that say so."""
    if not charge.sheet.capping or not over(call, most := charge.output // call.head.n):
        return call, {}
    if not any(entry.bound.capping for entry in charge.entries):
        return call, {}
    charge.notes.add("budget.capped", verdict="modify", asked=call.head.output_cap or 0, output_cap=most)
    return capped(call, most), {HEADER: str(most)}


def _counting(call: Call, charge: Charge) -> Counting | None:
    """Streams of which nobody knows how long they get are counted while they run."""
    if not call.head.stream:
        return None
    bounds = [entry.bound for entry in charge.entries if entry.bound.kind == "budget" and entry.bound.by_tokens]
    watched = [bound for bound in bounds if bound.exceeded != "warn" and not bound.shadow]
    if not watched or any(bound.capping for bound in watched):
        return None
    cap = call.head.output_cap
    return Counting(call, charge) if cap is None or cap * call.head.n > charge.output else None


class Counting:
    """How much a stream has said, as far as it matters: its text is looked for only where so many bytes could be more than is held."""

    __slots__ = ("_charge", "_counted", "_deltas", "_kept", "_model", "_on", "_several", "_size", "envelope")

    def __init__(self, call: Call, charge: Charge) -> None:
        self._charge = charge
        self._model = charge.target.model if charge.target else call.model
        self._several = call.head.n > 1
        self._kept: list[bytes] = []
        self._size = 0
        self._counted = self._deltas = 0
        self._on = False
        self.envelope: Envelope | None = None

    def begins(self, opened: Opened) -> None:
        self._on, self.envelope = opened.stream, opened.envelope

    async def covers(self, delta: Delta) -> bool:
        """Whether what it has said with this is held, or could be."""
        if not self._on:
            return True
        raw, charge = delta.raw, self._charge
        self._kept.append(raw)
        self._size += len(raw)
        if self._tokens * BYTES_A_TOKEN + self._size <= charge.output * BYTES_A_TOKEN:
            return True
        await charge.books.tokens.ready(self._model)
        data = b"".join(self._kept)
        words = words_in(data)
        text, deltas = measured(words, data)
        pieces = sampled(words, data, SHORT, several=self._several)
        counted = charge.books.tokens.said(self._model, [Sample(pieces, text)])
        self._counted += tokens_of(text) if counted is None else counted
        self._deltas += deltas
        self._kept, self._size = [], 0
        while self._tokens > charge.output:
            try:
                if not await charge.more_output(max(SLICE, self._tokens - charge.output)):
                    return False
            except StateUnavailable:
                return False
        return True

    @property
    def _tokens(self) -> int:
        return max(self._counted, self._deltas)

    @property
    def usage(self) -> Usage:
        """What it has taken: as it is settled, once that is known."""
        estimate, attempts = self._charge.estimate, self._charge.seen.attempts
        if attempts and (billed := attempts[-1].billed) is not None:
            return billed
        return Usage(estimate.expected if estimate else 0, self._tokens, source="estimated")


def _telling(opened: Opened, charge: Charge, headers: dict[str, str], books: Books) -> Opened:
    told = {**_limits(charge, books), **headers}
    return replace(opened, headers={**told, **opened.headers}) if told else opened


def _limits(charge: Charge, books: Books) -> dict[str, str]:
    """What is left of rate limits, after this call's part."""
    return limit_headers(charge.limits, books.clock.wall()) if charge.limits else {}
