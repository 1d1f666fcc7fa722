"""The rules of the onion hold in every layer, and the checker bites."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from house.onion import broken_rules
from house.source import package, tree

GOOD = {
    "around": """
        async def policy(call, next):
            hold = reserve(call)
            try:
                async with aclosing(next(call)) as events:
                    async for event in events:
                        yield event
            finally:
                hold.settle_soon()
        """,
    "request only": """
        def policy(call, next):
            return next(call.with_body({}))
        """,
    "tries twice": """
        class Retry:
            async def __call__(self, call, next):
                for attempt in range(2):
                    async with pulling(next(call)) as events:
                        try:
                            first = await anext(events)
                        except ProviderFault:
                            continue
                        yield first
                        async for event in events:
                            yield event
                        return
        """,
    "joins its own tasks": """
        async def hedge(call, next):
            tasks = start(call)
            try:
                yield await first(tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                await self.inside.aclose()
        """,
    "a lock released before the yield": """
        async def policy(call, next):
            async with self.lock:
                figures = self.count(call)
            yield figures
        """,
    "a stack of contexts": """
        async def policy(call, next):
            async with AsyncExitStack() as stack:
                events = await stack.enter_async_context(aclosing(next(call)))
                async for event in events:
                    yield event
        """,
    "a step that is a coroutine": """
        async def _ask(self, call, next):
            async with aclosing(next(call)) as events:
                return [event async for event in events]
        """,
    "cleans up and passes its end on": """
        async def policy(call, next):
            try:
                yield 1
            except asyncio.CancelledError:
                count()
                raise
        """,
}

BAD = {
    "iterates it bare": (
        """
        async def policy(call, next):
            async for event in next(call):
                yield event
        """,
        "3: next(call) outside",
    ),
    "closes nothing": (
        """
        async def policy(call, next):
            events = next(call)
            yield await anext(events)
        """,
        "3: next(call) outside",
    ),
    "closes under another name": (
        """
        async def policy(call, next):
            async with nullcontext(next(call)) as events:
                yield await anext(events)
        """,
        "3: next(call) outside",
    ),
    "holds a timeout": (
        """
        async def policy(call, next):
            async with asyncio.timeout(5), aclosing(next(call)) as events:
                async for event in events:
                    yield event
        """,
        "3: asyncio.timeout held",
    ),
    "holds a lock": (
        """
        async def policy(call, next):
            async with self._lock:
                yield 1
        """,
        "3: self._lock held",
    ),
    "holds a span": (
        """
        async def observe(call, next):
            with tracer.start_as_current_span("chat"):
                yield 1
        """,
        "3: tracer.start_as_current_span held",
    ),
    "writes in its finally": (
        """
        async def policy(call, next):
            try:
                yield 1
            finally:
                await self.ledger.settle()
        """,
        "6: a finally that awaits",
    ),
    "yields in its finally": (
        """
        async def policy(call, next):
            try:
                yield 1
            finally:
                yield 2
        """,
        "6: a finally that does more",
    ),
    "is a coroutine": (
        """
        class Policy:
            async def __call__(self, call, next):
                return 1
        """,
        "3: a layer is",
    ),
    "swallows its end": (
        """
        async def policy(call, next):
            try:
                yield 1
            except (ValueError, GeneratorExit):
                return
        """,
        "5: the end of a generator",
    ),
}


@pytest.mark.parametrize("path", package(), ids=str)
def test_the_package(path: Path) -> None:
    assert broken_rules(tree(path)) == []


@pytest.mark.parametrize("name", GOOD)
def test_lets_pass_a_layer_that(name: str) -> None:
    assert broken_rules(ast.parse(dedent(GOOD[name]))) == []


@pytest.mark.parametrize("name", BAD)
def test_catches_a_layer_that(name: str) -> None:
    source, said = BAD[name]
    found = broken_rules(ast.parse(dedent(source)))
    assert len(found) == 1
    assert found[0].startswith(said)
