"""Ended calls that wait to be told of: some at a time, since telling of many in a row costs less than of each in its turn (the interpreter
finds warm what the call before it needed; docs/decisions/0006 has figures).

The loop tells when enough are together, for a third of a millisecond at most; what is left waits for those that come, or for whoever
asks in another thread. Neither waits for the other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TOGETHER: Final = 48  # calls that are told of together
SLICE: Final = 0.0003  # seconds for which the loop tells at once
LOOK: Final = 8  # calls between two looks at the clock


class Gathered(Generic[T]):
    """`tell` gets each once, on the loop or in the thread of whoever asks, never in both at a time. It must not raise. Bounded by whoever
    adds: `push_out`."""

    def __init__(self, tell: Callable[[T], object], *, together: int = TOGETHER) -> None:
        self._tell = tell
        self._together = together
        self._waiting: deque[T] = deque()
        self._telling = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: T) -> None:
        """On the loop, which it costs an append, and now and then a slice of telling."""
        self._waiting.append(item)
        if len(self._waiting) >= self._together and self._telling.acquire(blocking=False):
            try:
                self._tell_some(time.perf_counter() + SLICE)
            finally:
                self._telling.release()

    def push_out(self) -> T | None:
        """The oldest, which nobody will tell of; None: it has just been told of."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    @contextmanager
    def told(self, rest: Callable[[], None]) -> Iterator[None]:
        """Off the loop: all that waits by now is told of, and nothing more is until the block ends. `rest` is called after each."""
        with self._telling:
            for _ in range(len(self._waiting)):
                if not self._tell_one():
                    break
                rest()
            yield

    def catch_up(self, rest: Callable[[], None]) -> None:
        """Off the loop: all that waits by now is told of."""
        with self.told(rest):
            return

    def _tell_some(self, until: float) -> None:
        while self._waiting:
            for _ in range(min(len(self._waiting), LOOK)):
                self._tell_one()
            if time.perf_counter() > until:
                return

    def _tell_one(self) -> bool:
        try:
            item = self._waiting.popleft()
        except IndexError:  # it was pushed out
            return False
        self._tell(item)
        return True
