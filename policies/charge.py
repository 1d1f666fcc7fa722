"""What one call holds and has used, on all the counters that it concerns: from its reservation to its end.

Admission makes it and settles it, the meter tells it of each attempt. Whatever is said of it twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from ..call.call import Call, Target
from ..call.clock import SYSTEM, Clock
from ..call.events import Usage
from ..call.notes import Notes
from ..call.seen import Seen
from .bounds import SHADOW, Bound, Need, Price, Pricing, plain
from .content import look_at
from .entries import Entry, Sheet, line
from .ledger.ledger import NANO, Answer, Claim, Hold, Ledger, Standing, StateUnavailable
from .ledger.memory import MemoryLedger
from .ledger.waiting import Waiting
from .refusals import refused, unpriced, when
from .thresholds import Crossings, Webhooks
from .tokens import Estimate, Tokens
from .turns import Heard

NO_NEED = Need(0, 0)
NOBODY_KNOWS: Pricing = lambda _: None  # noqa: E731


@dataclass(frozen=True, slots=True)
class Books:
    """What all calls of a process share. `local` counts for limits while the shared counters can't be reached. `opened` hears what a call
    holds when that becomes more; `trouble` says why that can't be kept just now, where it should be."""

    ledger: Ledger
    waiting: Waiting
    waiting_locally: Waiting
    tokens: Tokens = field(default_factory=Tokens)
    pricing: Pricing = NOBODY_KNOWS
    clock: Clock = SYSTEM
    local: MemoryLedger = field(default_factory=MemoryLedger)
    crossings: Crossings = field(default_factory=Crossings)
    webhooks: Webhooks | None = None
    opened: Callable[[Seen, Mapping[str, Any]], None] | None = None
    trouble: Callable[[], str] | None = None
    heard: Heard = field(default_factory=Heard)


def books_of(ledger: Ledger, **more: Any) -> Books:
    """Books on that ledger. Who has it alone need not ask who tells of a threshold."""
    first = None if isinstance(ledger, MemoryLedger) else ledger.first
    crossings = Crossings(first, clock=more.get("clock", SYSTEM))
    local = more.get("local") or MemoryLedger(clock=more.get("clock", SYSTEM))
    return Books(ledger, Waiting(ledger), Waiting(local), **{"crossings": crossings, "local": local, **more})


class Charge(msgspec.Struct, eq=False):
    """`call.meter`. `entries` are what the call holds that is settled at its end, `limits` those of which headers tell, `output` how many
    tokens of output are held, of all choices together; `over`: it was let in where there was no room. `sent` is how many attempts were let
    go, `made` whether any came about; `beside` what the attempt under way holds on its provider's counters. Of a call that was let go while
    the counters couldn't be reached, `aside` is counted by this gateway alone (`local`), and `owed` told to them later."""

    books: Books
    seen: Seen
    notes: Notes
    sheet: Sheet
    hold: Hold
    reserved_at: float
    in_dollars: bool = True
    entries: Sequence[Entry] = ()
    limits: Sequence[tuple[Bound, Standing]] = ()
    beside: Sequence[Entry] = ()
    aside: Sequence[Entry] = ()
    owed: Sequence[Entry] = ()
    local: Hold | None = None
    estimate: Estimate | None = None
    estimated: bool = False
    need: Need = NO_NEED
    output: int = 0
    over: bool = False
    target: Target | None = None
    sent: int = 0
    made: bool = False
    settled: bool = False

    @classmethod
    def of(cls, books: Books, call: Call, sheet: Sheet, *, in_dollars: bool = True) -> Charge:
        """It holds nothing yet."""
        return cls(books, call.seen, call.notes, sheet, books.ledger.hold(call.id), books.clock.mono(), in_dollars)

    def held_for(self, need: Need, answer: Answer, claims: Sequence[Claim], target: Target | None) -> None:
        """It is reserved: each entry holds what was claimed, without what was left out. What shadow rules had no room for is held by
        nobody."""
        sheet, standings, left_out = self.sheet, answer.standings, answer.left_out
        if answer.over:
            self._went_over(standings)
        entries = []
        for at, bound, place in sheet.settling:
            standing = place.standing = standings[at]
            place.back = 0
            if bound.shadow and standing.over:
                continue
            claim = claims[at]
            entries.append(Entry(bound, place, claim.without(left_out) if left_out else claim.amount, 0, standing))
        if self.books.crossings.shared:
            self._look_ahead(entries)
        if sheet.limits:
            self.limits = [(bound, standings[at]) for at, bound in sheet.limits]
        self.entries, self.need, self.output, self.target = entries, need, need.output, target

    def _went_over(self, standings: Sequence[Standing]) -> None:
        """Some claim was let in where there was no room, or would have been refused if its rule were in force."""
        for (bound, _), standing in zip(self.sheet.places, standings, strict=True):
            if standing.over and bound.shadow:
                self.notes.add(f"{bound.kind}.refused", **line(bound, standing))
            elif standing.over:
                self.over = True

    def _look_ahead(self, entries: Sequence[Entry]) -> None:
        """What others have used may have reached a threshold: asked about now, it is noted in time."""
        for entry in entries:
            bound, standing = entry.bound, entry.standing
            if bound.thresholds is not None and standing is not None:
                look(self.books, bound, standing, self.notes, used=standing.used)

    async def look_again(self) -> None:
        """How the limits stand by now, for headers: an answer may begin long after its call was admitted. No answer waits for a server to
        say so."""
        if not self.limits or not isinstance(self.books.ledger, MemoryLedger):
            return
        found = await self.books.ledger.read([bound.claim(standing.counter, 0) for bound, standing in self.limits])
        self.limits = [(bound, standing) for (bound, _), standing in zip(self.limits, found, strict=True)]

    # ---- the meter's part

    def covers(self, call: Call) -> bool:
        """An attempt is about to be sent. Whether all that it may take is held, as for nearly every one; else `before` sees to it."""
        if self.entries and (self.sent or call.purpose != "main" or call.target != self.target):
            return False
        self.sent += 1
        return True

    async def before(self, call: Call) -> None:
        """An attempt is about to be sent: hold what it may take, if that isn't held yet.

        Raises:
            TargetRefused: that can't be had.
            StateUnavailable: nobody knows.
        """
        if self.covers(call):
            return
        self.sent += 1
        need = await self.need_of(call)
        more: list[tuple[Entry, int]] = []
        for entry in self.entries:
            bound = entry.bound
            if not bound.by_tokens:
                continue
            if bound.unit == "usd" and need.price is None and bound.unpriced == "refuse" and not bound.shadow:
                raise self._unpriced(entry, call)
            wanted = entry.used + bound.amount(need)
            if wanted > entry.held:
                more.append((entry, wanted - entry.held))
        refusal = await self._extend(more)
        if refusal is not None:
            entry, standing = refusal
            self.notes.add(f"{entry.bound.kind}.refused", **line(entry.bound, standing), target=call.target.model if call.target else "")
            raise refused(entry.bound, standing, self.books.clock.wall(), target=True)
        self.need = need

    def after(self, call: Call, billed: Usage | None, *, cut: bool) -> None:
        """An attempt has ended, however that was, and counts for so much (None: nothing). `cut`: at its cap. Who makes attempts says so,
        once for each."""
        self.made = True
        if billed is None or billed.source == "none":
            return
        self.estimated = self.estimated or billed.source == "estimated"
        price = self.price_of(call) if self.in_dollars else None
        for entry in self.entries or (*self.aside, *self.owed):
            bound = entry.bound
            if bound.by_tokens:
                entry.used += bound.used(billed, price)
        if billed.source == "provider" and self.books.tokens.due(self.books.clock.mono()):
            self.books.tokens.learn(call, billed, self.estimate if call.purpose == "main" else None, cut=cut)

    def price_of(self, call: Call) -> Price | None:
        """Of the target that is asked; None where it doesn't matter."""
        return self.books.pricing(call.target) if self.in_dollars and call.target is not None else None

    async def need_of(self, call: Call) -> Need:
        """What an attempt may take: of the call itself as much as is held, of a call within it what is usual."""
        price = self.price_of(call)
        if call.purpose == "main":
            return Need(self.need.input, self.need.output, price)
        await look_at(call)
        usual = self.books.tokens.output(call.caller.team, call.model)
        each = usual if call.head.output_cap is None else min(call.head.output_cap, usual)
        return Need(self.books.tokens.input(call).upper, each * call.head.n, price)

    def _unpriced(self, entry: Entry, call: Call) -> Exception:
        return unpriced(entry.bound, entry.place.counter.scope, call.target.model if call.target else call.model)

    # ---- slices

    async def more_output(self, tokens: int) -> bool:
        """Hold so many tokens of output more; of what is left, if that is less. Whether there was any."""
        while True:
            before, after = self.need, self.need._replace(output=self.need.output + tokens)
            budgets = [entry for entry in self.entries if entry.bound.kind == "budget" and entry.bound.by_tokens]
            wanted = [(entry, entry.bound.amount(after) - entry.bound.amount(before)) for entry in budgets]
            refusal = await self._extend([each for each in wanted if each[1] > 0])
            if refusal is None:
                self.need, self.output = after, after.output
                return True
            entry, standing = refusal
            room = entry.bound.room(standing) + entry.bound.amount(before)
            tokens = entry.bound.fits(before, room) - before.output
            if tokens <= 0:
                self.notes.add("budget.cut", verdict="deny", action="modify", **line(entry.bound, standing))
                return False

    async def _extend(self, more: Sequence[tuple[Entry, int]]) -> tuple[Entry, Standing] | None:
        """Hold more; who refused, and how that counter stands.

        Raises:
            StateUnavailable: nobody knows, and a rule wants to be sure.
        """
        if not more:
            return None
        try:
            answer = await self.hold.extend([entry.bound.claim(entry.place.counter, amount) for entry, amount in more])
        except StateUnavailable:
            if any(entry.bound.on_state_error == "refuse" and not entry.bound.shadow for entry, _ in more):
                raise
            return None
        if not answer.admitted:
            refusing = answer.refused[0]
            return next(entry for entry, _ in more if entry.place.counter == refusing.counter), refusing
        for (entry, amount), standing in zip(more, answer.standings, strict=True):
            entry.place.standing, entry.place.back = standing, 0
            if not (entry.bound.shadow and standing.over):
                entry.held += amount
        if self.books.opened is not None and self.sent:
            self.books.opened(self.seen, self.holds)
        return None

    @property
    def holds(self) -> dict[str, Any]:
        """What a crash would cost: the line of the spool that opens the call has it."""
        held = [
            [
                bound.name,
                entry.place.told["scope"],
                bound.unit,
                bound.window.text,
                mode,
                when(at.resets_at),
                plain(entry.held),
                plain(at.limit),
            ]
            for entry in (*self.entries, *self.beside)
            if (bound := entry.bound).kind == "budget" and (at := entry.standing) is not None
            for mode in (SHADOW if bound.shadow else "enforce",)
        ]
        return {"input": self.need.input, "output": self.need.output, "budgets": held}

    # ---- the end

    def settle(self) -> None:
        """Put what was used in place of what was held. Only the first time counts."""
        if self.settled:
            return
        self.settled = True
        actual = self._actual(self.entries)
        if self.owed:
            actual |= self._actual(self.owed) | {entry.bound.counter_name: 0 for entry in self.aside}
        self.hold.settle(actual)
        if self.local is not None:
            self.local.settle(self._actual(self.aside))
        for entry in self.entries:
            if entry.bound.kind == "budget":
                self.tell(entry)
            entry.place.back += entry.held - entry.used

    def _actual(self, entries: Sequence[Entry]) -> dict[str, int]:
        """What to settle by a counter's name. Requests were used if any was sent, and of a limit in any case."""
        found = {}
        for entry in entries:
            bound = entry.bound
            if bound.by_tokens:
                found[bound.counter_name] = entry.used
            elif bound.settles:
                found[bound.counter_name] = entry.used = NANO if self.made else 0
        return found

    def tell(self, entry: Entry) -> None:
        """Note the ledger's line of a call, and look whether it reached a threshold."""
        if entry.used > entry.held or entry.place.beyond:
            entry.overshoot = self._overshoot(entry)
        if self.estimated:
            entry.estimated = True
        self.notes.append(entry)
        bound, standing = entry.bound, entry.standing
        if bound.thresholds is not None and standing is not None:
            look(self.books, bound, standing, self.notes, used=standing.used + entry.used)

    def _overshoot(self, entry: Entry) -> int:
        """How much further beyond its limit the counter went with this call. As long as nobody uses more than they hold, none goes beyond
        any; so it is looked for after somebody did, until there is room again."""
        bound, place = entry.bound, entry.place
        if bound.full != "refuse":
            return 0
        ledger = self.books.ledger
        if not isinstance(ledger, MemoryLedger):
            return max(0, entry.used - entry.held - place.room)
        [now] = ledger.standings([bound.claim(place.counter, 0)], ledger.now())
        beyond = now.used - bound.limit - bound.grace
        place.beyond = beyond > 0
        return min(max(0, beyond), entry.used)


def look(books: Books, bound: Bound, standing: Standing, notes: Any, *, used: int, was_refused: bool = False) -> None:
    """Tell of a threshold, if one is reached that wasn't told of before in this window; and note what was kept for the next call."""
    crossings, counter = books.crossings, standing.counter
    reached = crossings.look(bound.thresholds, standing, used, refused=was_refused)
    if reached is not None:
        told = line(bound, standing) | {"used": plain(used), "threshold": float(reached)}
        crossings.tell(counter, reached, told, partial(_post, books, bound, counter.home, told))
    for note in crossings.notes(counter):
        notes.add("budget.threshold", **note)


def _post(books: Books, bound: Bound, organisation: str, told: Mapping[str, Any]) -> None:
    if books.webhooks is not None and not bound.shadow:
        books.webhooks.tell(bound.thresholds, {"event": "budget.threshold", "organisation": organisation, **told})
