"""agent/agent.py: what middlewares cost. Processor time, the best of many runs, in turns, so that noise hits both sides."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

from spangate.agent import (
    Agent,
    Block,
    ChatModelBase,
    ChatResponse,
    ChatUsage,
    DynamicSystemPromptMiddleware,
    ModelFallbackMiddleware,
    ModelStream,
    ReplyBudgetControlMiddleware,
    Stop,
    TextBlock,
    Timed,
    TimingMiddleware,
    ToolCallBlock,
    TracingMiddleware,
    tool,
)

STEP, NOTHING = 500e-6, 5e-6
PACE = 85e-6
"""Seconds that `paced` takes where the limits hold; a machine that is slower, or busy, gets as much more."""


STEPS = 10


class Says(ChatModelBase):
    """Costs as little as an answer can: calls a tool until it has done so for all steps but the last, or none."""

    def __init__(self, model: str, steps: int = 1) -> None:
        super().__init__(model)
        self._steps = steps

    async def __call__(self, messages: Any, tools: Any = None, tool_choice: Any = None, **settings: Any) -> ChatResponse | ModelStream:
        if self._steps == 1:
            return ChatResponse.of("hi", model="m", finish="stop")
        made = sum(block.type == "tool_call" for msg in messages for block in msg.content)
        block: Block = TextBlock("done") if made == self._steps - 1 else ToolCallBlock(f"c{made}", "look")
        return ModelStream(self._pieces(block))

    async def _pieces(self, block: Block) -> AsyncIterator[ChatResponse]:
        usage = ChatUsage(10, 5)
        for text in ("so ", "be ", "it"):
            yield ChatResponse([TextBlock(text, "t")], is_last=False)
        yield ChatResponse([TextBlock("so be it", "t"), block], model="m", finish="stop", usage=usage)


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def best(*agents: Agent | Pace, rounds: int = 40, replies: int = 50) -> list[float]:
    """Seconds of one reply, of each agent, by turns."""
    found = [float("inf")] * len(agents)
    gc.disable()
    try:
        for _ in range(rounds):
            for number, agent in enumerate(agents):
                began = time.process_time()
                for _ in range(replies):
                    await agent("hi")
                found[number] = min(found[number], (time.process_time() - began) / replies)
    finally:
        gc.enable()
    return found


async def paced() -> None:
    """What a loop does, without being ours: generators around generators, and small objects."""

    async def inside() -> AsyncIterator[dict[str, int]]:
        for number in range(40):
            yield {"number": number}

    async def around(events: AsyncIterator[dict[str, int]]) -> AsyncIterator[dict[str, int]]:
        async with AsyncExitStack():
            async for event in events:
                yield {**event, "more": len(str(event))}

    async for _ in around(around(around(inside()))):
        pass


class Pace:
    """Is awaited like an agent."""

    async def __call__(self, inputs: Any) -> Any:
        await paced()


async def context() -> str:
    return "now"


async def noted(timed: Timed) -> None:
    assert timed.outcome == "ok"


def test_a_step_with_five_middlewares_takes_half_a_millisecond_at_most() -> None:
    # On a loop of its own: the one of the tests looks at each generator, and that costs as much again.
    step, pace = asyncio.run(a_step_with_five_middlewares())
    assert step <= STEP * max(1.0, pace / PACE)


async def a_step_with_five_middlewares() -> tuple[float, float]:
    """Its seconds, and those of the pace."""
    five = [
        TimingMiddleware(noted),
        ReplyBudgetControlMiddleware(1_000_000),
        DynamicSystemPromptMiddleware(context),
        Stop.unless(True),
        ModelFallbackMiddleware(Says("spare")),
    ]
    agent = Agent("a", "Be quick.", Says("m", STEPS), [look], five)
    assert (await agent("hi")).usage == ChatUsage(10 * STEPS, 5 * STEPS)
    reply, pace = await best(agent, Pace(), rounds=30, replies=5)
    return reply / STEPS, pace


def test_tracing_without_a_provider_adds_five_microseconds_at_most() -> None:
    """As it is most often written: the process is asked for its providers at each reply, and has none."""
    added, pace = asyncio.run(tracing_without_a_provider())
    assert added <= NOTHING * max(1.0, pace / PACE)


async def tracing_without_a_provider() -> tuple[float, float]:
    """The seconds that it adds to a reply, and those of the pace."""
    model, tracing = Says("m"), TracingMiddleware()
    assert not tracing.takes_part()
    plain, traced = Agent("a", None, model), Agent("a", None, model, middlewares=[tracing])
    pace = (await best(Pace(), rounds=10, replies=5))[0]
    # One batch's noise is larger than what is measured; the middle of many differences is not.
    differences = []
    for _ in range(150):
        [without] = await best(plain, rounds=1, replies=10)
        [with_it] = await best(traced, rounds=1, replies=10)
        differences.append(with_it - without)
    return median(differences), pace
