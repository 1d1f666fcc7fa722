"""Plain functions and generators, run in threads, so that the loop goes on meanwhile.

The threads are our own. Those of asyncio are few and everybody's: a function that never ends would keep one for ever, and the program from
ending. Ours are daemons, at most `MOST`; what finds none free waits for one. One whose function nobody waits for any more is not counted
among them, up to `MOST_LEFT`. What is run from inside a thread, as by a tool that runs an agent, finds its threads in the next pool: nobody
waits for a place that is kept by whoever waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from types import GeneratorType
from typing import Any

logger = logging.getLogger(__name__)
MOST = 64
MOST_LEFT = 4 * MOST
DEPTH = 16  # functions that wait for one another
IDLE = 10.0  # seconds after which a thread that nobody needs ends
_END = object()


class Job:
    """What a thread is to do; it must not raise. `asked` and `began`: when, in seconds of the monotonic clock."""

    __slots__ = ("asked", "began", "is_left", "is_over", "work")

    def __init__(self, work: Callable[[], None]) -> None:
        self.work: Callable[[], None] | None = work
        self.asked = time.monotonic()
        self.began: float | None = None
        self.is_left = self.is_over = False


class Threads:
    """Runs jobs, each in a thread, in the order in which they came."""

    def __init__(self, most: int = MOST, idle: float = IDLE, most_left: int = MOST_LEFT) -> None:
        self._most, self._idle, self._most_left = most, idle, most_left
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a child process there are none of its parent's threads."""
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._free = self._waiting = self._left = 0

    def run(self, work: Callable[[], None]) -> Job:
        """`work` must not raise.

        Raises:
            RuntimeError: there is no thread, and the system gives none.
        """
        job = Job(work)
        with self._lock:
            self._waiting += 1
            try:
                self._start_if_short()
            except RuntimeError:
                if not self._threads:
                    self._waiting -= 1
                    raise
            self._jobs.put(job)
        return job

    def leave(self, job: Job) -> None:
        """Nobody waits for it any more. If it has not begun, it never does; if it goes on, its thread no longer takes another's place."""
        with self._lock:
            if job.is_over or job.is_left:
                return
            if job.began is None:
                job.work = None
                return
            if self._left >= self._most_left:
                return
            job.is_left = True
            self._left += 1
            self._threads -= 1
            if self._left % self._most == 0:
                logger.warning("%d threads run functions that nobody waits for any more", self._left)
            with suppress(RuntimeError):  # who waits goes on waiting for another
                self._start_if_short()

    def _start_if_short(self) -> None:
        if self._waiting > self._free and self._threads < self._most:
            self._start()
            self._threads += 1
            self._free += 1

    def _start(self) -> None:
        threading.Thread(target=self._work, name="spangate-tool", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._idle)
            except Empty:
                with self._lock:
                    if self._waiting:
                        continue
                    self._free -= 1
                    self._threads -= 1
                return
            with self._lock:
                self._free -= 1
                self._waiting -= 1
                work, job.work = job.work, None
                job.began = time.monotonic()
            if work is not None:
                work()
            with self._lock:
                job.is_over = True
                if job.is_left:
                    self._left -= 1
                    if self._threads >= self._most:
                        return
                    self._threads += 1
                self._free += 1
            del job, work


_pools = [Threads() for _ in range(DEPTH)]
_depth: ContextVar[int] = ContextVar("spangate-tool-depth", default=0)
if hasattr(os, "register_at_fork"):
    for _each in _pools:
        os.register_at_fork(after_in_child=_each.forget)


class Clock:
    """The time that one run of a tool may take. It stands still while the tool waits for a thread, which it does no longer than `limit`."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._ends = time.monotonic() + limit
        self._jobs: list[Job] = []

    def queues(self, job: Job) -> None:
        self._jobs.append(job)

    def ended(self, job: Job) -> None:
        self._jobs.remove(job)
        self._ends += (time.monotonic() if job.began is None else job.began) - job.asked

    @property
    def is_queueing(self) -> bool:
        return any(job.began is None for job in self._jobs)

    def left(self) -> float:
        """Seconds; none once its time is up, or its patience."""
        now = time.monotonic()
        left = self._ends + sum((job.began or now) - job.asked for job in self._jobs) - now
        waits = [now - job.asked for job in self._jobs if job.began is None]
        if waits:
            return 0.0 if max(waits) >= self.limit else max(0.01, left)
        return left


clock_now: ContextVar[Clock | None] = ContextVar("spangate-tool-clock", default=None)
"""That of the tool which runs."""


class _Waiting:
    """One who waits on a loop for what a thread does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Any] = self._loop.create_future()

    def answer(self, function: Callable[..., Any], *args: Any) -> None:
        """Called in the thread."""
        if self.done.cancelled():
            return
        value, error = None, None
        try:
            value = function(*args)
        except (StopIteration, GeneratorExit) as stop:
            # No future takes the one, no coroutine the other; nobody would ever be told.
            error = RuntimeError(f"a plain function raised {type(stop).__name__}")
            error.__cause__ = stop
        except BaseException as raised:  # noqa: BLE001 - it is raised again, where it is waited for
            error = raised  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result(value)


class _Place:
    """A job in its pool, and on the clock of the tool that wants it, until it is left."""

    def __init__(self, work: Callable[[], None]) -> None:
        depth, context = _depth.get(), copy_context()
        if depth >= DEPTH:
            raise RuntimeError(f"{DEPTH} plain functions wait for one another; no further one is run")
        context.run(_depth.set, depth + 1)
        self._pool, self._clock = _pools[depth], clock_now.get()
        context.run(clock_now.set, None)  # what it runs in its turn has its own
        self._job = self._pool.run(lambda: context.run(work))
        if self._clock is not None:
            self._clock.queues(self._job)

    def ends(self, *, is_left: bool) -> None:
        if self._clock is not None:
            self._clock.ended(self._job)
        if is_left:
            self._pool.leave(self._job)


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result. Whoever stops waiting does not stop the thread: nothing in Python can.

    Raises:
        RuntimeError: it raised StopIteration or GeneratorExit, or the system gives no thread.
    """
    waiting = _Waiting()
    place = _Place(lambda: waiting.answer(lambda: function(*args, **kwargs)))
    try:
        return await waiting.done
    finally:
        place.ends(is_left=waiting.done.cancelled())


async def iterated_in_thread(generator: GeneratorType[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """A plain generator's values. All of it runs in one thread, its closing too; nobody waits for that.

    Raises:
        RuntimeError: the system gives no thread.
    """
    turns: SimpleQueue[_Waiting | None] = SimpleQueue()

    def serve() -> None:
        while (turn := turns.get()) is not None:
            turn.answer(next, generator, _END)
        try:
            generator.close()
        except BaseException as error:  # noqa: BLE001 - nobody waits for it
            logger.warning("%s failed to close: %s", generator.__name__, type(error).__name__)

    place, is_left = _Place(serve), True
    try:
        while True:
            turn = _Waiting()
            turns.put(turn)
            value = await turn.done
            if value is _END:
                is_left = False
                return
            yield value
    finally:
        turns.put(None)
        place.ends(is_left=is_left)
