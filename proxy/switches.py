"""Kill switches at work: what is stopped just now, looked for again several times a second, in the file and where gateways share a state
there too.

What can't be read changes nothing: what was stopped stays so, and `problem` says why. The file is looked at by a thread of its own, for
a file system that hangs, or a name server that does, must not keep calls waiting or a switch from being seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..call.clock import SYSTEM, Clock
from ..policies.ledger.ledger import StateUnavailable
from . import stops_file
from .mistakes import ConfigMistakes
from .shared_stops import SharedStops
from .stopped import Stopped
from .stops_file import Turns, merged

EVERY = 0.4  # seconds between two looks
PATIENCE = 1.0  # seconds for the last look, at the end

Read = TypeVar("Read")

log = logging.getLogger("spangate.proxy")


class Switches:
    """`now` is what is stopped. `start`, then `aclose`. Without a `path` nothing ever is."""

    def __init__(self, path: Path | None = None, shared: SharedStops | None = None, *, clock: Clock = SYSTEM, every: float = EVERY) -> None:
        """
        Raises:
            ConfigMistakes: the file can't be read: nobody would know what is stopped.
        """
        self.now = Stopped({})
        self._path = path
        self._shared = shared
        self._clock = clock
        self._every = every
        self._content = b""
        self._missed = False
        self._file: Turns = {}
        self._turns: Turns = {}
        self._problems: dict[str, str] = {}
        self._one = asyncio.Lock()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "spangate.switches")
        if path is not None:
            self._content = stops_file.content(path)
            self._file = stops_file.parse(self._content, str(path))
            self._take(self._file)

    @property
    def problem(self) -> str:
        """Why a switch may not be known here, or not to other gateways; empty: all is well."""
        return "; ".join(self._problems.values())

    async def start(self) -> None:
        """Look, and go on looking."""
        if self._path is not None:
            await self.look()
            self._task = asyncio.create_task(self._look_on(), name="spangate.switches")
            self._task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Stop looking. A second time does nothing."""
        self._ending.set()
        if self._task is not None:
            _, hangs = await asyncio.wait([self._task], timeout=PATIENCE)
            if hangs:  # at the file system, or a server: neither holds up a drain
                self._task.cancel()
                await asyncio.wait(hangs)
        self._thread.shutdown(wait=False)
        if self._shared is not None:
            await self._shared.close()

    async def look(self) -> None:
        """See what is stopped now, and take it into use."""
        if self._path is None or self._ending.is_set():
            return
        async with self._one:
            await self._look_at_file(self._path)
            if self._shared is not None:
                await self._look_at_state(self._shared)

    async def _look_on(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._every)
            await self.look()

    async def _look_at_file(self, path: Path) -> None:
        try:
            found = await self._aside(partial(self._changed, path))
        except ConfigMistakes as error:
            self._tell("file", str(error.mistakes[0]).replace(f"{path.parent}/", ""))
            return
        self._tell("file", "")
        if found is not None:
            self._content, self._file = found
            self._take(self._file if self._shared is None else merged(self._turns, self._file))

    def _changed(self, path: Path) -> tuple[bytes, Turns] | None:
        """What the file holds and says, if that is something else than before. An editor may move a file away before it writes the new
        one: what is gone counts when it is the next time too."""
        found = stops_file.content(path)
        self._missed = not found and found != self._content and not self._missed
        return None if found == self._content or self._missed else (found, stops_file.parse(found, str(path)))

    async def _look_at_state(self, shared: SharedStops) -> None:
        now = datetime.fromtimestamp(self._clock.wall() / 1e9, UTC)
        mine = stops_file.remembered(self._turns, now)
        try:
            turns = stops_file.remembered(merged(mine, await shared.exchange(mine, now)), now)
        except StateUnavailable as error:
            self._tell("state", f"other gateways can't be told or asked: {error.detail or error.message}")
            return
        self._tell("state", "")
        if turns != self._turns:
            self._take(turns)
        if self._path is not None and any(stops_file.newer(turn, self._file.get(switch)) for switch, turn in turns.items()):
            try:
                self._file = await self._aside(partial(stops_file.keep, self._path, turns, now))
                self._tell("kept", "")
            except (OSError, ConfigMistakes) as error:
                why = error.strerror if isinstance(error, OSError) else "it can't be read"
                self._tell("kept", f"{self._path.name} can't be written, so a restart forgets what others stopped: {why}")

    def _take(self, turns: Turns) -> None:
        before, self._turns, self.now = self.now, turns, Stopped(turns)
        for switch in self.now.since.keys() - before.since.keys():
            log.warning("stopped: %s", switch)
        for switch in before.since.keys() - self.now.since.keys():
            log.warning("resumed: %s", switch)

    def _tell(self, about: str, problem: str) -> None:
        """Once while it stays the same."""
        if problem and self._problems.get(about) != problem:
            log.warning("kill switches: %s", problem)
        if problem:
            self._problems[about] = problem
        else:
            self._problems.pop(about, None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._problems["looking"] = "no longer looked for: restart the gateway"
            log.critical("kill switches are no longer looked for", exc_info=error)

    async def _aside(self, reading: Callable[[], Read]) -> Read:
        return await asyncio.get_running_loop().run_in_executor(self._thread, reading)
