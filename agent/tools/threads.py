"""Plain functions and generators, run in threads, so that the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from types import GeneratorType
from typing import Any

_END = object()


async def in_thread(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """The function's result. Whoever stops waiting does not stop the thread: nothing in Python can."""
    return await asyncio.to_thread(function, **kwargs)


async def iterated_in_thread(generator: GeneratorType[Any, Any, Any]) -> AsyncGenerator[Any, None]:
    """A plain generator's values, each made in a thread."""
    try:
        while True:
            value = await asyncio.to_thread(next, generator, _END)
            if value is _END:
                return
            yield value
    finally:
        if not generator.gi_running:
            generator.close()
