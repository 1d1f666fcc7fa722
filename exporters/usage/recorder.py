"""The usage of a gateway put together: a Recorder that writes to the spool, the writer that moves it, and SQL over what it moved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...call.clock import SYSTEM, Clock
from .prices import Prices
from .settings import Price, Usage
from .spool import Spool, SpoolState
from .sql import Sql
from .store import Store
from .writer import UsageState, UsageWriter


class SpoolRecorder:
    """`opened` before a call's first attempt, `record` before its last byte goes out. `start` before the first call, `aclose` after
    the last. What it does on the loop is two writes to a file; nothing of it fails a call."""

    def __init__(self, settings: Usage, prices: Sequence[Price] = (), *, folder: Path | None = None, clock: Clock = SYSTEM) -> None:
        path = (folder or Path()) / settings.path
        self.path = path
        self.spool = Spool(path.with_name(f"{path.name}.spool"), most=settings.max_spool, clock=clock)
        self.writer = UsageWriter(self.spool, Store(path), Prices(prices), retention=settings.retention, fsync=settings.fsync, clock=clock)
        self.sql = Sql(self.writer)
        self.opened = self.spool.opened  # every call comes by here, so nothing stands between
        self.record = self.spool.closed

    @property
    def spooling(self) -> SpoolState:
        return self.spool.state

    @property
    def state(self) -> UsageState:
        return self.writer.state

    @property
    def problem(self) -> str:
        """Why rows are being lost or wait just now; empty: they don't."""
        lost, database = self.spool.state, self.writer.state
        if lost.problem:
            return f"usage rows are lost: {lost.problem}"
        return f"usage rows wait in {self.spool.folder.name}: {database.problem}" if database.problem else ""

    async def start(self) -> None:
        """Begin to move what is there, in a thread."""
        self.writer.start()

    def flush(self) -> None:
        """Nothing waits here: each line was written at once."""

    async def aclose(self) -> None:
        """Everything into the database, if it can be had; what is left is replayed at the next start."""
        await self.sql.aclose()
        await self.writer.aclose()
        self.spool.close()
