"""policies/admission.py: what three budgets and two limits cost a call. Processor time, the best of many runs, in turns with something
that is not ours, so that noise hits both; and steps of the interpreter, which no noise touches."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import AsyncIterator, Sequence
from types import FrameType
from typing import Any

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Target
from spangate.call.chain import Next, chain, pulling
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.exporters.observe import Attempt
from spangate.policies.admission import Admission
from spangate.policies.bounds import Bound
from spangate.policies.budget import Budget
from spangate.policies.charge import Books, books_of
from spangate.policies.ledger.ledger import NANO
from spangate.policies.ledger.memory import MemoryLedger
from spangate.policies.meter import Meter
from spangate.policies.rate_limit import RateLimit

from house.source import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from pace import PACE, paced

MOST = 65e-6
"""Seconds. It is 33 where nothing else runs and nobody watches; a test has the loop watched, and company. A machine that is slower, or
busy, gets as much more as `paced` takes longer there. `make bench` holds what a gateway takes to its goal."""
STEPS = 3550
"""Of the interpreter: 3400 in Python 3.11. A gateway's processor, whose caches others fill between two calls, takes some 14 ns for each."""
RULES = [
    Budget.model_validate({"name": "month", "limit": "5G", "window": "month", "weights": {"cached": 0.1, "output": 4}}),
    Budget.model_validate({"name": "day", "limit": "5G", "window": "day"}),
    Budget.model_validate({"name": "key", "limit": "50G", "window": "rolling 24h", "per": "key"}),
    RateLimit.model_validate({"requests": "60M/min", "concurrent": 32}),
]
BODY = Body.of({"model": "m", "messages": [{"role": "user", "content": "hello there " * 30}], "max_tokens": 100})
TARGET = Target("p", "m")
CALLS = 300


async def answered(call: Call) -> AsyncIterator[Event]:
    yield Opened(stream=False)
    yield Delta(b"{}", sse=False)
    yield Closed(Usage(100, 30), "stop")


def asked() -> Call:
    return Call(op="chat", model="m", body=BODY, head=Head(output_cap=100), target=TARGET, caller=Caller("acme", "search", "ci"))


def onions(bounds: Sequence[Bound], books: Books) -> tuple[Next, Next]:
    """With those rules, and without."""
    attempt = chain([Attempt(counting=books.tokens)], answered)
    return chain([Admission(bounds, books, target_of=lambda _: TARGET), Meter(books)], attempt), attempt


async def heard(next: Next, call: Call | None = None) -> None:
    async with pulling(next(call or asked())) as events:
        async for _ in events:
            pass


async def taken(next: Next) -> float:
    """Seconds that a call takes."""
    calls = [asked() for _ in range(CALLS)]
    gc.collect()
    began = time.thread_time()
    for call in calls:
        await heard(next, call)
    return (time.thread_time() - began) / CALLS


async def test_three_budgets_and_two_limits_cost_little() -> None:
    bounds = [bound for rule in RULES for bound in rule.bounds("list")]
    books = books_of(ledger := MemoryLedger())
    admitted, bare = onions(bounds, books)
    with_rules, without, pace = [], [], []
    for _ in range(9):
        with_rules.append(await taken(admitted))
        without.append(await taken(bare))
        pace.append(await paced())
    assert await ledger.drain(5) == 0
    counted = {each.counter.name.split()[0]: each.used for each in await ledger.every("acme")}
    assert sorted(counted) == ["day", "key", "list.rate_limit.key", "month"], "each rule has counted"
    assert counted["day"] == 9 * CALLS * 130 * NANO
    cost = min(with_rules) - min(without)
    assert cost <= MOST * max(1.0, min(pace) / PACE), f"{cost * 1e6:.1f} us, at a pace of {min(pace) * 1e6:.1f} us"


async def steps(next: Next) -> int:
    """Instructions of Python's that a call takes of ours, once everything is warm; of a few calls the least, as of some is learnt."""
    for _ in range(300):
        await heard(next)
    taken: list[int] = []

    def counting(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_globals["__name__"].startswith("spangate."):
            return None  # the loop's own, which in tests has more to do
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        taken[-1] += event == "opcode"
        return counting

    before = sys.gettrace()
    sys.settrace(counting)
    try:
        for _ in range(3):
            taken.append(0)
            await heard(next)
    finally:
        sys.settrace(before)
    return min(taken)


async def test_three_budgets_and_two_limits_take_few_steps() -> None:
    bounds = [bound for rule in RULES for bound in rule.bounds("list")]
    books = books_of(MemoryLedger())
    admitted, bare = onions(bounds, books)
    taken = await steps(admitted) - await steps(bare)
    assert 1000 < taken <= STEPS


async def test_a_team_without_rules_pays_nothing() -> None:
    call = asked()
    books = books_of(MemoryLedger())
    assert Admission([], books)(call, answered).__class__ is answered(call).__class__
    assert Meter(books)(call, answered).__qualname__ == answered(call).__qualname__  # type: ignore[attr-defined]
