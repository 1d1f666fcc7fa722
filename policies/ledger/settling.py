"""What the shared ledger does off the answers' way: settles holds that have ended, and says that this gateway is still there.

An end is written until it is known to be; the server does nothing the second time. While the server can't be reached, ends wait here,
the oldest first, up to `MOST`; what is more is dropped and counted, and stays reserved until this gateway's lease ends. Counted as well is
what a server that was away for long has forgotten meanwhile, so that nobody knows whether it was settled.
One heartbeat renews the leases of all homes in which this gateway holds something, and looks whether the server is there, also while
nobody calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...call.clock import SYSTEM, Clock
from .ledger import Counter
from .server import Server, Step, packed

log = logging.getLogger("spangate.state")

MOST = 100_000
BATCH = 64
SURE = 240.0  # seconds after its first try in which the server is certain to remember a settled hold; ledger.lua: DONE
SELDOM = 10.0  # seconds between two lines about what is lost
AGAIN = 0.2  # seconds between two tries while the server can't be reached
TICK = 0.5  # seconds between two looks whether anything is due


Told = Callable[[Sequence[Counter]], None]
"""Hears on which counters a hold that is settled left room."""


@dataclass(slots=True)
class End:
    """A hold that ended: what the script is told, and when it was first told (None: not yet)."""

    home: str
    told: bytes
    counters: Sequence[Counter]
    tried: float | None = None


class Settling:
    """The tasks of one gateway. They begin with `start` or the first hold, and end with `close`."""

    def __init__(self, server: Server, instance: str, lease: float, told: Told, *, clock: Clock = SYSTEM, most: int = MOST) -> None:
        self._server = server
        self._lease = lease
        self._beat_told = packed((instance, round(lease * 1000)))
        self._told = told
        self._most = most
        self._now = clock.mono
        self._ends: deque[End] = deque()
        self._writing = 0
        self._homes: Tally[str] = Tally()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []
        self._silent_until = float("-inf")
        self.lost = 0

    @property
    def left(self) -> int:
        """Ends that are not known to be written."""
        return len(self._ends) + self._writing

    def start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._settle()), asyncio.create_task(self._beat())]

    def holding(self, home: str) -> None:
        """Something may be held there from now on, until its End is written."""
        self._homes[home] += 1
        self.start()

    def let_go(self, home: str) -> None:
        """One thing less is."""
        self._homes[home] -= 1
        if self._homes[home] <= 0:
            del self._homes[home]

    def put(self, end: End) -> None:
        if len(self._ends) >= self._most:
            self.let_go(self._ends.popleft().home)
            self._lose()
        self._ends.append(end)
        self._idle.clear()
        self._news.set()

    def _lose(self) -> None:
        self.lost += 1
        now = self._now()
        if now >= self._silent_until:
            self._silent_until = now + SELDOM
            log.warning("what calls used is lost to the shared counters, which were away for too long: %d calls by now", self.lost)

    async def drain(self, patience: float) -> int:
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            pass
        return self.left

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _settle(self) -> None:
        while True:
            await self._news.wait()
            batch = [self._ends.popleft() for _ in range(min(BATCH, len(self._ends)))]
            self._writing = len(batch)
            left = await self._written(batch) if batch else []
            self._writing = 0
            self._ends.extend(left)
            if not self._ends:
                self._news.clear()
                self._idle.set()
            elif left:
                await asyncio.sleep(AGAIN)

    async def _written(self, batch: Sequence[End]) -> list[End]:
        """Those that are not known to be."""
        now = self._now()
        done = await self._server.run_all([self._step(end, now) for end in batch])
        left = []
        for end, word in zip(batch, done, strict=True):
            if word == "lost":
                self._lose()
            if word:
                self.let_go(end.home)
                self._told(end.counters)
            else:
                end.tried = now if end.tried is None else end.tried
                left.append(end)
        return left

    def _step(self, end: End, now: float) -> Step:
        late = end.tried is not None and now - end.tried > SURE
        return end.home, ("settle", end.told, int(late))

    async def _beat(self) -> None:
        """At a third of the lease, so that two may be lost. A server that wasn't heard of for a tick is asked whether it is there."""
        every = self._lease / 3
        due = self._now() + every
        while True:
            await self._server.probe(min(TICK, every))
            await asyncio.sleep(min(TICK, every))
            if due <= self._now():
                done = await self._server.run_all([(home, ("beat", self._beat_told)) for home in self._homes])
                due = self._now() + (every if all(done) else 0)
