"""policies/admission.py: what three budgets and two limits cost a call. Processor time, the best of many runs, in turns with something
that is not ours, so that noise hits both."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator
from typing import Any

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Target
from spangate.call.chain import Next, chain, pulling
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.policies.admission import Admission
from spangate.policies.budget import Budget
from spangate.policies.charge import books_of
from spangate.policies.ledger.memory import MemoryLedger
from spangate.policies.meter import Meter
from spangate.policies.rate_limit import RateLimit

MOST = 90e-6
"""Seconds. It is 58 where nothing else runs and nobody watches; a test has the loop watched, and company."""
PACE = 54e-6
"""Seconds that `paced` takes there; a machine that is slower, or busy, gets as much more."""
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


async def taken(next: Next) -> float:
    """Seconds that a call takes."""
    calls = [asked() for _ in range(CALLS)]
    gc.collect()
    began = time.thread_time()
    for call in calls:
        async with pulling(next(call)) as events:
            async for _ in events:
                pass
    return (time.thread_time() - began) / CALLS


async def paced() -> float:
    """What a loop does, without being ours: generators around generators, and small objects."""

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


async def test_three_budgets_and_two_limits_cost_little() -> None:
    bounds = [bound for rule in RULES for bound in rule.bounds("list")]
    books = books_of(ledger := MemoryLedger())
    admitted = chain([Admission(bounds, books, target_of=lambda _: TARGET), Meter(books)], answered)
    with_rules, without, pace = [], [], []
    for _ in range(9):
        with_rules.append(await taken(admitted))
        without.append(await taken(answered))
        pace.append(await paced())
    assert await ledger.drain(5) == 0
    assert min(each.used for each in await ledger.every("acme")) > 0, "each rule has counted"
    cost = min(with_rules) - min(without)
    assert cost <= MOST * max(1.0, min(pace) / PACE), f"{cost * 1e6:.1f} us, at a pace of {min(pace) * 1e6:.1f} us"


async def test_a_team_without_rules_pays_nothing() -> None:
    call = asked()
    books = books_of(MemoryLedger())
    assert Admission([], books)(call, answered).__class__ is answered(call).__class__
    assert Meter(books)(call, answered).__qualname__ == answered(call).__qualname__  # type: ignore[attr-defined]
