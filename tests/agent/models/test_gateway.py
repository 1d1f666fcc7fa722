"""agent/models/gateway.py: a gateway's chain, asked in process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spangate.agent import Agent, GatewayModel, calls, tool
from spangate.call.call import Call, Caller
from spangate.call.chain import chain
from spangate.call.errors import Refused
from spangate.call.events import Event
from spangate.call.script import Script
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
