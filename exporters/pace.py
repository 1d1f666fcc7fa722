"""Long work in a thread beside the loop: while Python computes here no call moves, so it goes by slices with a breath in between."""

from __future__ import annotations

import time
from typing import Final

SLICE: Final = 0.0004  # seconds of work before others may run
BREATH: Final = 0.0002


class Pace:
    """`rest()` after each small step of the work sleeps where a slice is over. Belongs to one thread at a time."""

    def __init__(self, slice: float = SLICE, breath: float = BREATH) -> None:
        self._slice = slice
        self._breath = breath
        self._until = 0.0

    def rest(self) -> None:
        now = time.perf_counter()
        if now > self._until:
            time.sleep(self._breath)
            self._until = now + self._breath + self._slice
