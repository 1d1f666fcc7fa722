"""Long work in a thread beside the loop: while Python computes here no call moves, so it goes by slices with a breath in between."""

from __future__ import annotations

import time
from typing import Final

SLICE: Final = 0.0004  # seconds of work before others may run
HURRY: Final = 0.002  # the same where the work would not be done in time otherwise
BREATH: Final = 0.0002


class Pace:
    """`rest()` after each small step of the work sleeps where a slice is over. Belongs to one thread at a time."""

    def __init__(self, slice: float = SLICE, breath: float = BREATH) -> None:
        self._slice = slice
        self._breath = breath
        self._until = 0.0

    def rest(self, *, hurry: bool = False) -> None:
        now = time.perf_counter()
        if now > self._until:
            time.sleep(self._breath)
            self._until = now + self._breath + (HURRY if hurry else self._slice)
