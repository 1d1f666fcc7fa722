"""agent/agent.py: a hundred replies of ten agents at once, all through the same middlewares: nothing of one is in another."""

from __future__ import annotations

import asyncio
from typing import Any

from spangate.agent import (
    Agent,
    ChatModelCandidate,
    ContinueOnceMiddleware,
    DynamicSystemPromptMiddleware,
    ModelFallbackMiddleware,
    ModelRouterMiddleware,
    RateLimitMiddleware,
    ReplyBudgetControlMiddleware,
    Stop,
    Timed,
    TimingMiddleware,
    TracingMiddleware,
    calls,
)
from spangate.agent.models.labels import reply_headers

from acceptance.every import Talker, echo
from acceptance.lines import Spans, assert_history_valid, said

AGENTS, EACH = 10, 10


class Labelled(Talker):
    """Remembers the headers that a gateway would get, by what the user said."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.headers: dict[str, list[dict[str, str]]] = {}

    async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Any) -> Any:
        text = next(msg.text for msg in messages if msg.role == "user")
        self.headers.setdefault(text, []).append(reply_headers())
        answer = super().pieces(messages, tools, tool_choice, settings)
        try:
            async for piece in answer:
                yield piece
        finally:
            await answer.aclose()


async def test_a_hundred_replies_share_their_middlewares_and_nothing_else() -> None:
    spans, timed, model = Spans(), list[Timed](), Labelled()
    router, budget = ScriptedRouter(), ReplyBudgetControlMiddleware(10_000)
    shared = [
        TracingMiddleware(spans.provider),
        TimingMiddleware(timed.append),
        budget,
        Stop.when(lambda step: step.number > 10),
        DynamicSystemPromptMiddleware(lambda agent: f"{agent.name} {agent.thread_id}"),
        ModelFallbackMiddleware(model),
        ModelRouterMiddleware(router, [ChatModelCandidate("it", model, "everything")]),
        ContinueOnceMiddleware("once more"),
        RateLimitMiddleware(0),
    ]
    agents = [Agent(f"agent{number}", None, Talker(model="own"), [echo], shared) for number in range(AGENTS)]
    asked = [(bot, f"words of {bot.name} number {number} " + "x" * number) for bot in agents for number in range(EACH)]
    streams = [bot.stream(text, thread=f"t{number}") for number, (bot, text) in enumerate(asked)]
    answers = await asyncio.gather(*(stream.result() for stream in streams))

    for number, ((bot, text), stream, answer) in enumerate(zip(asked, streams, answers, strict=True)):
        assert answer.text == f"{text} said"
        # The state: only its own words, its own hint, its own budget.
        assert stream.view.state.of(budget)["used"] == 3 * (len(text) + 3) + router.cost
        others = {other for _, other in asked if other != text}
        assert not any(msg.text in others for msg in stream.view.state.context)
        history = await bot.history(f"t{number}")
        assert_history_valid(history)
        # The prompt: made for this agent and thread.
        bodies = [body for body in model.calls if body["messages"][1]["content"] == text]
        assert len(bodies) == 3
        assert {body["messages"][0]["content"] for body in bodies} == {f"## Current Context\n{bot.name} t{number}"}
        # The headers and the trace: one reply, one thread, one trace.
        [reply] = [span for span in spans.named("invoke_agent") if said(span)["spangate.reply.id"] == stream.reply_id]
        assert reply.context is not None
        assert said(reply)["gen_ai.conversation.id"] == f"t{number}"
        assert reply.name == f"invoke_agent {bot.name}"
        headers = model.headers[text]
        assert {header["x-spangate-reply"] for header in headers} == {stream.reply_id}
        assert {header["x-spangate-thread"] for header in headers} == {f"t{number}"}
        assert {header["traceparent"].split("-")[1] for header in headers} == {f"{reply.context.trace_id:032x}"}
        inside = [span for span in spans.ended if span.context and span.context.trace_id == reply.context.trace_id]
        assert {said(span)["spangate.reply.id"] for span in inside} == {stream.reply_id}
        assert sorted(span.name.split()[0] for span in inside) == ["chat"] * 4 + ["execute_tool"] * 2 + ["invoke_agent"]
    spans.assert_each_ended_once()
    assert len({span.context.trace_id for span in spans.ended if span.context}) == AGENTS * EACH
    assert len(timed) == 4 * AGENTS * EACH
    assert {(each.agent, each.outcome) for each in timed} == {(bot.name, "ok") for bot in agents}


class ScriptedRouter(Talker):
    """Chooses `it`, whatever is asked."""

    cost = 2 + 1

    def __init__(self) -> None:
        super().__init__(model="router")
        self.script = type(self.script)([{"answer": calls("generate_structured_output", model="it"), "usage": {"input": 2, "output": 1}}])
