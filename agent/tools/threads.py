"""Plain functions and generators, run in threads, so that the loop goes on meanwhile.

The threads are our own. Those of asyncio are few and everybody's: a function that never ends would keep one for ever, and the program from
ending. Ours are daemons, at most `MOST`; what finds none free waits for one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from types import GeneratorType
from typing import Any

logger = logging.getLogger(__name__)
MOST = 64
IDLE = 10.0  # seconds after which a thread that nobody needs ends
_END = object()


class Threads:
    """Runs jobs, each in a thread, in the order in which they came."""

    def __init__(self, most: int = MOST, idle: float = IDLE) -> None:
        self._most, self._idle = most, idle
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a child process there are none of its parent's threads."""
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._free = self._waiting = 0

    def run(self, job: Callable[[], None]) -> None:
        """`job` must not raise."""
        with self._lock:
            self._waiting += 1
            is_short = self._waiting > self._free and self._threads < self._most
            if is_short:
                self._threads += 1
                self._free += 1
        self._jobs.put(job)
        if is_short:
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
            job()
            del job
            with self._lock:
                self._free += 1


_threads = Threads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)


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
        except StopIteration as stop:
            error = RuntimeError("a plain function raised StopIteration")  # no future takes it, and nobody would ever be told
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


async def in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result. Whoever stops waiting does not stop the thread: nothing in Python can.

    Raises:
        RuntimeError: it raised StopIteration.
    """
    waiting, context = _Waiting(), copy_context()
    _threads.run(lambda: waiting.answer(lambda: context.run(function, *args, **kwargs)))
    return await waiting.done


async def iterated_in_thread(generator: GeneratorType[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """A plain generator's values. All of it runs in one thread, its closing too; nobody waits for that."""
    turns: SimpleQueue[_Waiting | None] = SimpleQueue()
    context = copy_context()

    def serve() -> None:
        while (turn := turns.get()) is not None:
            turn.answer(next, generator, _END)
        try:
            generator.close()
        except BaseException as error:  # noqa: BLE001 - nobody waits for it
            logger.warning("%s failed to close: %s", generator.__name__, type(error).__name__)

    _threads.run(lambda: context.run(serve))
    try:
        while True:
            turn = _Waiting()
            turns.put(turn)
            value = await turn.done
            if value is _END:
                return
            yield value
    finally:
        turns.put(None)
