"""How much is reserved for a call, and how: as much as it may take; or less, with a cap that fits; or nothing, and it is refused."""

from __future__ import annotations

from collections.abc import Awaitable

from ..call.call import Call, Target
from .bounds import SHADOW, Need
from .charge import NO_NEED, Books, Charge, look
from .entries import Entry, Sheet, line
from .ledger.ledger import Answer, Claim, StateUnavailable
from .refusals import limit_headers, refused, unpriced
from .without_state import apart

LEAST = 16  # tokens: an answer that must be shorter is not worth having, unless the caller wants no more
AMPLE = 16 * 1024  # tokens of an answer for which no cap was set, at the most,
SHARE = 16  # and such a part of what is left
SPARE = 2  # times what is usual is held for it at the least
_CAPPED = ("chat", "completions")


class Reserving:
    """One reservation."""

    __slots__ = ("_books", "_charge")

    def __init__(self, books: Books, charge: Charge) -> None:
        self._books = books
        self._charge = charge

    async def reserve(self, call: Call, target: Target | None) -> None:
        """
        Raises:
            Refused: budget_exceeded or rate_limit_exceeded.
            StateUnavailable: nobody knows how the counters stand, and a rule wants to be sure.
        """
        charge = self._charge
        sheet = charge.sheet
        try:
            if self._books.trouble is not None and self._books.trouble():
                self._check_kept(sheet)
            need, least = self._need(call, target, sheet)
            if charge.in_dollars:
                self._check_priced(target, need, sheet)
            claims, need, spare = self._claims(sheet, need, least, call.head.n)
            try:
                asking = self._books.waiting.reserve(charge.hold, claims, sheet.waits, spare)
                answer = await (self._waiting(asking) if sheet.waits else asking)
            except StateUnavailable:
                await self._without_state(call, target)
                return
            if answer.refused:
                raise self._refusal(answer, sheet)
            if answer.left_out:
                need = need._replace(output=need.output - answer.left_out * call.head.n)
            charge.held_for(need, answer, claims, target)
        except BaseException:
            charge.hold.release()
            raise

    # ---- how much

    def _need(self, call: Call, target: Target | None, sheet: Sheet) -> tuple[Need, int]:
        """What to ask for first, and the least output that is worth having."""
        if not sheet.by_tokens:
            return NO_NEED, 0
        charge, tokens, head = self._charge, self._books.tokens, call.head
        estimate = charge.estimate = tokens.input(call)
        price = self._books.pricing(target) if target is not None and charge.in_dollars else None
        if call.op not in _CAPPED:
            return Need(estimate.upper, 0, price), 0
        if head.output_cap is not None and sheet.capping:
            return Need(estimate.upper, head.output_cap * head.n, price), min(LEAST, head.output_cap) * head.n
        usual = SPARE * tokens.output(call.caller.team, call.model)
        if head.output_cap is not None:
            each = min(usual, head.output_cap)
            return Need(estimate.upper, each * head.n, price), min(LEAST, each) * head.n
        need = Need(estimate.upper, usual * head.n, price)
        if sheet.capping:
            rooms = [bound.fits(need, place.room // SHARE) for bound, place in sheet.capping]
            need = need._replace(output=max(need.output, min(min(rooms) // head.n, AMPLE) * head.n))
        return need, LEAST * head.n

    def _claims(self, sheet: Sheet, need: Need, least: int, n: int) -> tuple[list[Claim], Need, int]:
        """What is asked of each counter, for which need, and how many steps of it may be left out: one is a token of each choice. Only a
        budget makes an answer shorter; of a limit that is full calls wait for better times."""
        spare = max(0, need.output - least) // n
        claims = sheet.claims.copy()
        for at, bound, place in sheet.by_tokens:
            claim = claims[at] = bound.asked(place.counter, need, n, spare)
            if spare and bound.lowers and claim.full != "lower":  # as much as all of it would do for
                fit = bound.fits(need, bound.whole) // n * n
                if least <= fit < need.output:
                    return self._claims(sheet, need._replace(output=fit), least, n)
        return claims, need, spare

    def _check_kept(self, sheet: Sheet) -> None:
        """
        Raises:
            StateUnavailable: what is used couldn't be kept through a crash, and a budget wants to be sure. Limits begin anew then anyway.
        """
        apart([Entry(bound, place) for bound, place in sheet.places if bound.kind == "budget"], self._charge.notes)

    def _check_priced(self, target: Target | None, need: Need, sheet: Sheet) -> None:
        if need.price is not None or target is None:
            return
        for bound, place in sheet.places:
            if bound.unit != "usd":
                continue
            if bound.unpriced == "refuse" and not bound.shadow:
                self._charge.notes.add("budget.refused", rule=bound.rule, name=bound.name, scope=bound.per, unpriced=target.model)
                raise unpriced(bound, place.counter.scope, target.model)
            mode = {"mode": SHADOW} if bound.shadow else {}
            self._charge.notes.add("budget.unpriced", verdict="warn", rule=bound.rule, name=bound.name, model=target.model, **mode)

    # ---- who says no

    async def _waiting(self, asking: Awaitable[Answer]) -> Answer:
        clock = self._books.clock
        began = clock.mono()
        answer = await asking
        if (waited := clock.mono() - began) > 0.001:
            self._charge.notes.add("rate_limit.waited", seconds=round(waited, 6), admitted=answer.admitted)
        return answer

    def _refusal(self, answer: Answer, sheet: Sheet) -> Exception:
        """A budget's word before a limit's, since to wait won't help."""
        refusing = [(sheet.bound_of(standing), standing) for standing in answer.refused]
        bound, standing = next((each for each in refusing if each[0].kind == "budget"), refusing[0])
        self._charge.notes.add(f"{bound.kind}.refused", **line(bound, standing))
        if bound.thresholds is not None:
            look(self._books, bound, standing, self._charge.notes, used=standing.used, was_refused=True)
        now = self._books.clock.wall()
        told = [(bound, each) for (bound, _), each in zip(sheet.places, answer.standings, strict=True) if bound.kind == "rate_limit"]
        return refused(bound, standing, now, headers=limit_headers(told, now))

    # ---- while the counters can't be reached

    async def _without_state(self, call: Call, target: Target | None) -> None:
        """What each rule's `on_state_error` says.

        Raises:
            Refused: a limit that counts here alone has no room.
            StateUnavailable: a rule wants to be sure.
        """
        charge = self._charge
        local, owed = apart([Entry(bound, place) for bound, place in charge.sheet.places], charge.notes)
        if local:
            sheet = Sheet([(entry.bound, entry.place) for entry in local])
            need, _ = self._need(call, target, sheet)
            claims = [entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in local]
            charge.local = self._books.local.hold(charge.hold.id)
            answer = await self._waiting(self._books.waiting_locally.reserve(charge.local, claims, sheet.waits))
            if not answer.admitted:
                raise self._refusal(answer, sheet)
            for entry, standing in zip(local, answer.standings, strict=True):
                entry.standing = standing
            charge.limits = [(entry.bound, each) for entry, each in zip(local, answer.standings, strict=True) if not entry.bound.shadow]
        charge.aside, charge.owed = local, owed
        if not owed:
            charge.hold.release()
