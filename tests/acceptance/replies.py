"""2.3 budget, 2.12 continue-once, 2.29 stop, 2.30 step log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from spangate.agent import (
    BatchPlan,
    ChatResponse,
    ContinueOnceMiddleware,
    HintBlock,
    HintBlockEvent,
    MiddlewareBase,
    MiddlewareFault,
    ModelFallbackMiddleware,
    Msg,
    NoProgress,
    PendingStep,
    ReActConfig,
    ReplyBudgetControlMiddleware,
    ReplyEndEvent,
    ReplyFinishedReason,
    ScriptedModel,
    Stop,
    TextBlockDeltaEvent,
    calls,
)
from spangate.agent.messages.msg import ChatUsage

from acceptance.lines import accepts, agent, assert_history_valid, endless, kinds, stepping, told

R = ReplyFinishedReason
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


def hints(context: list[Msg]) -> list[HintBlock]:
    return [block for msg in context for block in msg.blocks(HintBlock)]


def choices(model: ScriptedModel) -> list[Any]:
    return [call.get("tool_choice") for call in model.calls]


# ---- budget


@accepts("budget 100, weights 1/2, call uses 30 in/40 out (110) with a tool call → tool runs, next call has tool_choice none and one hint")
async def over_the_budget() -> None:
    model = stepping(1, usage={"input": 30, "output": 40})
    stream = agent(model, ReplyBudgetControlMiddleware(100, 1, 2)).stream("go")
    events = await told(stream)
    assert kinds(events).count("TOOL_RESULT_END") == 1
    assert choices(model) == [None, "none"]
    [hint] = hints(stream.view.state.context)
    assert [event.hint for event in events if isinstance(event, HintBlockEvent)] == [hint.hint]
    assert model.calls[1]["messages"][-1] == {"role": "user", "content": hint.hint}


@accepts("exactly equal to budget → counts as exhausted")
async def on_the_budget() -> None:
    for budget, choice in ((110, "none"), (111, None)):
        model = stepping(1, usage={"input": 30, "output": 40})
        await agent(model, ReplyBudgetControlMiddleware(budget, 1, 2))("go")
        assert choices(model) == [None, choice]


@accepts("two replies on one agent → second starts at 0")
async def the_next_reply() -> None:
    model = endless({"input": 60, "output": 0})
    bot = agent(model, ReplyBudgetControlMiddleware(100), thread="t")
    for _ in range(2):
        await bot("go")
    assert choices(model) == [None, None, "none"] * 2


class KeepsBack(MiddlewareBase):
    """Keeps back the first `times` ends."""

    def __init__(self, times: int = 1, hint: str = "") -> None:
        self.times, self.hint = times, hint

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        left = self.times
        async with aclosing(next_handler()) as events:
            async for event in events:
                if isinstance(event, ReplyEndEvent) and left:
                    left -= 1
                    continue
                yield event


@accepts("outer middleware swallows ReplyEnd after exhaustion → same budget continues, no KeyError")
async def the_same_budget_goes_on() -> None:
    model = endless({"input": 60, "output": 0})
    stream = agent(model, KeepsBack(), ReplyBudgetControlMiddleware(100)).stream("go")
    await stream.result()
    assert choices(model) == [None, None, "none", "none"]
    assert len(hints(stream.view.state.context)) == 1


@accepts("structured schema pending at exhaustion → structured tool still callable, others not offered")
async def what_is_owed() -> None:
    model = ScriptedModel([
        {"answer": calls("look"), "usage": {"input": 200, "output": 1}, "times": 1},
        {"answer": calls("generate_structured_output", sum=3)},
    ])  # fmt: skip
    answer = await agent(model, ReplyBudgetControlMiddleware(100))("go", SCHEMA)
    assert answer.structured_output == {"sum": 3}
    assert [[tool["function"]["name"] for tool in call["tools"]] for call in model.calls] == [
        ["look", "generate_structured_output"],
        ["generate_structured_output"],
    ]
    assert choices(model)[1] is None, "a choice is forced only where it was forced before"
    assert "generate_structured_output" in model.calls[1]["messages"][-1]["content"]


@accepts("3 more steps after exhaustion → exactly one hint in context")
async def one_hint() -> None:
    stubborn = ScriptedModel([{"answer": calls("look"), "usage": {"input": 99}, "times": 4}, {"answer": {"text": "done"}}])
    stream = agent(stubborn, ReplyBudgetControlMiddleware(50)).stream("go")
    assert (await stream.result()).text == "done"
    assert choices(stubborn) == [None, "none", "none", "none", "none"]
    assert len(hints(stream.view.state.context)) == 1


@accepts("stream cancelled mid-way with partial usage → partial usage counted")
async def partial_usage() -> None:
    model = ScriptedModel([{"answer": {"text": "a b c d"}, "usage": "cumulative"}])

    class Told(MiddlewareBase):
        """A model whose pieces tell the usage so far, as some do."""

        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return pieces(await next_handler())

        innermost = frozenset({"on_model_call"})

    async def pieces(answer: Any) -> AsyncIterator[ChatResponse]:
        used = 0
        async with aclosing(answer):
            async for piece in answer:
                used += 1
                piece.usage = ChatUsage(10, used)
                yield piece

    budget = ReplyBudgetControlMiddleware(1000)
    stream = agent(model, budget, Told()).stream("go")
    async with stream:
        async for event in stream:
            if isinstance(event, TextBlockDeltaEvent) and "b" in event.delta:
                break
    assert stream.view.state.of(budget) == {"used": 12.0}


# ---- continue-once


@accepts("completed reply → one more round, same reply id, one ReplyStart, one ReplyEnd")
async def once_more() -> None:
    model = ScriptedModel.saying("first", "second")
    stream = agent(model, ContinueOnceMiddleware("look again")).stream("go")
    events = await told(stream)
    assert {event.reply_id for event in events} == {stream.reply_id}
    assert [kinds(events).count(kind) for kind in ("REPLY_START", "REPLY_END", "MODEL_CALL_START")] == [1, 1, 2]
    assert stream.message is not None
    assert stream.message.text == "second"
    assert model.calls[1]["messages"][-1]["content"] == "look again"


@accepts("interrupted end → passed through")
async def an_interrupt_is_an_end() -> None:
    model = ScriptedModel([{"fault": {"stall_after": 1}, "answer": {"text": "a b c"}}])
    stream = agent(model, ContinueOnceMiddleware()).stream("go")
    async for event in stream:
        if isinstance(event, TextBlockDeltaEvent):
            asyncio.get_running_loop().call_soon(stream.interrupt)
    assert stream.message is not None
    assert stream.message.finished_reason is R.INTERRUPTED
    assert len(model.calls) == 1


@accepts("max-iters end without freeing a round → error, not a busy loop")
async def no_round_is_free() -> None:
    model = endless()
    with pytest.raises(NoProgress):
        await agent(model, KeepsBack(99), react_config=ReActConfig(max_iters=2))("go")
    assert len(model.calls) <= 4
    freed = endless()
    answer = await agent(freed, ContinueOnceMiddleware(), react_config=ReActConfig(max_iters=2))("go")
    assert (answer.finished_reason, len(freed.calls)) == (R.EXCEED_MAX_ITERS, 5)


@accepts("two stacked continue middlewares → bounded by sum")
async def two_of_them() -> None:
    model = ScriptedModel()
    events = await told(agent(model, ContinueOnceMiddleware(max_continues=2), ContinueOnceMiddleware()).stream("go"))
    assert len(model.calls) == 1 + 2 + 1
    assert kinds(events).count("REPLY_END") == 1


@accepts("predicate false → untouched")
async def it_need_not() -> None:
    model = ScriptedModel()
    await agent(model, ContinueOnceMiddleware(predicate=lambda agent, event: agent.name != "a"))("go")
    assert len(model.calls) == 1


# ---- stop


@accepts("step 0 stop → no upstream call, empty text, no steps, 0 usage")
async def stopped_at_once() -> None:
    model = ScriptedModel()
    stream = agent(model, Stop.when(True)).stream("go")
    answer = await stream.result()
    assert (answer.text, answer.finished_reason, answer.usage) == ("", R.CANCELLED, ChatUsage())
    assert (len(model.calls), stream.view.steps, stream.view.attempts) == (0, [], [])


@accepts("after step 1 → step and tool results kept")
async def stopped_later() -> None:
    stream = agent(endless({"input": 10, "output": 5}), Stop.when(lambda step: step.number == 1)).stream("go")
    answer = await stream.result()
    [step] = stream.view.steps
    assert [result.text for result in step.results] == ["seen it"]
    assert answer.usage == ChatUsage(10, 5)


@accepts("streaming → finish cancelled")
async def stopped_stream() -> None:
    events = await told(agent(endless(), Stop.when(lambda step: step.usage.input_tokens >= 0 and step.number == 1)).stream("go"))
    [end] = [event for event in events if isinstance(event, ReplyEndEvent)]
    assert end.finished_reason is R.CANCELLED


class StepLogger(MiddlewareBase):
    """As in Laravel's guide."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        step: PendingStep = agent.step
        self.said.append(("starting", step.number, step.usage.input_tokens))
        return (await next_handler()).then(lambda response: self.said.append(("responded", step.number)))


@accepts("Stop before logger → no start log")
async def stop_before_the_logger() -> None:
    logger = StepLogger()
    await agent(endless({"input": 10}), Stop.when(lambda step: step.usage.input_tokens >= 10), logger)("go")
    assert logger.said == [("starting", 0, 0), ("responded", 0)]
    behind = StepLogger()
    await agent(endless({"input": 10}), behind, Stop.when(lambda step: step.usage.input_tokens >= 10))("go")
    assert behind.said == [("starting", 0, 0), ("responded", 0), ("starting", 1, 10)]


@accepts("unless mirrors when")
async def the_mirror() -> None:
    for condition in (True, False, lambda step: step.number == 1, lambda step: step.number != 1):
        counts = []
        opposite: Any = (lambda step, same=condition: not same(step)) if callable(condition) else not condition
        for layer in (Stop.when(condition), Stop.unless(opposite)):
            model = stepping(2)
            await agent(model, layer)("go")
            counts.append(len(model.calls))
        assert counts[0] == counts[1]


@accepts("stop leaves history valid")
async def valid_after_a_stop() -> None:
    for number in range(3):
        bot = agent(stepping(3), Stop.when(lambda step, number=number: step.number == number), thread="t")
        await bot("go")
        assert_history_valid(await bot.history("t"))
        again = await bot("and then?")
        assert again.finished_reason is not None


# ---- step log


@accepts("two steps → second sees first's usage")
async def the_step_before() -> None:
    seen: list[tuple[int, ChatUsage, list[str]]] = []

    class Look(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            step = agent.step
            seen.append((step.number, step.usage, [each.text or each.tool_calls[0].name for each in step.steps]))

    await agent(stepping(1, usage={"input": 3, "output": 4, "cached": 1}), Look())("go")
    assert seen == [(0, ChatUsage(), []), (1, ChatUsage(3, 4, 1), ["look"])]


@accepts("tool crash → step kept")
async def a_tool_breaks() -> None:
    class Breaks(MiddlewareBase):
        async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> BatchPlan:
            raise MiddlewareFault("Breaks", "on_tool_calls", "broke")

    stream = agent(endless({"input": 5}), Breaks()).stream("go")
    with pytest.raises(MiddlewareFault):
        await stream.result()
    [step] = stream.view.steps
    assert (step.tool_calls[0].name, step.usage) == ("look", ChatUsage(5, step.usage.output_tokens if step.usage else 0))


@accepts("short-circuited step → recorded with attempted=false and no usage")
async def a_short_cut() -> None:
    class Answers(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return ChatResponse.of("from memory")

    stream = agent(ScriptedModel(), Answers()).stream("go")
    assert (await stream.result()).text == "from memory"
    [step] = stream.view.steps
    assert (step.attempted, step.usage, step.text) == (False, None, "from memory")


@accepts("internal calls listed separately, not as steps")
async def internal_calls() -> None:
    class Asks(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            await agent.ask("which?", purpose="guard", by=self)

    stream = agent(stepping(0, usage={"input": 2, "output": 3}), Asks()).stream("go")
    answer = await stream.result()
    assert [(each.purpose, each.usage) for each in stream.view.attempts] == [("guard", ChatUsage(2, 3)), ("main", ChatUsage(2, 3))]
    assert len(stream.view.steps) == 1
    assert answer.usage == ChatUsage(2, 3)


@accepts("failed attempt usage kept under attempts")
async def a_failed_attempt() -> None:
    class Tells(ScriptedModel):
        """Tells what it used, and fails."""

        async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Any) -> AsyncIterator[ChatResponse]:
            yield ChatResponse([], is_last=True, usage=ChatUsage(8, 0), finish="stop")

    stream = agent(Tells(model="broken"), ModelFallbackMiddleware(ScriptedModel.saying("saved", model="spare"))).stream("go")
    assert (await stream.result()).text == "saved"
    [step] = stream.view.steps
    assert [(each.model, each.error, each.usage) for each in step.attempts] == [
        ("broken", "NoAnswer", ChatUsage(8, 0)),
        ("spare", "", step.usage),
    ]
    assert stream.view.usage == step.usage
