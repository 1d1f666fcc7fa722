"""agent/models/gateway.py: a gateway's chain, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from spangate.agent import Agent, GatewayModel, calls, tool
from spangate.call.call import Call, Caller, Target
from spangate.call.chain import Next, chain, pulling
from spangate.call.errors import OurFault, Refused, SpangateError
from spangate.call.events import Closed, Delta, Event
from spangate.call.script import Script
from spangate.call.seen import Seen
from spangate.exporters.observe import Around, Attempt
from spangate.policies.access import Access
from spangate.policies.time_limit import TimeLimit

seen: list[Call] = []


async def provider(call: Call) -> AsyncIterator[Event]:
    seen.append(call)
    events = script.answer(call)
    try:
        async for event in events:
            yield event
    finally:
        await events.aclose()


script = Script([{"answer": calls("look"), "times": 1}, {"answer": {"text": "done"}}])


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_under_a_gateways_policies(stream: bool) -> None:
    seen.clear()
    script._answered[0] = 0
    inside = chain([Access(models=("fast",)), TimeLimit()], provider)
    caller = Caller(team="search", user="ann")
    agent = Agent("a", "p", GatewayModel(inside, "fast", caller=caller, stream=stream), [look])
    reply = agent.stream("go", thread="t", deadline=60)
    assert (await reply.result()).text == "done"
    for call in seen:
        assert (call.caller, call.labels.thread, call.labels.reply) == (caller, "t", reply.reply_id)
        assert (call.model, call.head.stream, call.purpose) == ("fast", stream, "main")
        assert call.deadline is not None
    with pytest.raises(Refused, match="'strong' is not one that this key may use"):
        await Agent("a", None, GatewayModel(inside, "strong"))("go")
    assert GatewayModel(inside, "fast").takes_reply_labels


async def test_a_reader_that_leaves_closes_the_chain() -> None:
    closed = []

    async def inside(call: Call) -> AsyncIterator[Event]:
        events = Script([{"answer": {"text": "one two three"}}]).answer(call)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
            closed.append(True)

    answer = await GatewayModel(inside, "m")("go")
    await answer.aclose()
    assert closed == [True]


class Kept:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []

    def record(self, seen: Seen) -> None:
        self.seen.append(seen)

    def flush(self) -> None:
        """Nothing waits."""


FAULT = {"fault": {"status": 503}}
HELLO = {"answer": {"text": "one two three"}}


def breaks(call: Call, next: Next) -> AsyncIterator[Event]:
    raise LookupError("a defect")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("rule", "policies", "ended"),
    [
        (HELLO, [], ("completed", 200, "")),
        (FAULT, [], ("failed", 0, "upstream_error")),
        (HELLO, [Access(models=("other",))], ("refused", 0, "model_not_found")),
        (HELLO, [breaks], ("failed", 0, "internal_error")),
    ],
)
async def test_a_recorder_is_told_each_call_once(stream: bool, rule: dict[str, Any], policies: list[Any], ended: tuple[Any, ...]) -> None:
    kept = Kept()
    inside = chain(policies, Script([rule]).answer)
    model = GatewayModel(inside, "m", caller=Caller(team="search", key="ci"), recorder=kept, stream=stream)
    assert model.is_counted
    with suppress(SpangateError, LookupError):
        await Agent("a", None, model)("go", thread="t")
    [seen] = kept.seen
    assert (seen.outcome, seen.status, seen.error_code) == ended
    assert (seen.op, seen.model, seen.stream, seen.team, seen.key, seen.thread) == ("chat", "m", stream, "search", "ci", "t")
    assert seen.reply
    assert not GatewayModel(inside, "m").is_counted


async def test_a_reader_that_leaves_has_aborted_it() -> None:
    kept = Kept()
    answer = await GatewayModel(Script([HELLO]).answer, "m", recorder=kept)("go")
    await answer.aclose()
    assert [seen.outcome for seen in kept.seen] == ["aborted"]


def gives_none(call: Call, next: Next) -> Any:
    return None


async def raises_late(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            yield event
            if isinstance(event, Delta):
                raise LookupError("a defect")


async def no_end(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            if not isinstance(event, Closed):
                yield event


async def asks_twice(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for _ in events:
            pass
    async with pulling(next(call)) as events:
        async for event in events:
            yield event


@pytest.mark.fault("AGT-10")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    ("faulty", "asked", "outcome"),
    [
        (breaks, 0, "failed"),
        (gives_none, 0, "failed"),
        (raises_late, 1, "failed"),
        (no_end, 1, "failed"),
        (asks_twice, 2, "completed"),
    ],
)
async def test_a_faulty_policy_of_the_gateway_is_accounted_once(faulty: Any, asked: int, outcome: str, position: int, stream: bool) -> None:
    """A call that ends twice raises; each request that was made is one attempt that has ended."""
    kept, passing = Kept(), TimeLimit()
    stack: list[Any] = [Access(), passing]
    stack.insert(position, faulty)

    def to_target(call: Call, next: Next) -> AsyncIterator[Event]:
        return next(call.to(Target("script", "m")))

    inside = chain([Around(), *stack, to_target], chain([Attempt()], Script([HELLO]).answer))
    model = GatewayModel(inside, "m", recorder=kept, stream=stream)
    if outcome == "completed":
        assert (await Agent("a", None, model)("go")).text == "one two three"
    else:
        with pytest.raises((LookupError, TypeError, OurFault)):
            await Agent("a", None, model)("go")
    [seen] = kept.seen
    assert (seen.outcome, len(seen.attempts)) == (outcome, asked)
    assert all(attempt.ended and attempt.outcome for attempt in seen.attempts)
    assert (seen.usage is not None) == (outcome == "completed")
