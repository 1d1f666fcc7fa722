"""When to say a thing that would repeat: what fails with every call is told every ten seconds, and counted in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

EVERY: Final = 10.0  # seconds


class Seldom:
    """`may()` is true at most once in `every` seconds."""

    def __init__(self, every: float = EVERY, now: Callable[[], float] = time.monotonic) -> None:
        self._every = every
        self._now = now
        self._next = float("-inf")

    def may(self) -> bool:
        now = self._now()
        if now < self._next:
            return False
        self._next = now + self._every
        return True
