"""Segments of the spool → DuckDB: one thread that owns the database, and moves what was written every few seconds, or when it is asked.

A segment is deleted once all of it is committed. A call that was opened and not closed waits in the database; when the process that
opened it is gone, it becomes a row `interrupted`. While the database can't be had, the spool goes on and this thread tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Literal

import msgspec

from ...call.clock import SYSTEM, Clock
from ..alone import alone
from ..pace import Pace
from . import segments, spool_lines
from .prices import Prices
from .rows import Rows
from .segments import Segment
from .spool import SEGMENT, Spool
from .spool_lines import Closing, Opening
from .store import Displaced, Locked, Mark, Store, Trouble, Unfit

log = logging.getLogger("spangate.usage")

BATCH = 2000  # calls a transaction: what it costs of its own is shared by as many, and as many wait in memory
TURN = 4  # lines after which other threads may get theirs
GATHERED = 32  # calls whose rows become columns at once
PACE = 4.0  # seconds for which lines are gathered before they are moved: a transaction costs much, and a row in it little
SLICE, BREATH = 0.0002, 0.001  # seconds of work, and for others, while there is time
BEHIND = 2 * SEGMENT  # bytes that wait, above which there is none
AGAIN = 3.0  # seconds until a database that can't be had is tried again
OTHERS = 5.0  # seconds between two looks at what processes that are gone have left
KEEPING = 600.0  # seconds between two looks for rows that are too old
PATIENCE = 10.0  # seconds in which nothing was moved, after which a writer that was asked to end is left to itself
FUSE = 20  # rows in a row that DuckDB may refuse before the rows aren't to blame
_NEVER = ("", b"")

Phase = Literal["starting", "ready", "locked", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class UsageState:
    """`problem`: why the database doesn't take rows now. `holder`: the process that has it, if another does. `moved`: calls that became
    rows. `broken`: lines that were none or that DuckDB refused. `replayed`: what an earlier process left is in the database."""

    phase: Phase = "starting"
    problem: str = ""
    holder: int | None = None
    moved: int = 0
    interrupted: int = 0
    broken: int = 0
    replayed: bool = False


class _Ended(msgspec.Struct, frozen=True, gc=False):
    """A call whose row is made: up to where its segment is read with it, and its line, should the row be needed again."""

    upto: int
    id: str
    line: bytes


class UsageWriter:
    """`start`, `caught_up` at will, `aclose`."""

    def __init__(
        self,
        spool: Spool,
        store: Store,
        prices: Prices,
        *,
        retention: float = 90 * 86400.0,
        fsync: float = 1.0,
        patience: float = PATIENCE,
        clock: Clock = SYSTEM,
    ) -> None:
        self.store = store
        self._patience = patience
        self._spool = spool
        self._prices = prices
        self._retention = retention
        self._sync = fsync > 0
        self._step = min(fsync, PACE) if fsync > 0 else PACE
        self._clock = clock
        self._turns, self._short = Pace(SLICE, BREATH), Pace()
        self._thread: Thread | None = None
        self._news = Event()
        self._hurry = Event()
        self._stop = False
        self._pressed = True
        self._asked: list[Future[bool]] = []
        self._lock = Lock()
        self._opened: dict[str, tuple[str, bytes]] = {}
        self._progress: dict[str, int] = {}
        self._gone: list[str] = []
        self._sealed: dict[str, int] = {}
        self._carried: dict[str, tuple[str, bytes]] = {}
        self._is_open = False
        self._looked = -OTHERS
        self._kept = 0.0
        self._refused = 0
        self.state = UsageState()

    def start(self) -> None:
        """Begin with what an earlier process left."""
        self._spool.wake = self._news.set
        self._kept = self._clock.mono() - KEEPING
        self._thread = Thread(target=self._run, name="spangate.usage", daemon=True)
        self._thread.start()

    async def caught_up(self) -> bool:
        """Wait until every line written before now is in the database; False: the database can't be had now."""
        asked: Future[bool] = Future()
        with self._lock:
            if self._thread is None or self._stop:
                return False
            self._asked.append(asked)
        self._now()
        return await asyncio.wrap_future(asked)

    async def aclose(self) -> None:
        """Move what waits, and let go of the database. A disk that answers no more holds up nobody: what waits is for the next start."""
        if (thread := self._thread) is None:
            return
        with self._lock:
            self._stop = True
        self._now()
        moved = -1
        while thread.is_alive() and moved != self.state.moved:
            moved = self.state.moved
            await asyncio.to_thread(thread.join, self._patience)
        if thread.is_alive():
            log.error(
                "usage: %s answers no more; it is given up, and rows wait in %s for the next start", self.store.path, self._spool.folder
            )
        self._thread = None

    def _now(self) -> None:
        self._hurry.set()
        self._news.set()

    def _run(self) -> None:
        while True:
            self._hurry.clear()
            with self._lock:
                asked, self._asked = self._asked, []
                stopping = self._stop
            self._pressed = stopping or bool(asked) or self._spool.state.bytes > BEHIND
            done = self._try_round()
            for each in asked:
                if each.set_running_or_notify_cancel():  # else whoever asked has left
                    each.set_result(done)
            if stopping:
                break
            if done:
                self._news.wait(OTHERS if self._others() else KEEPING)
            self._news.clear()
            if done:
                self._gather()
            else:
                self._hurry.wait(AGAIN)
        self.store.close()
        self.state = replace(self.state, phase="stopped")

    def _gather(self) -> None:
        """Let lines come for a while, and ask the disk for certainty meanwhile."""
        for _ in range(round(PACE / self._step)):
            if self._hurry.wait(self._step):
                return
            if self._sync:
                self._spool.sync()

    def _rest(self) -> None:
        """After each few lines. While somebody waits, or more comes than is moved, others get shorter breaths."""
        (self._short if self._pressed or self._hurry.is_set() else self._turns).rest()

    def _others(self) -> bool:
        return len(segments.instances(self._spool.folder)) > 1

    def _try_round(self) -> bool:
        """Move everything; whether that went well. Whatever goes wrong costs this round, never the thread."""
        error = alone(self._round)
        if isinstance(error, Displaced):
            self._carried |= self._opened
            self._failed("failed", str(error))
            error = alone(self._round)
        self._spool.measure()
        if error is None:
            return True
        if isinstance(error, Locked):
            self._sealed.clear()  # whoever has it takes what is ours
            self._failed("locked", str(error), error.pid)
        elif isinstance(error, Trouble | OSError):
            self._failed("failed", str(error))
        else:
            log.error("usage: the writer failed; it tries again in %g seconds", AGAIN, exc_info=error)
            self._failed("failed", type(error).__name__)
        return False

    def _failed(self, phase: Phase, problem: str, holder: int | None = None) -> None:
        """Not now. What the handle would say from now on is not to be believed, so it is closed."""
        if (self.state.phase, self.state.problem) != (phase, problem):
            log.error("usage: %s: %s; rows wait in %s until it can be written", self.store.path, problem, self._spool.folder)
        self.store.close()
        self._is_open = False
        self.state = replace(self.state, phase=phase, problem=problem, holder=holder)

    def _round(self) -> None:
        self._sealed |= self._spool.seal(sync=self._sync)
        if self._is_open and self.store.worn:
            self.store.close()
            self._is_open = False
        if not self._is_open:
            self._open()
        self.store.look()
        for segment in self._whole():
            self._move(segment)
        self._miss()
        self._take_over()
        self._keep()
        if self.state.phase != "ready":
            if self.state.problem:
                log.info("usage: rows go to %s again", self.store.path)
            self.state = replace(self.state, phase="ready", problem="", holder=None, replayed=True)

    def _open(self) -> None:
        self.store.open()
        self._progress, self._opened = self.store.progress(), self.store.opened()
        self._gone = list(self._progress.keys() - {segment.name for segment in segments.found(self._spool.folder)})
        self._looked, self._is_open = -OTHERS, True
        carried = {id: call for id, call in self._carried.items() if id not in self._opened}
        if carried:  # under way when the database went: those lines are nowhere else
            self.store.move(Rows(self._prices), Mark("", 0, [(instance, id, line) for id, (instance, line) in carried.items()]))
            self._opened |= carried
        self._carried = {}

    def _miss(self) -> None:
        """Count what we sealed and did not move, and what lies in the spool no more."""
        for name in self._sealed.keys() - {segment.name for segment in segments.found(self._spool.folder)}:
            self._spool.missing(self._sealed.pop(name))

    def _whole(self) -> Sequence[Segment]:
        """Segments that nobody writes to any more."""
        alive: dict[str, bool] = {}
        folder, ours = self._spool.folder, self._spool.instance
        there = segments.found(folder)
        active = self._spool.active  # in this order: one that is begun meanwhile isn't among those found

        def whole(segment: Segment) -> bool:
            if segment.sealed or segment.instance == ours:
                return segment.name != active
            if segment.instance not in alive:
                alive[segment.instance] = segments.is_alive(folder, segment.instance)
            return not alive[segment.instance]

        return [segment for segment in there if whole(segment)]

    def _move(self, segment: Segment) -> None:
        """One segment into the database, and away."""
        data = segments.content(segment)
        if data is None and not segment.path.exists():
            return  # taken away meanwhile
        broken = 1 if data is None else self._move_lines(segment, data)
        self.store.look()  # before the only other copy goes
        self._sealed.pop(segment.name, None)
        if broken:
            log.error("usage: %s holds lines that are none (%d); it is kept as .bad", segment.path.name, broken)
            self.state = replace(self.state, broken=self.state.broken + broken)
            segments.set_aside(segment)
        else:
            segment.path.unlink(missing_ok=True)
        if segment.name in self._progress:
            self._gone.append(segment.name)

    def _move_lines(self, segment: Segment, data: bytes) -> int:
        """How many of its lines are broken, or hold what DuckDB refuses."""
        opened: dict[str, bytes] = {}
        closed: list[_Ended] = []
        rows = Rows(self._prices)
        done, broken = self._progress.get(segment.name, 0), 0
        for number, (end, line) in enumerate(spool_lines.lines(data)):
            if number % TURN == 0:
                self._rest()
            if id := spool_lines.opened_id(line):
                opened[id] = line
            elif (read := spool_lines.read(line)) is None:
                broken += bool(line)
            elif isinstance(read, Closing):
                opened.pop(read.id, None)
                if end > done:
                    rows.add(read)
                    closed.append(_Ended(end, read.id, line))
                    if len(rows.calls) == GATHERED:
                        rows.gather()
            if len(closed) == BATCH:
                broken += self._move_calls(segment, closed, rows)
                closed, rows = [], Rows(self._prices)
        if closed:
            broken += self._move_calls(segment, closed, rows)
        left = [(segment.instance, id, line) for id, line in opened.items() if self._opened.get(id, _NEVER)[1] != line]
        if left:
            self._commit(Rows(self._prices), segment, len(data), opened=left)
        return broken

    def _move_calls(self, segment: Segment, calls: Sequence[_Ended], rows: Rows) -> int:
        """One transaction; if DuckDB refuses it, half of it at a time, so that one bad row costs that row. How many were refused."""
        try:
            self._commit(rows, segment, calls[-1].upto, closed=[call.id for call in calls if call.id in self._opened])
        except Unfit as error:
            if len(calls) > 1:
                half = len(calls) // 2
                return sum(self._move_calls(segment, part, self._read_again(part)) for part in (calls[:half], calls[half:]))
            return self._refuse(calls[0].id, error)
        self._refused = 0
        self.state = replace(self.state, moved=self.state.moved + len(calls))
        return 0

    def _read_again(self, calls: Sequence[_Ended]) -> Rows:
        rows = Rows(self._prices)
        for number, call in enumerate(calls):
            if number % TURN == 0:
                self._rest()
            if isinstance(read := spool_lines.read(call.line), Closing):
                rows.add(read)
            if len(rows.calls) == GATHERED:
                rows.gather()
        return rows

    def _refuse(self, id: str, error: Unfit) -> int:
        self._refused += 1
        if self._refused >= FUSE:
            self._refused = 0
            raise Trouble(f"it refuses every row: {error}")
        log.error("usage: the row of %s is refused: %s", id, error)
        return 1

    def _commit(
        self, rows: Rows, segment: Segment, upto: int, *, opened: Sequence[tuple[str, str, bytes]] = (), closed: Sequence[str] = ()
    ) -> None:
        self.store.move(rows, Mark(segment.name, upto, opened, closed, self._gone))
        self._gone = []
        self._progress[segment.name] = upto
        for id in closed:
            del self._opened[id]
        for instance, id, line in opened:
            self._opened[id] = (instance, line)

    def _take_over(self) -> None:
        """What processes that are gone had under way was interrupted."""
        if (now := self._clock.mono()) - self._looked < OTHERS:
            return
        self._looked = now
        folder, ours = self._spool.folder, self._spool.instance
        waiting = {instance for instance, _ in self._opened.values()}
        gone = {each for each in segments.instances(folder) | waiting if each != ours and not segments.is_alive(folder, each)}
        gone -= {segment.instance for segment in segments.found(folder)}  # until all of it is moved
        ids = [id for id, (instance, _) in self._opened.items() if instance in gone]
        for at in range(0, len(ids), BATCH):
            self._interrupt(ids[at : at + BATCH])
        segments.bury(folder, gone)

    def _interrupt(self, ids: Sequence[str]) -> None:
        rows = Rows(self._prices)
        known = self.store.known(ids)
        for id in ids:
            read = spool_lines.read(self._opened[id][1])
            if isinstance(read, Opening) and id not in known:
                rows.add_interrupted(read)
        self.store.move(rows, Mark("", 0, closed=ids, gone=self._gone))
        self._gone = []
        for id in ids:
            del self._opened[id]
        self.state = replace(self.state, interrupted=self.state.interrupted + len(rows))

    def _keep(self) -> None:
        """Delete rows that are too old; a few thousand a round."""
        now = self._clock.mono()
        if now - self._kept < KEEPING:
            return
        before = self._clock.wall() // 1000 - int(self._retention * 1e6)
        if self.store.forget(before):
            self._news.set()  # there may be more
        else:
            self._kept = now
