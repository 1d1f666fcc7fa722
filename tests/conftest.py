"""How every test runs: an `async def` test gets a fresh event loop, and leaves nothing behind.

A test that passes is failed all the same when it leaves a task running, an exception that nobody retrieved, or an async
generator of ours that was begun and not finished: each of these is, in a gateway, a connection held or an account not settled.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import signal
import sys
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what runs beside it ignore this, and so its children would

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("short", max_examples=50, derandomize=True, deadline=None, database=None)
settings.register_profile("soak", max_examples=5000, derandomize=False, deadline=None, database=None)
settings.load_profile("short")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="the event loop that tests run on")


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collecting after each test then looks at that test's own objects only."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    run = functools.partial(run_alone, pyfuncitem.config.getoption("--loop"))
    if inspect.iscoroutinefunction(test):
        wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        run(functools.partial(test, **wanted))
        return True
    hypothesis = getattr(test, "hypothesis", None)
    if hypothesis is not None and inspect.iscoroutinefunction(hypothesis.inner_test):
        inner = hypothesis.inner_test
        hypothesis.inner_test = functools.wraps(inner)(lambda *args, **kwargs: run(functools.partial(inner, *args, **kwargs)))
    return None


def run_alone(loop: str, test: Callable[[], Awaitable[None]]) -> None:
    """Run one async test on a loop of its own and fail it for what it leaves behind."""
    complaints: list[str] = []
    with asyncio.Runner(loop_factory=new_loop(loop)) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(told(context)))
        runner.run(watched(test, complaints))
    if complaints:
        pytest.fail("The test passed, but left something behind:\n  " + "\n  ".join(complaints), pytrace=False)


def new_loop(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio" or sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


async def watched(test: Callable[[], Awaitable[None]], complaints: list[str]) -> None:
    begun: list[weakref.ref[AsyncGenerator[Any, Any]]] = []
    hooks = sys.get_asyncgen_hooks()

    def first(generator: AsyncGenerator[Any, Any]) -> None:
        if ours(generator):
            begun.append(weakref.ref(generator))
        if hooks.firstiter:
            hooks.firstiter(generator)

    def last(generator: AsyncGenerator[Any, Any]) -> None:
        if ours(generator):
            complaints.append(f"async generator dropped unfinished: {generator.__qualname__}")
        if hooks.finalizer:
            hooks.finalizer(generator)

    sys.set_asyncgen_hooks(firstiter=first, finalizer=last)
    try:
        await test()
        await leave_nothing(complaints)
        complaints += [f"async generator left open: {name}" for name in unfinished(begun)]
    finally:
        sys.set_asyncgen_hooks(*hooks)


async def leave_nothing(complaints: list[str]) -> None:
    """Tasks that are just ending may end; the others are told of. What nobody refers to any more speaks up when collected."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=0.2)
    complaints += [f"task left running: {task.get_coro()}" for task in left]
    del left
    gc.collect()
    await asyncio.sleep(0)


def unfinished(begun: list[weakref.ref[AsyncGenerator[Any, Any]]]) -> Iterator[str]:
    for reference in begun:
        generator = reference()
        if generator is not None and generator.ag_frame is not None:
            yield generator.__qualname__


def ours(generator: AsyncGenerator[Any, Any]) -> bool:
    path = Path(generator.ag_code.co_filename)
    return path.is_relative_to(ROOT) and not any(part.startswith(".venv") for part in path.relative_to(ROOT).parts)


def told(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception') or context.get('task') or context.get('future') or ''}"
