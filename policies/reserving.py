"""How much is reserved for a call, and how: as much as it may take; or less, with a cap that fits; or nothing, and it is refused."""

from __future__ import annotations

from collections.abc import Sequence

from ..call.call import Call, Target
from .bounds import SHADOW, Bound, Need
from .charge import Books, Charge, Entry, line, look
from .ledger.ledger import Answer, Standing, StateUnavailable
from .refusals import limit_headers, refused, unpriced

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
                raise StateUnavailable(trouble)
            need, least = self._need(call, target, entries)
            self._check_priced(call, target, need, entries)
            while not (answer := await self._ask(entries, need)).admitted:
                fit = self._fitting(answer, entries, need) // call.head.n * call.head.n
                if call.op not in _CAPPED or not least <= fit < need.output:
                    raise self._refusal(answer, entries)
                need = need._replace(output=fit)
            charge.held_for(need, answer, entries, target)
        except StateUnavailable:
            charge.hold.release()
            await self._without_state(call, target)
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
        capping = any(entry.bound.capping for entry in by_tokens)
        if head.output_cap is not None and capping:
            return Need(estimate.upper, head.output_cap * head.n, price), min(LEAST, head.output_cap) * head.n
        usual = SPARE * tokens.output(call.caller.team, call.model)
        if head.output_cap is not None:
            each = min(usual, head.output_cap)
            return Need(estimate.upper, each * head.n, price), min(LEAST, each) * head.n
        need = Need(estimate.upper, usual * head.n, price)
        if capping:
            rooms = [entry.bound.fits(need, entry.place.room // SHARE) for entry in by_tokens if entry.bound.capping]
            need = need._replace(output=max(need.output, min(min(rooms) // head.n, AMPLE) * head.n))
        return need, LEAST * head.n

    def _fitting(self, answer: Answer, entries: Sequence[Entry], need: Need) -> int:
        """How much output would have been admitted; below 0: none."""
        found = need.output
        for standing in answer.refused:
            bound = _bound(entries, standing)
            if not bound.by_tokens or bound.kind != "budget" or standing.limit <= 0:
                return -1
            found = min(found, bound.fits(need, bound.room(standing)))
        return found

    def _check_priced(self, call: Call, target: Target | None, need: Need, entries: Sequence[Entry]) -> None:
        if need.price is not None or target is None:
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

    async def _ask(self, entries: Sequence[Entry], need: Need) -> Answer:
        charge = self._charge
        claims = [entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in entries]
        waits = {entry.bound.counter_name: entry.bound.wait for entry in entries if entry.bound.wait}
        began = self._books.clock.mono() if waits else 0.0
        answer = await self._books.waiting.reserve(charge.hold, claims, waits)
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
        entries = charge.entries
        charge.entries = []
        for entry in entries:
            bound = entry.bound
            charge.notes.add(f"{bound.kind}.state_unavailable", verdict="warn", rule=bound.rule, name=bound.name, then=bound.on_state_error)
            if bound.on_state_error == "refuse" and not bound.shadow:
                raise StateUnavailable("a budget or limit needs its counters")
        aside = [entry for entry in entries if entry.bound.on_state_error == "local"]
        if not aside:
            return
        need, _ = self._need(call, target, aside)
        hold = self._books.local.hold(call.id)
        answer = await hold.reserve([entry.bound.claim(entry.place.counter, entry.bound.amount(need)) for entry in aside])
        if not answer.admitted:
            raise self._refusal(answer, aside)
        charge.local, charge.aside = hold, []
        for entry, standing in zip(aside, answer.standings, strict=True):
            entry.standing = standing
            charge.aside.append(entry)


def _bound(entries: Sequence[Entry], standing: Standing) -> Bound:
    return next(entry.bound for entry in entries if entry.place.counter == standing.counter)
