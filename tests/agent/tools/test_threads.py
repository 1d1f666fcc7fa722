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

from spangate.agent import Agent, ScriptedModel, calls, tool
from spangate.agent.tools.threads import DEPTH, MOST, Clock, Threads, in_thread, iterated_in_thread


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


async def hung(count: int, gate: threading.Event) -> None:
    """So many functions go on in their threads, and nobody waits for them any more."""
    begun = threading.Semaphore(0)

    def hang() -> None:
        begun.release()
        gate.wait(30)

    left = [asyncio.create_task(in_thread(hang)) for _ in range(count)]
    await asyncio.sleep(0)
    assert await asyncio.to_thread(lambda: all(begun.acquire(timeout=5) for _ in range(count)))
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def test_what_nobody_waits_for_takes_nobodys_place(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    try:
        await hung(MOST, gate)
        async with asyncio.timeout(5):
            assert await in_thread(str, 1) == "1"
        assert caplog.messages == [f"{MOST} threads run functions that nobody waits for any more"]
    finally:
        gate.set()


def test_they_are_bounded_too_and_come_back() -> None:
    threads = Threads(most=1, most_left=1)
    gates = [threading.Event() for _ in range(2)]
    begun, over = threading.Semaphore(0), threading.Semaphore(0)

    def job(gate: threading.Event) -> None:
        begun.release()
        gate.wait(5)
        over.release()

    first = threads.run(lambda: job(gates[0]))
    assert begun.acquire(timeout=5)
    threads.leave(first)
    second = threads.run(lambda: job(gates[1]))
    assert begun.acquire(timeout=5), "it began beside the one that was left"
    threads.leave(second)
    third = threading.Event()
    threads.run(third.set)
    assert not third.wait(0.02), "one may be left, not two"
    gates[0].set()
    gates[1].set()
    assert over.acquire(timeout=5)
    assert third.wait(5)


def test_what_is_left_before_it_begins_never_does() -> None:
    threads = Threads(most=1)
    gate, _, ended = jobs(threads, 1)
    ran, after = threading.Event(), threading.Event()
    threads.leave(threads.run(ran.set))
    threads.run(after.set)
    gate.set()
    assert after.wait(5)
    assert ended.acquire(timeout=5)
    assert not ran.is_set()


class Scarce(Threads):
    """The system gives a thread only where `gives` says so."""

    def __init__(self, *gives: bool) -> None:
        super().__init__(most=2)
        self.gives = list(gives)

    def _start(self) -> None:
        if not self.gives.pop(0):
            raise RuntimeError("can't start new thread")
        super()._start()


def test_a_thread_that_does_not_start_is_not_counted_and_its_job_never_runs() -> None:
    threads, ran, after = Scarce(False, True, False), threading.Event(), threading.Event()
    with pytest.raises(RuntimeError, match="can't start"):
        threads.run(ran.set)
    gate, _, ended = jobs(threads, 1)
    threads.run(after.set)
    assert threads.gives == [], "there is one that it can wait for"
    gate.set()
    assert ended.acquire(timeout=5)
    assert after.wait(5)
    assert not ran.is_set()


async def test_a_function_may_wait_for_others_however_many_there_are() -> None:
    """As a tool does that runs an agent, whose tools run in threads."""
    inside = threading.Barrier(MOST)

    def outer() -> str:
        inside.wait(5)
        return asyncio.run(asyncio.wait_for(in_thread(str, "inner"), 5))

    assert await asyncio.gather(*(in_thread(outer) for _ in range(MOST))) == ["inner"] * MOST


async def test_but_not_without_end() -> None:
    depth = []

    def again() -> None:
        depth.append(1)
        asyncio.run(in_thread(again))

    with pytest.raises(RuntimeError, match=f"{DEPTH} plain functions wait for one another; no further one is run"):
        await in_thread(again)
    assert len(depth) == DEPTH


async def test_time_stands_still_while_one_waits_for_a_thread() -> None:
    threads, clock = Threads(most=1), Clock(30)
    gate, _, ended = jobs(threads, 1)
    began, goes_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        goes_on.wait(5)

    job = threads.run(work)
    before = clock.left()
    clock.queues(job)
    still = clock.left()
    await asyncio.sleep(0.02)
    assert clock.is_queueing
    assert clock.left() == pytest.approx(still, abs=0.001)
    gate.set()
    assert began.wait(5)
    assert not clock.is_queueing
    clock.ended(job)
    runs = clock.left()
    assert runs > before - 0.02, "what was waited for is not lost"
    await asyncio.sleep(0.02)
    assert clock.left() <= runs - 0.02
    goes_on.set()
    assert ended.acquire(timeout=5)


@tool(time_limit=0.2)
def late() -> str:
    """Begins late, and is quick."""
    return "ran"


async def test_a_tool_has_its_time_once_it_has_begun() -> None:
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        begun.release()
        gate.wait(30)

    holding = [asyncio.create_task(in_thread(hold)) for _ in range(MOST)]
    await asyncio.sleep(0)
    assert await asyncio.to_thread(lambda: all(begun.acquire(timeout=5) for _ in range(MOST)))
    model = ScriptedModel.saying(calls("late"), "done")
    await Agent("a", None, model, [late])("go")
    said = model.calls[1]["messages"][-1]["content"]
    assert said == "late failed: ToolTimeout: late found no free thread within 0.2 seconds."
    gate.set()
    await asyncio.gather(*holding)


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
