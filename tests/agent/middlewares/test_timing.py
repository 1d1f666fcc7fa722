"""agent/middlewares/timing.py: what is told of each call. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from spangate.agent import MiddlewareBase, ModelFallbackMiddleware, ScriptedModel, Stop, TextBlockDeltaEvent, Timed, TimingMiddleware
from spangate.call.errors import UpstreamError

from acceptance.lines import agent, cancelled_amid


async def test_the_default_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "spangate.agent.middlewares.timing"):
        await agent(ScriptedModel(), TimingMiddleware())("hi")
    [line] = caplog.messages
    assert line.startswith("a → scripted: 0.0")
    assert line.endswith("(ok)")


async def test_it_names_the_model_that_answered() -> None:
    timed: list[Timed] = []
    broken, spare = ScriptedModel([{"fault": {"status": 503}}], model="broken"), ScriptedModel(model="spare")
    await agent(broken, TimingMiddleware(timed.append), ModelFallbackMiddleware(spare), TimingMiddleware(timed.append))("hi")
    assert [(each.model, each.outcome) for each in timed] == [("broken", "error"), ("spare", "ok"), ("spare", "ok")]


async def test_a_call_that_is_left_or_stopped_was_cancelled() -> None:
    timed: list[Timed] = []
    stream = agent(ScriptedModel.saying("a b c"), TimingMiddleware(timed.append)).stream("hi")
    async with stream:
        async for event in stream:
            if isinstance(event, TextBlockDeltaEvent):
                break
    await agent(ScriptedModel(), TimingMiddleware(timed.append), Stop.when(True))("hi")
    await cancelled_amid(TimingMiddleware(timed.append))
    assert [each.outcome for each in timed] == ["cancelled"] * 3


async def test_internal_calls_are_told_by_their_purpose() -> None:
    class Asks(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            await agent.ask("?", purpose="guard", by=self)

    timed: list[Timed] = []
    await agent(ScriptedModel(), TimingMiddleware(timed.append), Asks())("hi")
    assert [each.purpose for each in timed] == ["guard", "main"]


def test_a_sink_is_a_function() -> None:
    with pytest.raises(ValueError, match="sink must be 'log' or a function"):
        TimingMiddleware("metric")  # type: ignore[arg-type]


async def test_a_sink_that_fails_fails_no_call_and_hides_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    def broken(timed: Timed) -> None:
        raise KeyError("CANARY")

    assert (await agent(ScriptedModel(), TimingMiddleware(broken))("hi")).text == "hi"
    with pytest.raises(UpstreamError):
        await agent(ScriptedModel([{"fault": {"status": 503}}]), TimingMiddleware(broken))("hi")
    await cancelled_amid(TimingMiddleware(broken))
    assert caplog.messages == ["the sink of TimingMiddleware failed: KeyError"] * 3
