"""How fast Python is here and now: what a loop does, without being ours. A goal in microseconds was written on one machine; by this it is
as hard on any other, and in any minute.

A figure is processor time. It is taken beside what it is compared with, so that noise hits both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from processes import pinned

PACE = 54e-6
"""Seconds of `paced` where the goals were written."""
TRIES = 5


async def paced() -> float:
    """Seconds that generators around generators, and small objects, take."""

    async def inside() -> AsyncIterator[dict[str, int]]:
        for number in range(40):
            yield {"number": number}

    async def around(events: AsyncIterator[dict[str, int]]) -> AsyncIterator[dict[str, Any]]:
        async for event in events:
            yield {**event, "more": len(str(event))}

    began = time.thread_time()
    for _ in range(50):
        async for _ in around(around(around(inside()))):
            pass
    return (time.thread_time() - began) / 50


def pace(cpu: int | None = None) -> float:
    """The best of a few, on that CPU."""

    async def best() -> float:
        return min([await paced() for _ in range(TRIES)])

    with pinned(cpu):
        return asyncio.run(best())
