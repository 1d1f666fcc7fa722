"""What every middleware promises, whatever else it does. One conversation for all: two tools at once, then an answer."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    ChatModelCandidate,
    ChatResponse,
    ContinueOnceMiddleware,
    DynamicSystemPromptMiddleware,
    MiddlewareBase,
    ModelFallbackMiddleware,
    ModelRouterMiddleware,
    RateLimitMiddleware,
    ReplyBudgetControlMiddleware,
    ScriptedModel,
    Stop,
    TimingMiddleware,
    TracingMiddleware,
    calls,
    tool,
)
from spangate.call.call import Call
from spangate.call.rules import Rule

from acceptance.lines import Spans, agent, assert_history_valid, assert_valid, turned


class Talker(ScriptedModel):
    """Calls two tools with what the user said, then says it. Lets the loop turn between its pieces."""

    def __init__(self, *, stream: bool = True, model: str = "talker") -> None:
        super().__init__([self._answer], model=model, stream=stream)

    @staticmethod
    def _answer(call: Call) -> Rule:
        messages = call.body.parsed()["messages"]
        text = next(message["content"] for message in messages if message["role"] == "user")
        acted = any(message["role"] == "tool" for message in messages)
        twice = {
            "tool_calls": [*calls("echo", id=f"{text}-1", of=text)["tool_calls"], *calls("echo", id=f"{text}-2", of=text)["tool_calls"]]
        }
        return Rule.model_validate({"answer": {"text": f"{text} said"} if acted else twice, "usage": {"input": len(text), "output": 3}})

    async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Any) -> AsyncIterator[ChatResponse]:
        await turned()
        async with aclosing(super().pieces(messages, tools, tool_choice, settings)) as answer:  # type: ignore[type-var]
            async for piece in answer:
                yield piece
                await turned()


@tool
async def echo(of: str) -> str:
    """Say it again."""
    await turned()
    return of


class Each:
    """One middleware. `make(stream, **options)` makes one with its models; `option` takes a function, which says `says`; `model` is the
    agent's own model."""

    def __init__(self, make: Callable[..., Any], *, option: str = "", says: Any = None, broken: bool = False) -> None:
        self.make = make
        self.option = option
        self.says = says
        self._broken = broken

    def model(self, **options: Any) -> ScriptedModel:
        return ScriptedModel([{"fault": {"status": 503}}], model="broken") if self._broken else Talker(**options)


def routed(stream: bool = True, **options: Any) -> ModelRouterMiddleware:
    model = Talker(stream=stream, model="fast")
    router = ScriptedModel([{"answer": calls("generate_structured_output", model="fast")}], stream=stream)
    return ModelRouterMiddleware(router, [ChatModelCandidate("fast", model, "all")], **options)


MIDDLEWARES = {
    "tracing": Each(lambda stream=True, **options: TracingMiddleware(Spans().provider, **options), option="conversation_id_fn", says="c"),
    "timing": Each(lambda stream=True, sink=lambda timed: None: TimingMiddleware(sink), option="sink"),
    "reply budget": Each(lambda stream=True: ReplyBudgetControlMiddleware(3)),
    "model router": Each(routed),
    "rate limit": Each(lambda stream=True, **options: RateLimitMiddleware(0.001, **options), option="key", says="k"),
    "dynamic system prompt": Each(
        lambda stream=True, context_fn=lambda: "now": DynamicSystemPromptMiddleware(context_fn, clock=lambda: 0),
        option="context_fn",
        says="now",
    ),
    "model fallback": Each(
        lambda stream=True, **options: ModelFallbackMiddleware(Talker(stream=stream, model="spare"), **options),
        option="fallback_on",
        says=True,
        broken=True,
    ),
    "continue once": Each(lambda stream=True, **options: ContinueOnceMiddleware(**options), option="predicate", says=True),
    "stop": Each(lambda stream=True, condition=lambda step: step.number == 1: Stop.when(condition), option="condition", says=False),
}


async def outcome(bot: Agent, text: str) -> dict[str, Any]:
    """What became of a reply, without ids and times."""
    stream = bot.stream(text)
    answer = await stream.result()
    state = stream.view.state
    context = [
        (msg.role, [(block.type, getattr(block, "text", None) or getattr(block, "input", None)) for block in msg.content])
        for msg in state.context
    ]
    return {
        "text": answer.text,
        "reason": answer.finished_reason,
        "usage": answer.usage,
        "state": state.reply,
        "context": context,
        "attempts": [(each.model, each.purpose, each.usage) for each in stream.view.attempts],
    }


async def shared(each: Each) -> None:
    alone = [await outcome(agent(each.model(), each.make(), tools=[echo]), text) for text in ("alpha", "beta and more")]
    bot = agent(each.model(), each.make(), tools=[echo])
    assert await asyncio.gather(*(outcome(bot, text) for text in ("alpha", "beta and more"))) == alone


async def streamed_or_not(each: Each) -> None:
    found = [await outcome(agent(each.model(stream=stream) if not each._broken else each.model(), each.make(stream), tools=[echo]), "alpha")
             for stream in (True, False)]  # fmt: skip
    assert found[0] == found[1]


async def cancelled_anywhere(each: Each) -> None:
    cancelled = finished = 0
    for turn in range(120):
        spans = Spans()
        bot = agent(each.model(), TracingMiddleware(spans.provider), each.make(), tools=[echo], thread="t")
        task = asyncio.create_task(bot("alpha"))
        await turned(turn)
        task.cancel()
        try:
            await task
            finished += 1
        except asyncio.CancelledError:
            cancelled += 1
        spans.assert_each_ended_once()
        assert_history_valid(await bot.history("t"))
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert cancelled > 10
    assert finished or each.option == "key", "the rate limit waits for real time"


async def never_holds_up_the_loop(each: Each) -> None:
    if not each.option:
        made = type(each.make())
        options = inspect.signature(made.__init__).parameters.values()
        assert not [option.name for option in options if "Callable" in str(option.annotation)]
        return
    turns, asked = threading.Event(), []

    def blocking(*args: Any) -> Any:
        asked.append(threading.current_thread())
        assert turns.wait(5), "the loop stood still while a plain function ran"
        return each.says

    bot = agent(each.model(), each.make(**{each.option: blocking}), tools=[echo])
    asyncio.get_running_loop().call_later(0.01, turns.set)
    await bot("alpha")
    assert asked
    assert threading.main_thread() not in asked


class Control(BaseException):
    """Flow, not failure."""


class Raises(MiddlewareBase):
    """Whichever model is asked."""

    innermost = frozenset({"on_model_call"})

    def __init__(self, flow: BaseException) -> None:
        self.flow = flow

    def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        if agent.purpose == "main":
            raise self.flow
        return next_handler()


async def lets_control_flow_pass(each: Each) -> None:
    flow = Control()
    layer = each.make()
    with pytest.raises(Control) as raised:
        await agent(Talker(), layer, Raises(flow), tools=[echo])("alpha")
    assert raised.value is flow
    assert not getattr(flow, "__notes__", [])
    for target in getattr(layer, "_targets", ()):
        assert not target.calls


async def valid_history(each: Each) -> None:
    model, layer = each.model(), each.make()
    bot = agent(model, layer, tools=[echo], thread="t")
    for text in ("alpha", "beta"):
        await bot(text)
        assert_history_valid(await bot.history("t"))
    candidates = getattr(layer, "_candidates", {}).values()
    for asked in (model, *getattr(layer, "_targets", ()), *(candidate.model for candidate in candidates)):
        for body in asked.calls:
            assert_valid(body["messages"])


PROMISES: dict[str, Callable[[Each], Awaitable[None]]] = {
    "one instance shared by two concurrent replies → no value of one is visible in the other": shared,
    "streaming and non-streaming give the same final response, state, and usage": streamed_or_not,
    "cancel at any await → no orphan tool call, no leaked task, span ended once": cancelled_anywhere,
    "sync callables given as options don't block the event loop": never_holds_up_the_loop,
    "ControlFlow passes through untouched": lets_control_flow_pass,
    "history before and after is provider-valid": valid_history,
}
