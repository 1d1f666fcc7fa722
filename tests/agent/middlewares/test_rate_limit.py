"""agent/middlewares/rate_limit.py: gates and lines, by a clock of ours. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spangate.agent import ModelFallbackMiddleware, RateLimitExceeded, RateLimitMiddleware, ScriptedModel, TracingMiddleware
from spangate.agent.middlewares.rate_limit import MOST_LINES, Gate, Line
from spangate.call.errors import UpstreamError

from acceptance.lines import Spans, agent


def starts(gate: Gate, *units: float) -> list[float]:
    """When each of these may begin, if all come at 0."""
    now, found = 0.0, []
    for each in units:
        now = max(now, gate.opens(each))
        gate.take(each, now)
        found.append(now)
    return found


def test_a_gate_lets_one_pass_an_interval() -> None:
    assert starts(Gate(2), 1, 1, 1) == [0, 2, 4]


def test_a_burst_passes_at_once_and_fills_again() -> None:
    gate = Gate(1, 3)
    assert starts(gate, 1, 1, 1, 1, 1) == [0, 0, 0, 1, 2]
    assert gate.opens(1) == 3


def test_large_ones_wait_for_as_much_room_as_they_take() -> None:
    assert starts(Gate(1, 10), 8, 8, 2) == [0, 6, 8]
    assert starts(Gate(1, 10), 50, 1) == [0, 41], "one that is larger than all room passes an empty gate"


def test_what_was_not_used_is_given_back() -> None:
    gate = Gate(1, 10)
    gate.take(10, 0)
    gate.take(-6, 0)
    assert gate.opens(6) == 0


async def test_those_behind_move_up() -> None:
    now = [0.0]
    line = Line([Gate(10)], None, lambda: now[0])
    await line.turn(0, None)
    assert line._wait(0) == 10
    waiting = [asyncio.create_task(line.turn(0, None)) for _ in range(3)]
    await asyncio.sleep(0)
    assert line._wait(0) == 40
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert line._wait(0) == 10
    now[0] = 10
    await line.turn(0, 0)


async def test_tokens_are_taken_in_advance_and_settled() -> None:
    now = [0.0]
    model = ScriptedModel([{"answer": {"text": "x"}, "usage": {"input": 100, "output": 20}}])
    bot = agent(model, RateLimitMiddleware(tokens_per_minute=1200, on_exceed="reject", clock=lambda: now[0]), tools=())
    for _ in range(2):  # each is taken for a thousand and more, until its 120 are known
        await bot("hi")
    with pytest.raises(RateLimitExceeded) as refused:
        await bot("hi")
    assert 0 < refused.value.retry_after < 60
    now[0] += refused.value.retry_after + 0.001
    await bot("hi")


async def test_who_waits_goes_on_as_soon_as_tokens_are_given_back() -> None:
    line = Line([], Gate(1, 100), lambda: 0.0)
    await line.turn(100, None)
    waiting = asyncio.create_task(line.turn(50, None))
    await asyncio.sleep(0)
    assert not waiting.done()
    line.settle(-60)
    assert await waiting == 0


async def test_a_rate_and_an_interval_hold_both() -> None:
    now = [0.0]
    bot = agent(ScriptedModel(), RateLimitMiddleware(1, rate=0.1, burst=2, on_exceed="reject", clock=lambda: now[0]))
    await bot("hi")
    with pytest.raises(RateLimitExceeded) as refused:
        await bot("hi")
    assert refused.value.retry_after == 1
    now[0] = 1
    await bot("hi")
    with pytest.raises(RateLimitExceeded) as refused:
        await bot("hi")
    assert refused.value.retry_after == pytest.approx(9)


@pytest.mark.parametrize("said", ["-7", "soon", "9" * 30, "99999999", "Thu, 01 Jan 1970 00:00:00 GMT"])
async def test_nonsense_of_a_providers_holds_nobody(said: str) -> None:
    busy = ScriptedModel([{"fault": {"status": 429, "headers": {"retry-after": said}}}])
    bot = agent(busy, RateLimitMiddleware(0, on_exceed="reject", clock=lambda: 0.0))
    for _ in range(2):
        with pytest.raises(UpstreamError):
            await bot("hi")


@pytest.mark.parametrize("said", [{"retry-after": "7"}, {"retry-after-ms": "7000", "retry-after": "9"}, {"retry-after": "7s"}])
async def test_a_provider_that_says_when_is_believed(said: dict[str, str]) -> None:
    now = [0.0]
    busy = ScriptedModel([{"fault": {"status": 429, "headers": said}}])
    bot = agent(busy, RateLimitMiddleware(0, on_exceed="reject", clock=lambda: now[0]))
    with pytest.raises(UpstreamError):
        await bot("hi")
    with pytest.raises(RateLimitExceeded) as refused:
        await bot("hi")
    assert refused.value.retry_after == 7
    now[0] = 7
    with pytest.raises(UpstreamError):
        await bot("hi")


@pytest.mark.parametrize(("key", "apart"), [("instance", False), ("agent", False), ("provider", False), ("model", True)])
async def test_whose_calls_are_counted_together(key: Any, apart: bool) -> None:
    broken = ScriptedModel([{"fault": {"status": 503}}], model="broken")
    limit = RateLimitMiddleware(60, key=key, on_exceed="reject")
    bot = agent(broken, ModelFallbackMiddleware(ScriptedModel(model="spare")), limit)
    if apart:
        assert (await bot("hi")).text == "hi"
    else:
        with pytest.raises(RateLimitExceeded):
            await bot("hi")


async def test_tenants_are_counted_apart() -> None:
    limit = RateLimitMiddleware(60, key="tenant", on_exceed="reject")
    one, other = (agent(ScriptedModel(), limit, tenant=tenant) for tenant in ("one", "other"))
    await one("hi")
    await other("hi")
    with pytest.raises(RateLimitExceeded):
        await other("hi")


async def test_a_function_may_say_whose() -> None:
    limit = RateLimitMiddleware(60, key=lambda agent: agent.thread_id, on_exceed="reject")
    bot = agent(ScriptedModel(), limit)
    await bot("hi", thread="one")
    await bot("hi", thread="two")
    with pytest.raises(RateLimitExceeded):
        await bot("hi", thread="two")


async def test_a_wait_is_told_on_the_replys_span() -> None:
    spans = Spans()
    bot = agent(ScriptedModel(), TracingMiddleware(spans.provider), RateLimitMiddleware(0.02))
    for _ in range(2):
        await bot("hi")
    first, second = spans.named("invoke_agent")
    assert not first.events
    [event] = second.events
    assert event.name == "spangate.rate_limit.wait"
    assert 0 < dict(event.attributes or {})["spangate.rate_limit.waited"] < 5  # type: ignore[operator]
    for span in spans.named("chat"):
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time - span.start_time < 20e6, "a request begins when it is sent"


async def test_keys_that_nobody_uses_are_forgotten() -> None:
    now = [0.0]
    limit = RateLimitMiddleware(1, key=lambda agent: agent.thread_id, on_exceed="reject", clock=lambda: now[0])
    bot = agent(ScriptedModel(), limit, tools=())
    for number in range(MOST_LINES):
        limit._line(number)
    await bot("hi", thread="kept")
    assert len(limit._lines) == 1
    with pytest.raises(RateLimitExceeded):
        await bot("hi", thread="kept")


def test_those_that_are_used_are_not_all_looked_at_for_each_new_one() -> None:
    now = [0.0]
    limit = RateLimitMiddleware(1, clock=lambda: now[0])
    for number in range(4 * MOST_LINES):
        limit._line(number)._take(0)
    assert len(limit._lines) == limit._room == 4 * MOST_LINES
    now[0] = 2
    limit._line("one more")
    assert (len(limit._lines), limit._room) == (1, MOST_LINES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_interval": -1}, "min_interval must be a number"),
        ({"rate": 0}, "rate must be a number above 0"),
        ({"rate": 1, "burst": 0}, "burst must be a number of at least 1"),
        ({"tokens_per_minute": 0}, "tokens_per_minute must be a number above 0"),
        ({"max_wait": -1}, "max_wait must be a number"),
        ({"key": "colour"}, "key must be one of instance"),
        ({"on_exceed": "panic"}, "on_exceed must be 'wait' or 'reject'"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RateLimitMiddleware(**options)
