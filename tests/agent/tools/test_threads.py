"""agent/tools/threads.py: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any

import pytest

from spangate.agent.tools.threads import MOST, Threads, in_thread, iterated_in_thread


async def test_the_loop_goes_on() -> None:
    gate = threading.Event()
    waiting = asyncio.create_task(in_thread(gate.wait, timeout=5))
    await asyncio.sleep(0)
    gate.set()
    assert await waiting is True


async def test_a_generator_that_is_left_is_closed() -> None:
    closed, threads = threading.Event(), set()

    def numbers() -> Iterator[int]:
        try:
            for number in range(9):
                threads.add(threading.current_thread())
                yield number
        finally:
            threads.add(threading.current_thread())
            closed.set()

    generator: Any = numbers()
    async with aclosing(iterated_in_thread(generator)) as values:
        assert [await anext(values), await anext(values)] == [0, 1]
    assert await in_thread(closed.wait, 5)
    assert len(threads) == 1, "what belongs to a thread, as a database does, is used in that thread alone"
    assert threads != {threading.main_thread()}


async def test_a_generator_that_fails_to_close_is_its_own_affair(caplog: pytest.LogCaptureFixture) -> None:
    failing = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            failing.set()
            raise KeyError("CANARY")

    generator: Any = numbers()
    async with aclosing(iterated_in_thread(generator)) as values:
        assert await anext(values) == 1
    assert await in_thread(failing.wait, 5)
    while not caplog.messages:
        await in_thread(str)
    assert caplog.messages == ["numbers failed to close: KeyError"]


async def test_a_stop_iteration_is_told() -> None:
    """No future takes it: in asyncio's own threads it leaves who waits waiting."""
    with pytest.raises(RuntimeError, match="raised StopIteration") as raised:
        await in_thread(next, iter(()))
    assert isinstance(raised.value.__cause__, StopIteration)


async def test_what_it_runs_in_is_the_callers_context() -> None:
    word: ContextVar[str] = ContextVar("word", default="none")
    word.set("ours")
    assert await in_thread(word.get) == "ours"


def jobs(threads: Threads, count: int) -> tuple[threading.Event, list[threading.Thread], threading.Semaphore]:
    """So many that wait to be let go."""
    gate, ran, ended = threading.Event(), list[threading.Thread](), threading.Semaphore(0)

    def job() -> None:
        ran.append(threading.current_thread())
        gate.wait(5)
        ended.release()

    for _ in range(count):
        threads.run(job)
    return gate, ran, ended


def test_there_are_at_most_so_many_and_what_finds_none_waits() -> None:
    threads = Threads(most=2)
    gate, ran, ended = jobs(threads, 5)
    gate.set()
    assert all(ended.acquire(timeout=5) for _ in range(5))
    assert len(ran) == 5
    assert len(set(ran)) <= 2
    assert all(thread.daemon for thread in ran), "no function that never ends keeps the program from ending"


def test_one_that_nobody_needs_ends() -> None:
    threads = Threads(most=2, idle=0.01)
    gate, ran, ended = jobs(threads, 1)
    gate.set()
    assert ended.acquire(timeout=5)
    [thread] = ran
    thread.join(5)
    assert not thread.is_alive()


async def test_functions_that_never_end_hold_up_nobody_else() -> None:
    """Those of asyncio's own threads are left for all others: stores, names, files."""
    gate = threading.Event()
    waiting = [asyncio.create_task(in_thread(gate.wait, 5)) for _ in range(MOST)]
    await asyncio.sleep(0)
    assert await asyncio.to_thread(str, 1) == "1"
    late = asyncio.create_task(in_thread(str, 2))
    left = asyncio.create_task(in_thread(gate.set))
    await asyncio.sleep(0)
    left.cancel()
    assert not late.done()
    waiting[0].cancel()
    gate.set()
    assert await late == "2"
    assert await asyncio.gather(*waiting[1:]) == [True] * (MOST - 1)
    assert left.cancelled()


NEVER_ENDS = """
import asyncio, threading
from spangate.agent import Agent, DeadlineExceeded, ScriptedModel, calls, tool

@tool
def hang() -> str:
    "Hang."
    threading.Event().wait()

try:
    asyncio.run(Agent("a", None, ScriptedModel.saying(calls("hang")), [hang])("go", deadline=0.05))
except DeadlineExceeded:
    print("late")
"""
FORKS = """
import asyncio, os
from spangate.agent.tools.threads import in_thread

asyncio.run(in_thread(str))
child = os.fork()
if not child:
    asyncio.run(in_thread(str))
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("program", "said"), [(NEVER_ENDS, "late"), (FORKS, "7")], ids=["a tool that never ends", "a child process"])
def test_programs_end(program: str, said: str) -> None:
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == said
