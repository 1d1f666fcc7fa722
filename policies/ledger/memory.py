"""The ledger of one gateway, in memory. Nothing in it waits: a hold of five claims is taken and settled in some ten microseconds.

Bounded: what is past is dropped, and of made-up scopes only so many are kept (cells.py). Durable by others: `journal` is told of each
change in the moment it happens, and `restore` counts what a journal or the usage rows know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from ...call.clock import SYSTEM, Clock
from ..windows import SECOND
from . import cells
from .cells import Cell, Group, Now, Sliding
from .ledger import Answer, Claim, Counter, Spent, Standing, Watch, check

MOST_CELLS = 200_000  # of a group: 50 MB at the worst
MOST_KNOWN = 1024  # counters that are found at once
NOTHING = Cell()


class Change(msgspec.Struct, frozen=True):
    """What became of a hold: `held` (all that is held for it now) or `settled` (what was used)."""

    hold: str
    event: Literal["held", "settled"]
    amounts: tuple[Spent, ...]


class MemoryLedger:
    """Counters of this process. For one thread, the event loop's."""

    def __init__(self, *, clock: Clock = SYSTEM, journal: Callable[[Change], None] | None = None, most_cells: int = MOST_CELLS) -> None:
        self._clock = clock
        self._offset = clock.wall() - round(clock.mono() * SECOND)
        self._journal = journal
        self.journaled = journal is not None
        self._most = most_cells
        self._groups: dict[tuple[str, str, str], Group] = {}
        self.known: dict[Counter, cells.Counter] = {}  # those met lately, by heart: most are met again
        self._open: dict[tuple[str, str], MemoryHold] = {}
        self.watch: Watch | None = None
        self.problem = ""

    @property
    def open(self) -> int:
        """How many holds are held."""
        return len(self._open)

    @property
    def forgotten(self) -> int:
        """How many counters were forgotten because there were too many."""
        return sum(group.forgotten for group in self._groups.values())

    def hold(self, id: str) -> MemoryHold:
        return MemoryHold(self, id)

    def restore(self, rows: Iterable[Spent]) -> None:
        """Count what was spent before this process began, and what was held then and never settled."""
        now = self.now()
        for row in rows:
            self.counter(row.counter, now).spent(row.at, row.amount, now)

    async def read(self, claims: Sequence[Claim]) -> tuple[Standing, ...]:
        return self.standings(claims, self.now())

    async def every(self, home: str, most: int = 10_000) -> tuple[Standing, ...]:
        now = self.now()
        found: list[Standing] = []
        here = [(name, group) for (at_home, name, _), group in self._groups.items() if at_home == home]
        scopes = [(name, group, scope) for name, group in here for scope in group.counters]
        for number, (name, group, scope) in enumerate(scopes):
            counter = group.counters.get(scope)
            level = NOTHING if counter is None else counter.look(now)
            if counter is not None and (level.used or level.reserved):
                found.append(standing(Claim(Counter(home, name, scope, group.window), 0, counter.limit), counter, level, now))
            if len(found) >= most:
                break
            if number % 256 == 255:
                await asyncio.sleep(0)
        return tuple(found)

    async def first(self, counter: Counter, level: Decimal, until: int | None) -> bool:
        """Nobody else has these counters."""
        return True

    def start(self) -> None:
        pass

    async def drain(self, patience: float) -> int:
        return 0

    async def close(self) -> None:
        pass

    # ---- what holds do

    def standings(self, claims: Sequence[Claim], now: Now) -> tuple[Standing, ...]:
        """How they stand and whether they would fit. A counter that isn't there isn't made."""
        found = []
        for claim in claims:
            named = claim.counter
            group = self._groups.get((named.home, named.name, named.window.text)) or Group(named.window, 1)
            counter = group.counters.get(named.scope) or group.blank(now)
            found.append(standing(claim, counter, counter.look(now), now))
        return tuple(found)

    def now(self) -> Now:
        clock = self._clock
        return Now(clock.wall(), self._offset + round(clock.mono() * SECOND))

    def counter(self, named: Counter, now: Now) -> cells.Counter:
        window = named.window
        group = self._groups.get((named.home, named.name, window.text))
        if group is None:
            group = self._groups[named.home, named.name, window.text] = Group(window, self._most)
        found = group.counters.get(named.scope) or group.counter(named.scope, now)
        if len(self.known) >= min(MOST_KNOWN, self._most):
            self.known.clear()
        self.known[named] = found
        return found

    def begin(self, hold: MemoryHold) -> None:
        """
        Raises:
            ValueError: another hold has its id.
        """
        if self._open.setdefault((hold.home, hold.id), hold) is not hold:
            raise ValueError(f"the hold {hold.id} is held already")

    def refused(self, hold: MemoryHold) -> None:
        del self._open[hold.home, hold.id]

    def changed(self, hold: MemoryHold) -> None:
        if self._journal is not None:
            self._journal(Change(hold.id, "held", hold.held))

    def ended(self, hold: MemoryHold, parts: Iterable[Part], used: tuple[Spent, ...]) -> None:
        self._open.pop((hold.home, hold.id), None)
        if self._journal is not None:
            self._journal(Change(hold.id, "settled", used))
        if self.watch is not None:
            self.watch([part.counter for part in parts])


class Part(msgspec.Struct, eq=False, gc=False):
    """What a hold has of one counter, by so many claims."""

    counter: Counter
    cell: Cell
    amount: int
    at: int
    claims: int = 1


class MemoryHold:
    """A hold in memory: its parts by the name of their counter."""

    __slots__ = ("_ledger", "_parts", "_state", "home", "id")

    def __init__(self, ledger: MemoryLedger, id: str) -> None:
        self.id = id
        self.home = ""
        self._ledger = ledger
        self._parts: dict[str, Part] = {}
        self._state: Literal["new", "held", "settled"] = "new"

    @property
    def held(self) -> tuple[Spent, ...]:
        return tuple(Spent(part.counter, part.at, part.amount) for part in self._parts.values() if part.cell.keeps)

    async def reserve(self, claims: Sequence[Claim], spare: int = 0) -> Answer:
        if self._state != "new":
            raise ValueError(f"the hold {self.id} is {self._state} already")
        check(claims)
        self.home = claims[0].counter.home if claims else ""
        self._ledger.begin(self)
        answer = self._take(claims)
        if spare and answer.refused:
            answer = self._lowered(claims, spare, answer)
        if answer.refused:
            self._ledger.refused(self)
        else:
            self._state = "held"
            if self._ledger.journaled:
                self._ledger.changed(self)
        return answer

    async def extend(self, claims: Sequence[Claim]) -> Answer:
        if self._state != "held":
            raise ValueError(f"the hold {self.id} isn't held")
        check(claims, *[part.counter for part in self._parts.values()])
        answer = self._take(claims)
        if answer.admitted:
            self._ledger.changed(self)
        return answer

    def release(self) -> None:
        self.settle(dict.fromkeys(self._parts, 0))

    def settle(self, actual: Mapping[str, int]) -> None:
        held, self._state = self._state == "held", "settled"
        if not held:
            return
        ledger, spent = self._ledger, []
        for name, part in self._parts.items():
            cell, amount = part.cell, part.amount
            if cell.keeps:
                used = actual.get(name, amount)
                if ledger.journaled:
                    spent.append(Spent(part.counter, part.at, used))
                cell.settle(amount, used, part.claims)
            else:
                cell.settle(amount, 0, part.claims)
        ledger.ended(self, self._parts.values(), tuple(spent))

    def _lowered(self, claims: Sequence[Claim], spare: int, refusal: Answer) -> Answer:
        """With as few steps left out as make them fit, if these can be spared. Who refuses then is another, and is the one to name."""
        left_out = 0
        for claim, each in zip(claims, refusal.standings, strict=True):
            excess = each.used + each.reserved + claim.amount - claim.limit - claim.grace
            if claim.full == "lower" and excess > 0:
                left_out = max(left_out, -(-excess // claim.step) if claim.step else spare + 1)
        if not 0 < left_out <= spare:
            return refusal
        answer = self._take([msgspec.structs.replace(claim, amount=claim.without(left_out)) for claim in claims])
        return answer if answer.refused else msgspec.structs.replace(answer, left_out=left_out)

    def _take(self, claims: Sequence[Claim]) -> Answer:
        """Each claim in turn, on top of those before it; given back where one refuses."""
        ledger, parts, known = self._ledger, self._parts, self._ledger.known
        now = ledger.now()
        standings: list[Standing] = []
        refused: list[int] = []
        skipped: list[int] = []
        any_over = False
        for claim in claims:
            named, limit, amount = claim.counter, claim.limit, claim.amount
            part = parts.get(named.name)
            counter = known.get(named)
            if counter is None or counter.gone:
                counter = ledger.counter(named, now)
            counter.limit = limit
            if part is None:
                cell = counter.hold(amount, now)
                level = counter.level
                excess = level.used + level.reserved - limit
            else:  # more is charged where the first was
                cell = part.cell
                level = counter.look(now) if isinstance(counter, Sliding) else cell
                excess = level.used + level.reserved + amount - limit
                cell.hold(amount)
            if over := excess > 0 or limit <= 0:
                any_over = True
                if (excess > claim.grace or limit <= 0) and claim.full != "count":
                    cell.settle(amount, 0, 1)
                    (skipped if claim.full == "skip" else refused).append(len(standings))
                    standings.append(standing(claim, counter, level, now))
                    continue
            if part is None:
                parts[named.name] = Part(named, cell, amount, now.wall)
            else:
                part.amount += amount
                part.claims += 1
            standings.append(Standing(named, limit, level.used, level.reserved, over, counter.resets_at(now)))
        if not refused:
            return Answer(tuple(standings), over=any_over)
        self._undo(claims, {*refused, *skipped})
        standings = list(ledger.standings(claims, now))
        return Answer(tuple(standings), tuple(standings[number] for number in refused), over=True)

    def _undo(self, claims: Sequence[Claim], without: Collection[int]) -> None:
        """Give back what these took, of which some took nothing."""
        for number, claim in enumerate(claims):
            if number in without:
                continue
            part = self._parts[claim.counter.name]
            part.cell.settle(claim.amount, 0, 1)
            part.amount -= claim.amount
            part.claims -= 1
            if not part.claims:
                del self._parts[claim.counter.name]


def standing(claim: Claim, counter: cells.Counter, level: Cell, now: Now) -> Standing:
    """How it stands, and when the claim would fit if it doesn't."""
    excess = level.used + level.reserved + claim.amount - claim.limit
    over = excess > 0 or claim.limit <= 0
    fitting = excess <= claim.grace and claim.limit > 0
    never = claim.limit <= 0 or claim.amount > claim.limit + claim.grace
    fits = None if fitting or never else counter.fits_after(excess - claim.grace, now)
    return Standing(claim.counter, claim.limit, level.used, level.reserved, over, counter.resets_at(now), fits)
