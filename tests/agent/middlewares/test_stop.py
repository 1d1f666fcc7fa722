"""agent/middlewares/stop.py: what a condition is asked. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import MiddlewareBase, PendingStep, ReplyFinishedReason, ScriptedModel, StepResult, Stop, calls

from acceptance.lines import agent, stepping


async def test_the_condition_sees_the_step() -> None:
    seen: list[PendingStep] = []

    async def condition(step: PendingStep) -> bool:
        seen.append(step)
        return False

    await agent(stepping(1, usage={"input": 2, "output": 3}), Stop.when(condition))("go")
    assert [(step.number, step.usage.total_tokens, step.is_final) for step in seen] == [(0, 0, False), (1, 5, False)]


async def test_its_failure_is_raised() -> None:
    def fails(step: PendingStep) -> bool:
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        await agent(ScriptedModel(), Stop.when(fails))("go")


async def test_any_middleware_may_stop() -> None:
    class Mine(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return await next_handler() if agent.step.number == 0 else StepResult.stop()

    answer = await agent(ScriptedModel.saying({"text": "one", **calls("look")}), Mine())("go")
    assert answer.finished_reason is ReplyFinishedReason.CANCELLED


async def test_a_call_for_the_agents_own_ends_is_not_stopped() -> None:
    class Asks(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            said.append((await agent.ask("which?", purpose="router", by=self)).text)

    said: list[str] = []
    await agent(ScriptedModel(), Asks(), Stop.when(True))("go")
    assert said == ["which?"]


def test_a_condition_is_a_bool_or_a_function() -> None:
    with pytest.raises(ValueError, match="a condition is a bool or a function"):
        Stop.when("always")  # type: ignore[arg-type]
