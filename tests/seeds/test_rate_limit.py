"""The seed's RateLimitMiddleware: calls that follow each other are kept apart."""

from __future__ import annotations

import time
from typing import Any

from spangate.agent import Agent, MiddlewareBase, ScriptedModel, calls, tool

from seeds.sample import run

# The sample reads the wall clock and waits on the loop's, which counts in milliseconds.
ROUNDED = 0.002


@tool
def look() -> str:
    """Look."""
    return "seen"


class Begins(MiddlewareBase):
    """Notes when a model call begins."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.at.append(time.monotonic())
        return await next_handler()


async def test_calls_of_one_reply_and_of_the_next_are_apart() -> None:
    limit, begins = run("agentscope/rate_limit").RateLimitMiddleware(min_interval=0.05), Begins()
    model = ScriptedModel.saying(calls("look"), "Done.", "Done again.")
    agent = Agent("assistant", None, model, [look], [limit, begins])
    assert [(await agent("Go.")).text for _ in range(2)] == ["Done.", "Done again."]
    assert len(begins.at) == 3
    assert all(later - earlier >= 0.05 - ROUNDED for earlier, later in zip(begins.at, begins.at[1:], strict=False))


async def test_the_first_call_does_not_wait() -> None:
    limit, begins = run("agentscope/rate_limit").RateLimitMiddleware(), Begins()
    started = time.monotonic()
    await Agent("assistant", None, ScriptedModel(), middlewares=[limit, begins])("Go.")
    assert begins.at[0] - started < 0.9
