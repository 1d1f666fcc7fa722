"""Ledgers to test with: each kind behind one face, `Backend`, and words for claims.

    async with backend.ledger() as ledger:
        answer = await ledger.hold("a").reserve([claim("month", 10, limit=100)])

`backend.later(seconds)` lets time pass: in memory by its clock, on a server by waiting until the server's has.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from spangate.call.clock import Clock
from spangate.policies.ledger.ledger import NANO, Answer, Claim, Counter, Ledger, Standing, StateUnavailable, nano
from spangate.policies.ledger.memory import MemoryHold, MemoryLedger
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.policies.windows import SECOND, InFlight, Window, window

from midday import MIDDAY
from valkey_server import Valkey

START = 1_790_000_000 * SECOND  # a Monday in September 2026
MONTH = f"month {MIDDAY}"  # none ends soon, at START or on a server's own clock


class Hands:
    """A clock that is moved by hand: `pass_` moves both its faces, `wall` can be set apart."""

    def __init__(self, wall: int = START) -> None:
        self.wall = wall
        self.mono = 1000.0
        self.clock = Clock(lambda: self.wall, lambda: self.mono)

    def pass_(self, seconds: float) -> None:
        self.wall += round(seconds * SECOND)
        self.mono += seconds


class Backend(Protocol):
    name: str

    def ledger(self, **options: Any) -> AbstractAsyncContextManager[Ledger]: ...

    async def later(self, seconds: float) -> None: ...


class InMemory:
    name = "memory"

    def __init__(self) -> None:
        self.hands = Hands()

    @asynccontextmanager
    async def ledger(self, **options: Any) -> AsyncIterator[Ledger]:
        yield MemoryLedger(clock=self.hands.clock, **options)

    async def later(self, seconds: float) -> None:
        self.hands.pass_(seconds)


class OnServer:
    name = "valkey"

    def __init__(self, server: Valkey) -> None:
        self.server = server

    @asynccontextmanager
    async def ledger(self, **options: Any) -> AsyncIterator[ValkeyLedger]:
        ledger = ValkeyLedger(self.server.url, **options)
        try:
            yield ledger
        finally:
            await ledger.close()

    async def later(self, seconds: float) -> None:
        due = self._time() + seconds

        async def passed() -> bool:
            return self._time() >= due

        await until(passed, seconds + 5)

    def _time(self) -> float:
        whole, micro = self.server.say("TIME")
        return int(whole) + int(micro) / 10**6


class Gone(MemoryLedger):
    """Counters that can't be reached while `away`; `asked`: how often somebody reserved."""

    away = False
    asked = 0

    def hold(self, id: str) -> MemoryHold:
        return _GoneHold(self, id)


class _GoneHold(MemoryHold):
    async def reserve(self, claims: Sequence[Claim], spare: int = 0) -> Answer:
        ledger = self._ledger
        assert isinstance(ledger, Gone)
        ledger.asked += 1
        if ledger.away:
            raise StateUnavailable("away")
        return await super().reserve(claims, spare)


def counter(name: str, scope: str = "search", when: str | Window = "total", home: str = "acme") -> Counter:
    return Counter(home, name, scope, window(when) if isinstance(when, str) else when)


def claim(
    name: str, amount: int, limit: int, when: str | Window = "total", *, scope: str = "search", home: str = "acme", **more: Any
) -> Claim:
    """In whole units."""
    grace = nano(more.pop("grace", 0))
    return Claim(counter(name, scope, when, home), nano(amount), nano(limit), grace, **more)


def fresh() -> str:
    """An id for a hold, or a name that no other test has."""
    return uuid.uuid4().hex


async def standing(ledger: Ledger, asked: Claim) -> Standing:
    [found] = await ledger.read([asked])
    return found


async def figures(ledger: Ledger, asked: Claim) -> tuple[int, int]:
    """Used and reserved, in whole units."""
    found = await standing(ledger, asked)
    return found.used // NANO, found.reserved // NANO


async def reserved(ledger: Ledger, *claims: Claim) -> Any:
    """A hold that was admitted."""
    hold = ledger.hold(fresh())
    answer = await hold.reserve(claims)
    assert answer.admitted
    return hold


async def used(ledger: Ledger, asked: Claim) -> None:
    """Count it at once, as it was claimed."""
    (await reserved(ledger, asked)).settle({})
    await settled(ledger)


async def settled(ledger: Ledger) -> None:
    """All that was settled is counted."""
    assert await ledger.drain(5) == 0


async def until(true: Callable[[], Awaitable[bool]], patience: float = 5) -> None:
    """Ask, now and then, until it is."""
    async with asyncio.timeout(patience):
        while True:
            if await true():
                return
            await asyncio.sleep(0.005)


def names(standings: Sequence[Standing]) -> list[str]:
    return [each.counter.name for each in standings]


def refusers(answer: Answer) -> list[str]:
    return names(answer.refused)


NAMES = ("organisation", "team", "warned", "shadow", "flying")
FULL = {"warned": "count", "shadow": "skip"}


def told(run: str, wanted: Mapping[str, Any], limits: Mapping[str, int]) -> list[Claim]:
    """Claims on the counters of a story, by their short names."""
    return [
        claim(f"{name}-{run}", amount, limits[name], InFlight() if name == "flying" else MONTH, full=FULL.get(name, "refuse"))
        for name, amount in wanted.items()
    ]


class Model:
    """What the ledger should say: used by counter, and held by hold and counter."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.limits = limits
        self.used = dict.fromkeys(NAMES, 0)
        self.holds: dict[Any, dict[str, int]] = {}

    def reserved(self, name: str) -> int:
        return sum(hold.get(name, 0) for hold in self.holds.values())

    def takes(self, hold: Any, wanted: dict[str, int]) -> list[str]:
        """Who refuses; if nobody does, it is held."""
        over = [
            name
            for name, amount in wanted.items()
            if self.limits[name] == 0 or self.used[name] + self.reserved(name) + amount > self.limits[name]
        ]
        refused = [name for name in over if name not in FULL]
        if not refused:
            held = self.holds.setdefault(hold, {})
            for name, amount in wanted.items():
                if name not in over or FULL.get(name) != "skip":
                    held[name] = held.get(name, 0) + amount
        return refused

    def ends(self, hold: Any, actual: dict[str, int] | None) -> None:
        for name, held in self.holds.pop(hold, {}).items():
            if name != "flying" and actual is not None:
                self.used[name] += actual.get(name, held)


class Tale:
    """A story of holds as it goes on, told to ledgers and to their model: both give the same answers. `live`: what is held, by what the
    story calls it."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self.run = fresh()
        self.limits = limits
        self.model = Model({name: nano(limit) for name, limit in limits.items()})
        self.live: dict[Any, Any] = {}

    async def goes_on(self, ledger: Ledger, step: str, called: Any, wanted: Mapping[str, Any]) -> bool:
        """Whether there was anything to do: what is held already is not reserved, and what is not held neither extended nor ended."""
        if (step == "reserve") is (called in self.live):
            return False
        amounts = {name: nano(amount) for name, amount in wanted.items()}
        if step in ("reserve", "extend"):
            hold = self.live.get(called) or ledger.hold(fresh())
            answer = await (hold.reserve if step == "reserve" else hold.extend)(told(self.run, wanted, self.limits))
            assert refusers(answer) == [f"{name}-{self.run}" for name in self.model.takes(called, amounts)]
            if answer.admitted:
                self.live[called] = hold
            return True
        hold = self.live.pop(called)
        self.model.ends(called, amounts if step == "settle" else None)
        hold.settle({f"{name}-{self.run}": amount for name, amount in amounts.items()}) if step == "settle" else hold.release()
        await settled(ledger)
        return True

    async def figures(self, ledger: Ledger) -> list[tuple[int, int]]:
        """Used and reserved of each counter, as the ledger has them."""
        found = await ledger.read(told(self.run, dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 1)))
        return [(each.used, each.reserved) for each in found]

    async def agrees(self, ledger: Ledger) -> None:
        assert await self.figures(ledger) == [(self.model.used[name], self.model.reserved(name)) for name in NAMES]
