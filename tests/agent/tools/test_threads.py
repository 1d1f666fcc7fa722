"""agent/tools/threads.py: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from spangate.agent.tools.threads import in_thread, iterated_in_thread


async def test_the_loop_goes_on() -> None:
    gate = threading.Event()
    waiting = asyncio.create_task(in_thread(gate.wait, {"timeout": 5}))
    await asyncio.sleep(0)
    gate.set()
    assert await waiting is True


async def test_a_generator_that_is_left_is_closed() -> None:
    closed = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(True)

    generator: Any = numbers()
    async with aclosing(iterated_in_thread(generator)) as values:
        assert [await anext(values), await anext(values)] == [0, 1]
    assert closed == [True]
