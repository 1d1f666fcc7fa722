"""The ledger that several gateways share, on a Valkey or Redis server or cluster.

A reservation is one round trip, whatever the number of its claims: ledger.lua does it whole or not at all, by the server's clock. Ends
are written by a task of the ledger (settling.py). The calendar's windows are worked out here, as the server knows no timezones: with each
claim go the window that it is now by what is known of the server's clock, and the one after; if it is neither, the server says what time
it is.

A hold belongs to its gateway's lease. When that ends, because the gateway was killed or cut off, whoever next touches the home settles its
holds at what was held; should the gateway come back, its own settling puts that right.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from ...call.clock import SYSTEM, Clock
from ..windows import SECOND, Calendar, InFlight, Rolling, Span, Window
from .ledger import Answer, Claim, Counter, Spent, Standing, StateUnavailable, Watch, check
from .server import TIMEOUT, Server, packed, plain
from .settling import End, Settling

LEASE = 15.0  # seconds
ROW = 7  # what the script says of each claim: limit, used, reserved, over, resets, fits, place
FULL = {"refuse": "r", "lower": "l", "count": "c", "skip": "s"}
HEAD = 3  # what it says before that: a word, its time, steps left out
SKIPPED, REFUSED = -1, -2  # places of claims that are not held
WHOLE = ("leases", "holds:", "ping")  # keys of a home without which none of its counters can be had
LAST = -1  # a limit: whatever the counter was last asked with
KEPT, LATE = 34_560_000, 7200  # seconds: what was told of a window without an end, or after its end; ledger.lua has the same for counters
FORGOTTEN = 1000  # windows that are remembered


class ValkeyLedger:
    """Counters on a server. `lost` counts calls whose ends were given up, or came so late that nothing was left to settle."""

    def __init__(self, url: str, *, cluster: bool = False, timeout: float = TIMEOUT, lease: float = LEASE, clock: Clock = SYSTEM) -> None:
        """
        Raises:
            ValueError: the URL is none of a server; the message doesn't repeat it.
        """
        self.instance = uuid.uuid4().hex
        self.watch: Watch | None = None
        self.lease = lease
        self._clock = clock
        self._ahead = 0  # nanoseconds that the server's clock is ahead of ours
        self._server = Server(url, cluster=cluster, timeout=timeout, clock=clock)
        self._windows: dict[str, tuple[Span, Span]] = {}
        self.settling = Settling(self._server, self.instance, lease, self._left_room, clock=clock)

    @property
    def problem(self) -> str:
        whole = next((key for key in self._server.foreign if key.partition("}:")[2].startswith(WHOLE)), None)
        return self._server.problem or ("a key that all counters need isn't ours" if whole else "")

    @property
    def foreign(self) -> Mapping[str, str]:
        """Keys in which somebody else put something, and its type: rules whose counters they are do without, as if there were no server."""
        return self._server.foreign

    @property
    def lost(self) -> int:
        return self.settling.lost

    def hold(self, id: str) -> ValkeyHold:
        return ValkeyHold(self, id)

    async def read(self, claims: Sequence[Claim]) -> tuple[Standing, ...]:
        found: dict[int, Standing] = {}
        for home in dict.fromkeys(claim.counter.home for claim in claims):
            here = [number for number, claim in enumerate(claims) if claim.counter.home == home]
            reply = await self.ask(home, "read", (), [claims[number] for number in here])
            found |= zip(here, reply.standings, strict=True)
        return tuple(found[number] for number in range(len(claims)))

    async def every(self, home: str, most: int = 10_000) -> tuple[Standing, ...]:
        found: list[Standing] = []
        counters = list(dict.fromkeys(_counter(home, key) for key in await self._server.counters(home, most)))
        for first in range(0, len(counters), 100):
            claims = [Claim(counter, 0, LAST) for counter in counters[first : first + 100]]
            standings = (await self.ask(home, "read", (), claims)).standings
            found += [each for each in standings if each.used or each.reserved]
        return tuple(found[:most])

    async def first(self, counter: Counter, level: Decimal, until: int | None) -> bool:
        seconds = KEPT if until is None else max(1, _seconds(until - self.now()))
        key = _suffix(counter)
        if isinstance(counter.window, Calendar):
            key, seconds = f"{key}|{_seconds(until)}", seconds + LATE
        said = await self._server.run(counter.home, "told", packed(((key, str(level), seconds),)))
        return bool(said[2])

    def start(self) -> None:
        self.settling.start()

    async def drain(self, patience: float) -> int:
        return await self.settling.drain(patience)

    async def close(self) -> None:
        await self.settling.close()
        await self._server.close()

    # ---- what holds do

    async def ask(self, home: str, step: str, told: tuple[Any, ...], claims: Sequence[Claim]) -> Reply:
        """Run a step about claims; once more if the server's clock is in another window than ours.

        Raises:
            StateUnavailable:
        """
        for _ in range(3):
            said = await self._server.run(home, step, packed((told, [self._told(claim) for claim in claims])))
            self._ahead = int(said[1]) * 1000 - self._clock.wall()
            if said[0] == "done":
                raise StateUnavailable("the hold was given up before it was had")
            if said[0] != "window":
                return Reply(said, claims)
        raise StateUnavailable("the server's clock stands in no window")

    def now(self) -> int:
        """The server's time, as far as is known."""
        return self._clock.wall() + self._ahead

    def windows(self, calendar: Calendar) -> tuple[Span, Span]:
        """The one of now, and the next."""
        now = self.now()
        found = self._windows.get(calendar.text)
        if found is None or not found[0].holds(now):
            span = calendar.span(now)
            found = span, span if span.end is None else calendar.span(span.end)
            if len(self._windows) >= FORGOTTEN:
                self._windows.clear()
            self._windows[calendar.text] = found
        return found

    def _told(self, claim: Claim) -> tuple[Any, ...]:
        window, limit = claim.counter.window, claim.limit
        edges: tuple[int, int, int] = (0, 0, 0)
        if isinstance(window, Calendar):
            this, following = self.windows(window)
            edges = _seconds(this.start), _seconds(this.end), _seconds(following.end)
        elif isinstance(window, Rolling):
            edges = window.slot // 1000, 0, 0
        limits = ("", "") if limit == LAST else (str(limit), str(limit + claim.grace))
        return _suffix(claim.counter), _kind(window), *edges, str(claim.amount), *limits, FULL[claim.full], str(claim.step)

    def _left_room(self, counters: Sequence[Counter]) -> None:
        if self.watch is not None:
            self.watch(counters)


class Reply:
    """What the script said of some claims: how each stands, and where it is held."""

    def __init__(self, said: Sequence[Any], claims: Sequence[Claim]) -> None:
        self.held = said[0] == "held"
        self.at = int(said[1]) * 1000
        self.left_out = int(said[2])
        rows = [said[first : first + ROW] for first in range(HEAD, len(said), ROW)]
        self.standings = tuple(_standing(claim, row) for claim, row in zip(claims, rows, strict=True))
        self.places = [int(row[-1]) for row in rows]

    @property
    def answer(self) -> Answer:
        refused = [each for each, place in zip(self.standings, self.places, strict=True) if place == REFUSED]
        return Answer(self.standings, tuple(refused), self.left_out, any(each.over for each in self.standings))


class Part:
    """What a hold has of one counter, and where: a calendar's window by its start (seconds), a rolling one's slot by its number."""

    __slots__ = ("amount", "at", "counter", "edge", "place")

    def __init__(self, counter: Counter, amount: int, place: int, edge: int, at: int) -> None:
        self.counter = counter
        self.amount = amount
        self.place = place
        self.edge = edge
        self.at = at

    def told(self, actual: int) -> tuple[Any, ...]:
        """To a server that has forgotten the hold."""
        suffix, kind = _suffix(self.counter), _kind(self.counter.window)
        return suffix, kind, f"{suffix}|{self.place}" if kind == "f" else suffix, self.place, str(actual), self.edge


class ValkeyHold:
    """A hold on a server. `unknown`: it was asked for and no answer came, so that it may be held."""

    __slots__ = ("_home", "_ledger", "_parts", "_seq", "_state", "id")

    def __init__(self, ledger: ValkeyLedger, id: str) -> None:
        self.id = id
        self._ledger = ledger
        self._home = ""
        self._parts: dict[str, Part] = {}
        self._seq = 0
        self._state: Literal["new", "unknown", "held", "settled"] = "new"

    @property
    def held(self) -> tuple[Spent, ...]:
        parts = self._parts.values()
        return tuple(Spent(part.counter, part.at, part.amount) for part in parts if not isinstance(part.counter.window, InFlight))

    async def reserve(self, claims: Sequence[Claim], spare: int = 0) -> Answer:
        if self._state != "new":
            raise ValueError(f"the hold {self.id} is {self._state} already")
        check(claims)
        if not claims:
            self._state = "held"
            return Answer(())
        self._home = claims[0].counter.home
        self._ledger.settling.holding(self._home)
        self._state = "unknown"
        reply = await self._asked(claims, spare)
        if self._state == "unknown":
            self._state = "held" if reply.held else "new"
            if not reply.held:
                self._ledger.settling.let_go(self._home)
        return reply.answer

    async def extend(self, claims: Sequence[Claim]) -> Answer:
        if self._state != "held":
            raise ValueError(f"the hold {self.id} isn't held")
        check(claims, *(part.counter for part in self._parts.values()))
        if not claims:
            return Answer(())
        if not self._home:
            self._home = claims[0].counter.home
            self._ledger.settling.holding(self._home)
        return (await self._asked(claims)).answer

    def settle(self, actual: Mapping[str, int]) -> None:
        parts = self._parts
        told = {_suffix(parts[name].counter): str(used) for name, used in actual.items() if name in parts}
        self._end("", told, [part.told(actual.get(name, part.amount)) for name, part in parts.items()])

    def release(self) -> None:
        self._end("0", {}, [])

    async def _asked(self, claims: Sequence[Claim], spare: int = 0) -> Reply:
        self._seq += 1
        ledger = self._ledger
        try:
            told = ledger.instance, round(ledger.lease * 1000), self.id, self._seq, spare
            reply = await ledger.ask(self._home, "reserve", told, claims)
        except (StateUnavailable, asyncio.CancelledError):
            # It may be held all the same. Where, and how much, is only asked of us should the server have forgotten it.
            new = [claim for claim in claims if claim.counter.name not in self._parts]
            self._keep(new, [_place(ledger, claim) for claim in new], ledger.now())
            raise
        if reply.held:
            self._keep(claims, reply.places, reply.at, reply.left_out)
        return reply

    def _keep(self, claims: Sequence[Claim], places: Sequence[int], at: int, left_out: int = 0) -> None:
        for claim, place in zip(claims, places, strict=True):
            counter = claim.counter
            part = self._parts.get(counter.name)
            if place == SKIPPED:
                continue
            amount = claim.without(left_out)
            if part is not None:
                part.amount += amount
            else:
                edge = _edge(self._ledger, counter.window, place)
                self._parts[counter.name] = Part(counter, amount, place, edge, at)

    def _end(self, everything: str, actual: Mapping[str, str], parts: Sequence[tuple[Any, ...]]) -> None:
        state, self._state = self._state, "settled"
        if self._home and state in ("unknown", "held"):
            ledger = self._ledger
            told = packed(((ledger.instance, self.id, everything, actual), parts))
            ledger.settling.put(End(self._home, told, [part.counter for part in self._parts.values()]))


def _suffix(counter: Counter) -> str:
    return "|".join(plain(part) for part in (counter.name, counter.scope, counter.window.text))


def _counter(home: str, key: str) -> Counter:
    return Counter.of("|".join((plain(home), *key.split("|")[:3])))


def _kind(window: Window) -> str:
    return "f" if isinstance(window, Calendar) else "r" if isinstance(window, Rolling) else "m"


def _seconds(edge: int | None) -> int:
    return 0 if edge is None else edge // SECOND


def _place(ledger: ValkeyLedger, claim: Claim) -> int:
    """Where it is probably held, should no answer come."""
    window = claim.counter.window
    if isinstance(window, Calendar):
        return _seconds(ledger.windows(window)[0].start)
    return ledger.now() // window.slot if isinstance(window, Rolling) else 0


def _edge(ledger: ValkeyLedger, window: Window, place: int) -> int:
    """The end of the calendar's window (seconds), or the width of a slot (microseconds)."""
    if isinstance(window, Calendar):
        this, following = ledger.windows(window)
        span = next((span for span in (this, following) if span.start == place * SECOND), None) or window.span(place * SECOND)
        return _seconds(span.end)
    return window.slot // 1000 if isinstance(window, Rolling) else 0


def _standing(claim: Claim, row: Sequence[Any]) -> Standing:
    limit = int(row[0]) if claim.limit == LAST else claim.limit
    resets, fits = int(row[4]), int(row[5])
    return Standing(
        claim.counter,
        limit,
        int(row[1]),
        int(row[2]),
        over=row[3] == 1,
        resets_at=None if resets < 0 else resets * 1000,
        fits_after=None if fits < 0 else fits / 10**6,
    )
