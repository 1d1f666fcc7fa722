"""How much is reserved for a call, and how: as much as it may take; or less, with a cap that fits; or nothing, and it is refused."""

from __future__ import annotations

from collections.abc import Sequence

from ..call.call import Call, Target
from .bounds import SHADOW, Bound, Need
from .charge import Books, Charge, Entry, line, look
from .ledger.ledger import MOST, Answer, Claim, Full, Standing, StateUnavailable
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
        entries = charge.entries
        try:
            if self._books.trouble is not None and (trouble := self._books.trouble()):
                self._check_kept(entries, trouble)
            need, least = self._need(call, target, entries)
            self._check_priced(call, target, need, entries)
            claims, need, spare = self._claims(entries, need, least, call.head.n)
            try:
                answer = await self._ask(claims, entries, spare)
            except StateUnavailable:
                await self._without_state(call, target)
                return
            if not answer.admitted:
                raise self._refusal(answer, entries)
            if answer.left_out:
                need = need._replace(output=need.output - answer.left_out * call.head.n)
            charge.held_for(need, answer, claims, entries, target)
        except BaseException:
            charge.hold.release()
            raise

    # ---- how much

    def _need(self, call: Call, target: Target | None, entries: Sequence[Entry]) -> tuple[Need, int]:
        """What to ask for first, and the least output that is worth having."""
        by_tokens = [entry for entry in entries if entry.bound.by_tokens]
        if not by_tokens:
            return Need(0, 0), 0
        charge, tokens, head = self._charge, self._books.tokens, call.head
        estimate = charge.estimate = tokens.input(call)
        price = self._books.pricing(target) if target is not None and charge.in_dollars else None
        if call.op not in _CAPPED:
            return Need(estimate.upper, 0, price), 0
        capping = [entry for entry in by_tokens if entry.bound.capping]
        if head.output_cap is not None and capping:
            return Need(estimate.upper, head.output_cap * head.n, price), min(LEAST, head.output_cap) * head.n
        usual = SPARE * tokens.output(call.caller.team, call.model)
        if head.output_cap is not None:
            each = min(usual, head.output_cap)
            return Need(estimate.upper, each * head.n, price), min(LEAST, each) * head.n
        need = Need(estimate.upper, usual * head.n, price)
        if capping:
            rooms = [entry.bound.fits(need, entry.place.room // SHARE) for entry in capping]
            need = need._replace(output=max(need.output, min(min(rooms) // head.n, AMPLE) * head.n))
        return need, LEAST * head.n

    def _claims(self, entries: Sequence[Entry], need: Need, least: int, n: int) -> tuple[list[Claim], Need, int]:
        """What is asked of each counter, for which need, and how many steps of it may be left out: one is a token of each choice. Only a
        budget makes an answer shorter; of a limit that is full calls wait for better times."""
        spare = (need.output - least) // n
        lowest = Need(need.input, need.output - spare * n, need.price)
        claims = []
        for entry in entries:
            bound, place = entry.bound, entry.place
            if place.claim is not None:
                claims.append(place.claim)
                continue
            amount, step = bound.amount(need), 0
            full: Full = bound.full
            if spare > 0:
                if full == "refuse" and bound.kind == "budget":
                    if amount <= bound.whole:
                        full = "lower"
                    elif least <= (fit := bound.fits(need, bound.whole) // n * n) < need.output:  # as much as all of it would do for
                        return self._claims(entries, need._replace(output=fit), least, n)
                step = max(0, amount - bound.amount(lowest)) // spare  # a price is rounded: no less is held than the answer costs
            claims.append(Claim(place.counter, min(amount, MOST), bound.limit, bound.grace, full, step))
        return claims, need, max(0, spare)

    def _check_kept(self, entries: Sequence[Entry], trouble: str) -> None:
        """
        Raises:
            StateUnavailable: what is used couldn't be kept through a crash, and a budget wants to be sure. Limits begin anew then anyway.
        """
        apart([entry for entry in entries if entry.bound.kind == "budget"], self._charge.notes)

    def _check_priced(self, call: Call, target: Target | None, need: Need, entries: Sequence[Entry]) -> None:
        if need.price is not None or target is None or not self._charge.in_dollars:
            return
        for entry in entries:
            bound = entry.bound
            if bound.unit != "usd":
                continue
            if bound.unpriced == "refuse" and not bound.shadow:
                self._charge.notes.add("budget.refused", rule=bound.rule, name=bound.name, scope=bound.per, unpriced=target.model)
                raise unpriced(bound, entry.place.counter.scope, target.model)
            mode = {"mode": SHADOW} if bound.shadow else {}
            self._charge.notes.add("budget.unpriced", verdict="warn", rule=bound.rule, name=bound.name, model=target.model, **mode)

    # ---- who says no

    async def _ask(self, claims: Sequence[Claim], entries: Sequence[Entry], spare: int = 0, *, local: bool = False) -> Answer:
        charge, books = self._charge, self._books
        waits = {entry.bound.counter_name: entry.bound.wait for entry in entries if entry.bound.wait}
        began = books.clock.mono() if waits else 0.0
        if local:
            charge.local = books.local.hold(charge.hold.id)
            answer = await books.waiting_locally.reserve(charge.local, claims, waits)
        else:
            answer = await books.waiting.reserve(charge.hold, claims, waits, spare)
        if waits and (waited := self._books.clock.mono() - began) > 0.001:
            charge.notes.add("rate_limit.waited", seconds=round(waited, 6), admitted=answer.admitted)
        return answer

    def _refusal(self, answer: Answer, entries: Sequence[Entry]) -> Exception:
        """A budget's word before a limit's, since to wait won't help."""
        refusing = [(_bound(entries, standing), standing) for standing in answer.refused]
        bound, standing = next((each for each in refusing if each[0].kind == "budget"), refusing[0])
        self._charge.notes.add(f"{bound.kind}.refused", **line(bound, standing))
        if bound.thresholds is not None:
            look(self._books, bound, standing, self._charge.notes, used=standing.used, was_refused=True)
        now = self._books.clock.wall()
        told = [(entry.bound, each) for entry, each in zip(entries, answer.standings, strict=True) if entry.bound.kind == "rate_limit"]
        return refused(bound, standing, now, headers=limit_headers(told, now))

    # ---- while the counters can't be reached

    async def _without_state(self, call: Call, target: Target | None) -> None:
        """What each rule's `on_state_error` says.

        Raises:
            Refused: a limit that counts here alone has no room.
            StateUnavailable: a rule wants to be sure.
        """
        charge = self._charge
        entries, charge.entries = charge.entries, []
        local, owed = apart(entries, charge.notes)
        if local:
            need, _ = self._need(call, target, local)
            claims = [entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in local]
            answer = await self._ask(claims, local, local=True)
            if not answer.admitted:
                raise self._refusal(answer, local)
            for entry, standing in zip(local, answer.standings, strict=True):
                entry.standing = standing
        charge.aside, charge.owed = local, owed
        if not owed:
            charge.hold.release()


def _bound(entries: Sequence[Entry], standing: Standing) -> Bound:
    return next(entry.bound for entry in entries if entry.place.counter == standing.counter)
