"""Laravel AI SDK, its page Agent 中介層 (agent middleware), section 驗證執行順序 (verify the order of execution): the four
situations that it asks everybody to check, with its own LogAgentSteps, said in Python.
"""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import Agent, MiddlewareBase, ReplyFinishedReason, ScriptedModel, StepResult, Stop, calls, tool


class LogAgentSteps(MiddlewareBase):
    """Laravel's: a line before each model call, and one when the model has responded."""

    def __init__(self, log: list[tuple[Any, ...]]) -> None:
        self.log = log

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        step = agent.step
        self.log.append(("AI step starting", step.number, step.usage.input_tokens))
        answer = await next_handler()
        return answer.then(lambda response: self.log.append(("AI model responded", step.number)))


class Conversation:
    """A support agent that looks once and answers; each model call reads 30 tokens and writes 10."""

    def __init__(self, *first: MiddlewareBase, stream: bool = True) -> None:
        self.log: list[tuple[Any, ...]] = []
        usage = {"input": 30, "output": 10}
        rules = [
            {"when": {"contains": "order"}, "answer": calls("look"), "usage": usage, "times": 1},
            {"answer": {"text": "On its way."}, "usage": usage},
        ]
        self.model = ScriptedModel(rules, stream=stream)

        @tool
        def look() -> str:
            """Look an order up."""
            self.log.append(("tool",))
            return "It left the house."

        self.agent = Agent(
            "support", "Answer support questions concisely.", self.model, [look], [*first, LogAgentSteps(self.log)], thread="t"
        )

    async def context(self) -> list[str]:
        return [block.type for msg in await self.agent.history("t") for block in msg.content]


streaming_or_not = pytest.mark.parametrize("stream", [True, False])


@streaming_or_not
async def test_1_one_step_logs_its_start_and_its_response_once_each(stream: bool) -> None:
    talk = Conversation(stream=stream)
    assert (await talk.agent("Hello")).text == "On its way."
    assert talk.log == [("AI step starting", 0, 0), ("AI model responded", 0)]


@streaming_or_not
async def test_2_steps_after_tools_count_on_from_0_and_know_the_usage_before_them(stream: bool) -> None:
    talk = Conversation(stream=stream)
    await talk.agent("Where is my order?")
    assert talk.log == [
        ("AI step starting", 0, 0),
        ("AI model responded", 0),
        ("tool",),  # `then` comes after the response and before the tools
        ("AI step starting", 1, 30),
        ("AI model responded", 1),
    ]


@streaming_or_not
async def test_3_a_stop_that_holds_from_the_start_calls_no_model_and_logs_nothing(stream: bool) -> None:
    talk = Conversation(Stop.when(lambda step: step.usage.input_tokens >= 0), stream=stream)
    reply = talk.agent.stream("Where is my order?")
    answer = await reply.result()
    assert (talk.log, len(talk.model.calls)) == ([], 0)
    assert (answer.text, answer.finished_reason) == ("", ReplyFinishedReason.CANCELLED)
    assert answer.usage is not None
    assert (answer.usage.total_tokens, reply.view.steps) == (0, [])


@streaming_or_not
async def test_4_a_stop_on_the_way_keeps_the_earlier_steps_and_calls_the_model_no_more(stream: bool) -> None:
    talk = Conversation(Stop.when(lambda step: step.usage.input_tokens >= 30), stream=stream)
    reply = talk.agent.stream("Where is my order?")
    answer = await reply.result()
    assert talk.log == [("AI step starting", 0, 0), ("AI model responded", 0), ("tool",)]
    assert len(talk.model.calls) == 1
    assert answer.finished_reason is ReplyFinishedReason.CANCELLED
    assert answer.usage is not None
    assert answer.usage.input_tokens == 30
    [step] = reply.view.steps
    assert [result.text for result in step.results] == ["It left the house."]
    assert await talk.context() == ["text", "tool_call", "tool_result"]


async def test_unless_is_the_opposite() -> None:
    assert (await Conversation(Stop.unless(lambda step: step.number == 0)).agent("Where is my order?")).text == ""
    assert (await Conversation(Stop.unless(lambda step: step.number < 2)).agent("Where is my order?")).text == "On its way."


async def test_a_middleware_of_ones_own_may_stop_too() -> None:
    """Laravel's `StepResult::stop()`."""

    class StopAtOnce(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            return StepResult.stop()

    talk = Conversation(StopAtOnce())
    assert (await talk.agent("Hello")).finished_reason is ReplyFinishedReason.CANCELLED
    assert (talk.log, len(talk.model.calls)) == ([], 0)


async def test_then_is_not_run_where_no_response_came() -> None:
    talk = Conversation()
    talk.agent.model = ScriptedModel([{"fault": {"status": 500}}])
    with pytest.raises(Exception, match="500"):
        await talk.agent("Hello")
    assert talk.log == [("AI step starting", 0, 0)]
