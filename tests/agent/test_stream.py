"""agent/stream.py: events in order, and a reply that is left, interrupted, late or broken leaves everything closed and valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    AgentEvent,
    ChatResponse,
    DeadlineExceeded,
    MiddlewareBase,
    MiddlewareFault,
    ModelFallbackMiddleware,
    NoAnswer,
    ReplyEndEvent,
    ReplyFinishedReason,
    ReplyStream,
    ScriptedModel,
    calls,
    tool,
)
from spangate.call.errors import UpstreamError

from acceptance.lines import assert_valid


async def types(stream: ReplyStream) -> list[str]:
    return [event.type async for event in stream]


async def heard(stream: ReplyStream, events: list[AgentEvent]) -> None:
    async for event in stream:
        events.append(event)  # noqa: PERF401 - what came before a failure counts


async def test_the_order_of_events() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel.saying({"reasoning": "hm", "text": "so", "tool_calls": [{"name": "look"}]}, "done")
    stream = Agent("a", None, model, [look]).stream("?")
    events = [event async for event in stream]
    assert [event.type for event in events] == [
        "REPLY_START",
        "MODEL_CALL_START",
        *("THINKING_BLOCK_START", "THINKING_BLOCK_DELTA", "THINKING_BLOCK_END"),
        *("TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"),
        *("TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END"),
        "MODEL_CALL_END",
        *("TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_END"),
        "MODEL_CALL_START",
        *("TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"),
        "MODEL_CALL_END",
        "REPLY_END",
    ]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.reply_id for event in events} == {stream.reply_id}
    assert stream.message is not None
    assert stream.message.text == "done"
    assert [event async for event in stream] == [], "it is told once"


async def test_a_whole_answer_is_told_as_blocks_too() -> None:
    streamed = await types(Agent("a", None, ScriptedModel.saying("one")).stream("?"))
    assert await types(Agent("a", None, ScriptedModel.saying("one", stream=False)).stream("?")) == streamed


@pytest.mark.parametrize(
    "after", ["REPLY_START", "MODEL_CALL_START", "TEXT_BLOCK_DELTA", "TOOL_CALL_START", "TOOL_RESULT_START", "MODEL_CALL_END"]
)
async def test_whoever_leaves_early_leaves_a_valid_history(after: str) -> None:
    @tool
    async def slow() -> str:
        """Slow."""
        await asyncio.sleep(5)
        return ""

    both = {"text": "let me look", "tool_calls": [{"name": "slow"}, {"name": "slow"}]}
    model = ScriptedModel([{"when": {"contains": "second"}, "answer": {"text": "well"}}, {"answer": both}])
    agent = Agent("a", None, model, [slow], thread="t")
    async with agent.stream("first") as stream:
        async for event in stream:
            if event.type == after:
                break
    assert stream.message is None
    await agent("second")
    said = model.calls[-1]["messages"]
    open_calls = [call["id"] for message in said for call in message.get("tool_calls", ())]
    assert open_calls == [message["tool_call_id"] for message in said if message["role"] == "tool"]
    assert said[-1]["content"] == "second"


async def test_an_interrupt_from_another_task_ends_the_reply_in_good_order() -> None:
    running, told = asyncio.Event(), asyncio.Event()

    @tool
    async def quick() -> str:
        """Quick."""
        return "done"

    @tool
    async def forever() -> str:
        """Never ends."""
        running.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel.saying({"tool_calls": [{"name": "quick"}, {"name": "forever"}]})
    stream = Agent("a", None, model, [quick, forever]).stream("go")

    async def stop() -> None:
        await running.wait()
        await told.wait()
        stream.interrupt()
        stream.interrupt()

    stopping = asyncio.create_task(stop())
    events = []
    async for event in stream:
        events.append(event)
        if event.type == "TOOL_RESULT_END":
            told.set()
    await stopping
    assert [(event.type, getattr(event, "state", "")) for event in events if event.type == "TOOL_RESULT_END"] == [
        ("TOOL_RESULT_END", "success"),
        ("TOOL_RESULT_END", "interrupted"),
    ]
    assert isinstance(events[-1], ReplyEndEvent)
    assert events[-1].finished_reason is ReplyFinishedReason.INTERRUPTED
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    results = [block for msg in stream.view.state.context for block in msg.content if block.type == "tool_result"]
    assert [block.state for block in results] == ["success", "interrupted"]


async def test_an_interrupt_while_the_reader_has_its_turn() -> None:
    model = ScriptedModel.saying("one two three four")
    async with Agent("a", None, model).stream("go") as stream:
        seen = []
        async for event in stream:
            seen.append(event.type)
            if event.type == "TEXT_BLOCK_DELTA":
                stream.interrupt()
            await asyncio.sleep(0)
    assert seen[-2:] == ["TEXT_BLOCK_END", "REPLY_END"]
    assert seen.count("TEXT_BLOCK_DELTA") <= 2
    assert stream.message is not None
    assert stream.message.finished_reason is ReplyFinishedReason.INTERRUPTED
    assert stream.message.text.startswith("one")


class Slow(MiddlewareBase):
    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(5)
        async for event in next_handler():
            yield event


class KeepsEnds(MiddlewareBase):
    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for event in next_handler():
            if not isinstance(event, ReplyEndEvent):
                yield event


async def test_no_layer_keeps_an_interrupt_back() -> None:
    model = ScriptedModel.saying("one two three four")
    ends = []
    async with Agent("a", None, model, middlewares=[KeepsEnds()]).stream("go") as stream:
        async for event in stream:
            if event.type == "TEXT_BLOCK_DELTA":
                stream.interrupt()
            if isinstance(event, ReplyEndEvent):
                ends.append(event.finished_reason)
    assert ends == [ReplyFinishedReason.INTERRUPTED]
    assert len(model.calls) == 1


async def test_an_interrupt_inside_a_layer() -> None:
    stream = Agent("a", None, ScriptedModel(), middlewares=[Slow()]).stream("go")
    asyncio.get_running_loop().call_later(0.01, stream.interrupt)
    assert await types(stream) == ["REPLY_END"]
    assert stream.message is not None
    assert stream.message.finished_reason is ReplyFinishedReason.INTERRUPTED


async def test_somebody_elses_cancellation_stays_theirs() -> None:
    asked = asyncio.Event()

    @tool
    async def forever() -> None:
        """Never ends."""
        asked.set()
        await asyncio.Event().wait()

    agent = Agent("a", None, ScriptedModel.saying(calls("forever")), [forever], thread="t")
    task = asyncio.create_task(agent("go"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [[block.type for block in msg.content] for msg in await agent.history("t")] == [["text"], ["tool_call", "tool_result"]]


@pytest.mark.fault("AGT-08")
async def test_a_deadline_is_a_typed_error_that_holds_what_was_said() -> None:
    model = ScriptedModel([{"answer": {"text": "one two", "every": 0.02, "chunks": 2}, "fault": {"stall_after": 1}}])
    agent = Agent("a", None, model, thread="t")
    stream = agent.stream("go", deadline=0.1)
    events: list[AgentEvent] = []
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.1 seconds") as caught:
        await heard(stream, events)
    assert isinstance(events[-1], ReplyEndEvent)
    assert events[-1].error is not None
    assert (events[-1].finished_reason, events[-1].error.code) == (ReplyFinishedReason.ERROR, "deadline_exceeded")
    assert caught.value.message_so_far.text == "one"
    assert [msg.text for msg in await agent.history("t")] == ["go", "one"]
    with pytest.raises(DeadlineExceeded):
        await Agent("a", None, ScriptedModel(), middlewares=[Slow()])("go", deadline=0.05)
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Agent("a", None, model, deadline=0)


async def test_a_failure_ends_the_reply_and_is_raised_as_it_is() -> None:
    stream = Agent("a", None, ScriptedModel.saying({"fault": {"status": 503}})).stream("go")
    events: list[AgentEvent] = []
    with pytest.raises(UpstreamError) as caught:
        await heard(stream, events)
    assert caught.value.status == 503
    assert [event.type for event in events] == ["REPLY_START", "MODEL_CALL_START", "REPLY_END"]
    assert isinstance(events[-1], ReplyEndEvent)
    assert events[-1].error is not None
    assert events[-1].error.type == "UpstreamError"


async def test_a_layer_that_keeps_the_end_is_named() -> None:
    class Keeper(MiddlewareBase):
        async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            async for event in next_handler():
                if isinstance(event, ReplyEndEvent):
                    return
                yield event

    with pytest.raises(MiddlewareFault, match=r"Keeper\.on_reply ended the reply without its ReplyEndEvent"):
        await Agent("a", None, ScriptedModel(), middlewares=[Keeper()])("go")


async def test_what_a_layer_adds_gets_its_number_too() -> None:
    from spangate.agent import CustomEvent

    class Adds(MiddlewareBase):
        async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            async for event in next_handler():
                yield event
                if isinstance(event, ReplyEndEvent):
                    yield CustomEvent(reply_id=agent.reply_id, name="after")

    events = [event async for event in Agent("a", None, ScriptedModel(), middlewares=[Adds()]).stream("go")]
    assert [event.type for event in events[-2:]] == ["REPLY_END", "CUSTOM"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


class Wraps(MiddlewareBase):
    """A layer at every place, as a careless author writes it: nothing is closed."""

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for event in next_handler():
            yield event

    async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for event in next_handler():
            yield event

    async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for chunk in next_handler():
            yield chunk

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        answer = await next_handler()

        async def pieces() -> AsyncIterator[Any]:
            async for piece in answer:
                yield piece

        return pieces()


def busy() -> tuple[Agent, ScriptedModel]:
    """An agent that waits at many places: for each piece of its model, and for tools that run together."""

    @tool
    async def two() -> AsyncIterator[str]:
        """Two pieces."""
        for _ in range(2):
            await asyncio.sleep(0)
            yield "x"

    @tool
    def plain() -> str:
        """In a thread."""
        return "x"

    @tool
    def plain_pieces() -> Iterator[str]:
        """In a thread, piece by piece."""
        yield from "xy"

    four = [{"name": name} for name in ("two", "plain", "two", "plain_pieces")]
    both = {"text": "let me see", "tool_calls": four, "every": 0.0001, "first": 0.0001}
    rules = [
        {"when": {"contains": "again"}, "answer": {"text": "well"}},
        {"answer": both, "times": 1},
        {"answer": {"text": "all done", "every": 0.0001}},
    ]
    model = ScriptedModel(rules)
    return Agent("a", None, model, [two, plain, plain_pieces], [Wraps(), Wraps()], thread="t"), model


async def turns(count: int, task: asyncio.Task[Any]) -> bool:
    """Let the loop turn so often; whether the task still runs."""
    for _ in range(count):
        if task.done():
            break
        await asyncio.sleep(0.0002 if count > 12 else 0)
    return not task.done()


@pytest.mark.parametrize("how", ["cancel", "cancel twice", "interrupt"])
async def test_wherever_it_is_stopped_nothing_is_left_and_the_history_is_valid(how: str) -> None:
    stopped = 0
    for count in range(40):
        agent, model = busy()
        task = asyncio.create_task(agent("go"))
        if await turns(count, task):
            stopped += 1
            if how == "interrupt":
                agent.interrupt()
            else:
                task.cancel()
            if how == "cancel twice":  # by the client that left, and by the drain
                await asyncio.sleep(0)
                task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        assert (
            isinstance(ended, asyncio.CancelledError) if how != "interrupt" and task.cancelled() else not isinstance(ended, BaseException)
        )
        assert (await agent("again")).text == "well"
        assert_valid(model.calls[-1]["messages"])
        assert not agent._running
    assert stopped > 10


async def test_an_interrupt_from_another_thread() -> None:
    asked = asyncio.Event()

    @tool
    async def forever() -> None:
        """Never ends."""
        asked.set()
        await asyncio.Event().wait()

    stream = Agent("a", None, ScriptedModel.saying(calls("forever")), [forever]).stream("go")
    running = asyncio.create_task(stream.result())
    await asked.wait()
    await asyncio.to_thread(stream.interrupt)
    assert (await running).finished_reason is ReplyFinishedReason.INTERRUPTED


def test_an_interrupt_of_a_reply_whose_loop_is_gone_is_nothing() -> None:
    agent = Agent("a", None, ScriptedModel.saying("one two"))

    async def leave() -> ReplyStream:
        stream = agent.stream("go")
        await anext(stream)
        return stream

    stream = asyncio.run(leave())
    assert agent.interrupt() == 1
    assert stream.message is None


async def test_a_model_that_is_cancelled_from_inside_has_failed() -> None:
    """Nobody cancelled the reply: something that the model waited for was cancelled."""

    class Broken(ScriptedModel):
        def __init__(self, after: int) -> None:
            super().__init__()
            self.after = after

        async def pieces(self, *asked: Any) -> AsyncIterator[Any]:
            for _ in range(self.after):
                yield ChatResponse("so ", is_last=False)
            other = asyncio.create_task(asyncio.sleep(5))
            other.cancel()
            await other

    for after in (0, 1):
        with pytest.raises(NoAnswer, match="scripted was cancelled by something that it waited for"):
            await Agent("a", None, Broken(after))("go")
    assert (await Agent("a", None, Broken(0), middlewares=[ModelFallbackMiddleware(ScriptedModel.saying("saved"))])("go")).text == "saved"


async def test_a_model_that_says_nothing_for_ever_leaves_the_loop_its_turn() -> None:
    class Silent(ScriptedModel):
        def __init__(self, said: str) -> None:
            super().__init__()
            self.said = said

        async def pieces(self, *asked: Any) -> AsyncIterator[Any]:
            while True:
                yield ChatResponse(self.said, is_last=False)

    for said in ("", "so "):
        with pytest.raises(DeadlineExceeded):
            await Agent("a", None, Silent(said))("go", deadline=0.05)


@pytest.mark.parametrize("deadline", [0, -1, float("nan")])
async def test_a_deadline_that_is_no_time_is_refused(deadline: float) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Agent("a", None, ScriptedModel()).stream("go", deadline=deadline)


async def test_a_second_reader_is_turned_away_and_the_first_reads_on() -> None:
    stream = Agent("a", None, ScriptedModel([{"answer": {"text": "one two three", "every": 0.001}}])).stream("go")
    first, second = await asyncio.gather(types(stream), types(stream), return_exceptions=True)
    assert isinstance(second, RuntimeError)
    assert isinstance(first, list)
    assert first[-1] == "REPLY_END"
    assert stream.message is not None
