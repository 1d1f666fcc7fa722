"""The clock that everything of ours reads, so that a test can give another. Timers of asyncio run on the loop's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall()` is UTC in nanoseconds since the epoch and may jump; `mono()` is seconds that only go forward."""

    wall: Callable[[], int] = time.time_ns
    mono: Callable[[], float] = time.monotonic


SYSTEM = Clock()
