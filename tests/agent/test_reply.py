"""agent/reply.py: rounds and ends: limits, going on after an end, structured output, what counts as an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from spangate.agent import (
    Agent,
    BatchPlan,
    ChatResponse,
    DeadlineExceeded,
    ExternalExecutionResultEvent,
    HintBlock,
    InvalidInput,
    MiddlewareBase,
    ModelStream,
    NoProgress,
    PermissionDecision,
    ReActConfig,
    ReplyEndEvent,
    ReplyFinishedReason,
    ScriptedModel,
    UserConfirmResultEvent,
    calls,
    tool,
)

R = ReplyFinishedReason


@tool
def look() -> str:
    """Look."""
    return "seen"


ALWAYS = [{"when": {"contains": ""}, "answer": {"tool_calls": [{"name": "look"}]}}]


def endless(text: str = "enough") -> ScriptedModel:
    """Calls a tool whenever it may."""

    def answer(call: Any) -> Any:
        from spangate.call.rules import Rule

        may = call.body.get("tool_choice") != "none"
        return Rule.model_validate({"answer": {"tool_calls": [{"name": "look"}]} if may else {"text": text}})

    return ScriptedModel([answer])


@pytest.mark.fault("AGT-08")
async def test_at_the_cap_one_answer_more_is_asked_for_without_tools() -> None:
    model = endless()
    answer = await Agent("a", None, model, [look], react_config=ReActConfig(max_iters=3))("go")
    assert (answer.text, answer.finished_reason) == ("enough", R.EXCEED_MAX_ITERS)
    assert [call.get("tool_choice") for call in model.calls] == [None, None, None, "none"]
    assert all("tools" in call for call in model.calls)


@pytest.mark.fault("AGT-08")
async def test_a_model_that_calls_tools_even_then_is_stopped_all_the_same() -> None:
    model = ScriptedModel(ALWAYS)
    answer = await Agent("a", None, model, [look], react_config=ReActConfig(max_iters=2))("go")
    assert (answer.text, answer.finished_reason, len(model.calls)) == ("", R.EXCEED_MAX_ITERS, 3)


@pytest.mark.fault("AGT-08")
async def test_a_model_that_calls_what_is_not_there_is_told_so_until_the_cap() -> None:
    model = ScriptedModel([{"answer": {"tool_calls": [{"name": "nowhere"}]}}])
    answer = await Agent("a", None, model, [look], react_config=ReActConfig(max_iters=5), thread="t")("go")
    assert (answer.finished_reason, len(model.calls)) == (R.EXCEED_MAX_ITERS, 6)
    results = [message["content"] for message in model.calls[-1]["messages"] if message["role"] == "tool"]
    assert results == ["There is no tool called 'nowhere'. There are: look."] * 5


@pytest.mark.fault("AGT-08")
@pytest.mark.parametrize("stop", ["deadline", "interrupt"])
async def test_an_endless_loop_that_never_waits_is_stopped_from_outside(stop: str) -> None:
    """Neither the model nor the tool gives the loop back by itself."""

    @tool(name="look")
    async def at_once() -> str:
        """Look."""
        return "seen"

    agent = Agent("a", None, ScriptedModel(ALWAYS), [at_once], react_config=ReActConfig(max_iters=1_000_000), thread="t")
    asyncio.get_running_loop().call_later(0.05, agent.interrupt if stop == "interrupt" else lambda: None)
    stream = agent.stream("go", deadline=0.05 if stop == "deadline" else None)
    if stop == "deadline":
        with pytest.raises(DeadlineExceeded) as caught:
            await stream.result()
        assert caught.value.code == "deadline_exceeded"
    else:
        assert (await stream.result()).finished_reason is R.INTERRUPTED
    assert 1 < len(stream.view.steps) < 10_000
    assert not stream.view.state.open_calls()


@pytest.mark.fault("AGT-08")
async def test_a_flood_from_every_tool_of_a_loop_is_cut_each_time() -> None:
    @tool(name="look")
    async def flood() -> str:
        """5 MB."""
        return "x" * 5_000_000

    model = ScriptedModel(ALWAYS)
    await Agent("a", None, model, [flood], react_config=ReActConfig(max_iters=3))("go")
    results = [message["content"] for message in model.calls[-1]["messages"] if message["role"] == "tool"]
    assert [len(each) < 201_000 and "of 5000000 characters were cut out here" in each for each in results] == [True] * 3


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5])
def test_limits_are_checked_at_once(wrong: Any) -> None:
    with pytest.raises(ValueError, match="max_iters must be a whole number of at least 1"):
        ReActConfig(max_iters=wrong)


class ContinueOnce(MiddlewareBase):
    """As in the seed's sample."""

    def __init__(self, free: bool = True, times: int = 1) -> None:
        self.free, self.times = free, times

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        left = self.times
        async for item in next_handler(**input_kwargs):
            if isinstance(item, ReplyEndEvent) and left:
                left -= 1
                if self.free:
                    agent.state.cur_iter = min(agent.state.cur_iter, agent.react_config.max_iters - 1)
                agent.state.append_context(agent.name, [HintBlock(hint="Check it again.")])
                continue
            yield item


async def test_a_swallowed_end_makes_another_round() -> None:
    model = ScriptedModel.saying("first", "second")
    stream = Agent("a", None, model, middlewares=[ContinueOnce()]).stream("go")
    types = [event.type async for event in stream]
    assert (types.count("REPLY_START"), types.count("REPLY_END"), types.count("MODEL_CALL_START")) == (1, 1, 2)
    assert stream.message is not None
    assert stream.message.text == "second"
    assert [message["content"] for message in model.calls[1]["messages"]] == ["go", "first", "Check it again."]


async def test_a_swallowed_end_at_the_cap_needs_a_free_round() -> None:
    config = ReActConfig(max_iters=2)
    answer = await Agent("a", None, endless(), [look], [ContinueOnce()], react_config=config)("go")
    assert answer.finished_reason is R.EXCEED_MAX_ITERS
    with pytest.raises(NoProgress, match="free a round"):
        await Agent("a", None, endless(), [look], [ContinueOnce(free=False, times=9)], react_config=config)("go")


async def test_thinking_alone_is_no_answer() -> None:
    model = ScriptedModel.saying({"reasoning": "hm", "text": ""}, "so")
    assert (await Agent("a", None, model)("go")).text == "so"
    assert len(model.calls) == 2


class Weather(BaseModel):
    """The weather."""

    city: str
    sunny: bool


async def test_structured_output_is_checked_and_asked_for_again() -> None:
    give = "generate_structured_output"
    model = ScriptedModel.saying(calls("look"), "It is sunny.", calls(give, city="Rome"), calls(give, city="Rome", sunny=True))
    answer = await Agent("a", None, model, [look])("go", Weather)
    assert answer.structured_output == {"city": "Rome", "sunny": True}
    assert Weather.model_validate(answer.structured_output) == Weather(city="Rome", sunny=True)
    forced = {"type": "function", "function": {"name": give}}
    assert [call.get("tool_choice") for call in model.calls] == [None, None, forced, forced]
    assert "sunny: Field required" in model.calls[3]["messages"][-1]["content"]
    assert [each["function"]["name"] for each in model.calls[0]["tools"]] == ["look", give]


async def test_structured_output_by_a_json_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = ScriptedModel.saying(calls("generate_structured_output", n="one"), calls("generate_structured_output", n=1))
    assert (await Agent("a", None, model)("go", schema)).structured_output == {"n": 1}
    assert "n: must be integer, not string" in model.calls[1]["messages"][-1]["content"]
    for odd in ("x", {"type": "array"}, int):
        with pytest.raises(InvalidInput):
            await Agent("a", None, ScriptedModel())("go", odd)


async def test_structured_output_that_never_comes_is_given_up() -> None:
    model = ScriptedModel.saying(*["no"] * 20)
    answer = await Agent("a", None, model, react_config=ReActConfig(max_iters=2, grace_iters=3))("go", Weather)
    assert (answer.structured_output, len(model.calls)) == (None, 4)


async def test_a_stop_before_the_first_step_asks_nobody() -> None:
    class Stop(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return ModelStream.stop() if agent.step.number >= self.at else await next_handler()

        def __init__(self, at: int) -> None:
            self.at = at

    model = ScriptedModel.saying(calls("look"), "never")
    answer = await Agent("a", None, model, [look], [Stop(0)])("go")
    assert (answer.text, answer.finished_reason, len(model.calls)) == ("", R.CANCELLED, 0)
    assert answer.usage is not None
    assert answer.usage.total_tokens == 0
    stream = Agent("a", None, model, [look], [Stop(1)]).stream("go")
    events = [event async for event in stream]
    assert isinstance(events[-1], ReplyEndEvent)
    assert events[-1].finished_reason == "cancelled"
    assert [(step.number, [result.text for result in step.results]) for step in stream.view.steps] == [(0, ["seen"])]


async def test_a_layer_may_answer_itself() -> None:
    class Cached(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> ChatResponse:
            return ChatResponse.of("from the cache")

    stream = Agent("a", None, ScriptedModel(), middlewares=[Cached()]).stream("go")
    assert (await stream.result()).text == "from the cache"
    assert [(step.attempted, step.usage) for step in stream.view.steps] == [(False, None)]


async def test_steps_and_usage_are_those_of_the_completed_steps() -> None:
    seen: list[tuple[int, int, bool]] = []

    class Note(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            seen.append((agent.step.number, agent.step.usage.output_tokens, agent.step.is_final))
            return await next_handler()

    model = ScriptedModel([{"answer": {"tool_calls": [{"name": "look"}]}, "usage": {"input": 5, "output": 7}}])
    await Agent("a", None, model, [look], [Note()], react_config=ReActConfig(max_iters=2))("go")
    assert seen == [(0, 0, False), (1, 7, False), (2, 14, True)]


async def test_a_plan_may_end_the_reply() -> None:
    class Limit(MiddlewareBase):
        async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> BatchPlan:
            plan: BatchPlan = await next_handler()
            for each in plan:
                plan = plan.answer(each.call.id, "The limit is reached.")
            return plan.ending("I may not look any more.")

    model = ScriptedModel.saying({"tool_calls": [{"name": "look"}, {"name": "look"}]})
    answer = await Agent("a", None, model, [look], [Limit()])("go")
    assert (answer.text, answer.finished_reason) == ("I may not look any more.", R.LIMIT)


async def test_a_rejection_may_end_the_reply() -> None:
    class No(MiddlewareBase):
        async def on_check_permission(self, agent: Any, input_kwargs: Any, next_handler: Any) -> PermissionDecision:
            return PermissionDecision.deny("Not here.")

    model = ScriptedModel.saying(calls("look"), "I could not.")
    assert (await Agent("a", None, model, [look], [No()])("go")).text == "I could not."
    assert model.calls[1]["messages"][-1]["content"] == "Not here."
    model = ScriptedModel.saying(calls("look"), "never")
    await Agent("a", None, model, [look], [No()], react_config=ReActConfig(stop_on_reject=True))("go")
    assert len(model.calls) == 1


async def test_a_hint_reaches_the_model_and_the_reader() -> None:
    class Hint(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            if not agent.steps:
                agent.hint("Be short.", source="us")
            return await next_handler()

    model = ScriptedModel.saying({"text": "so", "tool_calls": [{"name": "look"}]}, "done")
    events = [event async for event in Agent("a", None, model, [look], [Hint()]).stream("go")]
    assert [(event.hint, event.source) for event in events if event.type == "HINT_BLOCK"] == [("Be short.", "us")]  # type: ignore[attr-defined]
    assert [message["content"] for message in model.calls[1]["messages"][:2]] == ["go", "Be short."]


@pytest.mark.parametrize("answer", [UserConfirmResultEvent(), ExternalExecutionResultEvent()])
async def test_an_answer_that_nobody_waits_for_changes_nothing(answer: Any) -> None:
    model = ScriptedModel()
    agent = Agent("a", None, model, thread="t")
    await agent("go")
    with pytest.raises(InvalidInput, match="No reply of this thread waits for an answer"):
        await agent(answer)
    assert len(model.calls) == 1
    assert [msg.text for msg in await agent.history("t")] == ["go", "go"]


@pytest.mark.fault("AGT-08")
async def test_an_answer_of_very_many_calls_costs_what_it_weighs() -> None:
    """Twice the calls, about twice the time: nobody looks at all of them for each."""

    async def took(calls: int) -> float:
        model = ScriptedModel.saying({"tool_calls": [{"name": "nowhere"}] * calls}, "done")
        began = time.process_time()
        answer = await Agent("a", None, model)("go")
        assert answer.text == "done"
        assert sum(message["role"] == "tool" for message in model.calls[1]["messages"]) == calls
        return time.process_time() - began

    few = min([await took(250) for _ in range(3)])
    assert await took(4 * 250) < 12 * few
