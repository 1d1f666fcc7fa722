"""What holds for every provider, as a table of checks: `CONTRACT`, by name.

A provider's tests put it into named scenarios and run the table:

    @pytest.mark.parametrize("check", CONTRACT.values(), ids=CONTRACT)
    async def test_contract(check: Check) -> None:
        await check(on_stage)

`on_stage(scenario)` gives a `Stage`: the provider, and what it holds open. In every scenario it answers as SCENARIOS says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, cast

import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from spangate.call import sse
from spangate.call.body import Body
from spangate.call.call import Call, Head, Op, Target
from spangate.call.errors import ProviderFault, UpstreamError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.proxy.convert import as_whole
from spangate.proxy.providers.provider import Provider

TEXT = "Hello brave world"
PIECES = ("Hello", " brave", " world")  # as a stream: one chunk each, after one that tells the role
USAGE = Usage(input=7, output=3, cached=2, reasoning=1)
TOOL = {"name": "get_weather", "arguments": {"city": "Rome"}}
MODEL = "m-1"  # what the provider is asked for, and what it calls itself in its answer

SCENARIOS = {
    "answers": "TEXT, USAGE, finish stop; as many choices as are asked for",
    "answers slowly": "the same, with a pause before each chunk",
    "answers without usage": "the same, and no usage",
    "usage comes late": "the same; as a stream, the usage chunk comes after a pause",
    "usage comes twice": "the same; as a stream, two usage chunks",
    "usage grows": "the same; as a stream, usage on every chunk",
    "calls a tool": "TOOL, finish tool_calls",
    "refuses": "status 429, retry-after 2, type requests, code rate_limit_exceeded, message Slow down.",
    "errs in a 200": "an error where content was due",
    "is empty": "nothing, ended cleanly",
    "is silent": "at most the role, then nothing for ever",
    "falls silent": "two chunks of content, then nothing for ever; a whole answer never comes",
    "breaks before content": "at most the role, then the connection breaks",
    "breaks": "two chunks of content, then the connection breaks; a whole answer breaks in its middle",
    "is cut": "two chunks of content and a clean end without a finish_reason; a whole answer breaks in its middle",
    "embeds": "two vectors of length 3, usage of 7 tokens",
    "completes": "TEXT, USAGE, finish stop, as a legacy completion",
}


@dataclass(frozen=True)
class Stage:
    """`in_use`: connections that an answer holds. `left` waits until the other side has noticed that its caller left.
    `usage`: what it reports, where its figures can't be chosen."""

    provider: Provider
    usage: Usage = USAGE
    in_use: Callable[[], int] = lambda: 0
    left: Callable[[], Awaitable[object]] | None = None


OnStage = Callable[[str], AbstractAsyncContextManager[Stage]]
Check = Callable[[OnStage], Awaitable[None]]
CONTRACT: dict[str, Check] = {}


def holds(check: Check) -> Check:
    CONTRACT[cast("Any", check).__name__.replace("_", " ")] = check
    return check


def asking(op: Op = "chat", *, stream: bool = False, n: int = 1, usage_frame: bool = False, **body: Any) -> Call:
    """A call as the gateway hands it to a provider."""
    given: dict[str, Any] = {"model": "asked"}
    given |= {"messages": [{"role": "user", "content": "Say hello"}]} if op == "chat" else {}
    given |= {"stream": True} if stream else {}
    given |= {"stream_options": {"include_usage": True}} if usage_frame else {}
    given |= {"n": n} if n > 1 else {}
    head = Head(stream=stream, n=n, usage_frame=usage_frame)
    return Call(op, "asked", Body.of(given | body), head=head, target=Target("under-test", MODEL))


async def told(provider: Provider, call: Call) -> list[Event]:
    """All events of an answer."""
    async with aclosing(cast("Any", provider.answer(call))) as events:
        return [event async for event in events]


async def failing(provider: Provider, call: Call) -> tuple[list[Event], ProviderFault]:
    """What came before the failure, and the failure."""
    before: list[Event] = []
    try:
        async with aclosing(cast("Any", provider.answer(call))) as events:
            async for event in events:
                before.append(event)  # noqa: PERF401 - it is the point that these survive
    except ProviderFault as fault:
        return before, fault
    raise AssertionError("it did not fail")


def deltas(events: list[Event]) -> list[Delta]:
    return [event for event in events if isinstance(event, Delta)]


def chunks(events: list[Event]) -> list[dict[str, Any]]:
    return [chunk for delta in deltas(events) for chunk in delta.chunks]


def text(events: list[Event]) -> str:
    return "".join(delta.text for delta in deltas(events))


def closed(events: list[Event]) -> Closed:
    assert isinstance(events[-1], Closed)
    return events[-1]


def whole(events: list[Event]) -> dict[str, Any]:
    """The body of a whole answer, which is exactly Opened, Delta, Closed."""
    assert [type(event) for event in events] == [Opened, Delta, Closed]
    return cast("dict[str, Any]", json.loads(deltas(events)[0].raw))


# ---- good answers


@holds
async def a_stream_is_opened_deltas_closed(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        events = await told(stage.provider, asking(stream=True))
        kinds = [type(event) for event in events]
        assert kinds == [Opened, *[Delta] * (len(events) - 2), Closed]
        assert text(events) == TEXT
        assert (closed(events).usage, closed(events).finish) == (USAGE, "stop")
        assert stage.in_use() == 0


@holds
async def an_opened_stream_says_who_answers(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        opened = (await told(stage.provider, asking(stream=True)))[0]
        assert isinstance(opened, Opened)
        assert (opened.model, opened.provider, opened.stream) == (MODEL, stage.provider.name, True)
        assert opened.envelope is not None
        assert opened.envelope.id
        assert (opened.envelope.model, opened.envelope.object) == (MODEL, "chat.completion.chunk")


@holds
async def deltas_are_whole_frames_without_done(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        events = await told(stage.provider, asking(stream=True))
        for delta in deltas(events):
            assert sse.whole_frames(delta.raw) == len(delta.raw)
            assert b"[DONE]" not in delta.raw
        assert closed(events).tail in (None, sse.DONE)


@holds
async def the_official_client_reads_every_chunk(on_stage: OnStage) -> None:
    for scenario in ("answers", "calls a tool", "usage grows"):
        async with on_stage(scenario) as stage:
            events = await told(stage.provider, asking(stream=True, usage_frame=True))
            for chunk in chunks(events):
                ChatCompletionChunk.model_validate(chunk)
            answer = whole(await told(stage.provider, asking()))
            ChatCompletion.model_validate(answer)
            said = as_whole(chunks(events))["choices"][0]
            assert said["message"].get("content") == answer["choices"][0]["message"].get("content")


@holds
async def a_whole_answer_is_one_delta(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        events = await told(stage.provider, asking())
        answer = whole(events)
        opened = events[0]
        assert isinstance(opened, Opened)
        assert (opened.model, opened.stream, opened.content_type) == (MODEL, False, "application/json")
        assert (answer["object"], answer["choices"][0]["message"]["content"]) == ("chat.completion", TEXT)
        assert (text(events), closed(events)) == (TEXT, Closed(USAGE, "stop"))
        assert stage.in_use() == 0


@holds
async def every_choice_is_there(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        streamed = as_whole(chunks(await told(stage.provider, asking(stream=True, n=2))))
        at_once = whole(await told(stage.provider, asking(n=2)))
        for answer in (streamed, at_once):
            assert [choice["index"] for choice in answer["choices"]] == [0, 1]
            assert [choice["message"]["content"] for choice in answer["choices"]] == [TEXT, TEXT]


@holds
async def tool_calls_come_whole(on_stage: OnStage) -> None:
    async with on_stage("calls a tool") as stage:
        streamed = await told(stage.provider, asking(stream=True))
        at_once = await told(stage.provider, asking())
        assert any(delta.tool_calls for delta in deltas(streamed))
        for events, answer in ((streamed, as_whole(chunks(streamed))), (at_once, whole(at_once))):
            tool_call = answer["choices"][0]["message"]["tool_calls"][0]
            assert tool_call["id"]
            assert tool_call["type"] == "function"
            assert tool_call["function"]["name"] == TOOL["name"]
            assert json.loads(tool_call["function"]["arguments"]) == TOOL["arguments"]
            assert closed(events).finish == "tool_calls"


@holds
async def legacy_completions(on_stage: OnStage) -> None:
    async with on_stage("completes") as stage:
        streamed = await told(stage.provider, asking("completions", stream=True, prompt="Say hello"))
        at_once = await told(stage.provider, asking("completions", prompt="Say hello"))
        Completion.model_validate(whole(at_once))
        for events in (streamed, at_once):
            assert (text(events), closed(events).usage, closed(events).finish) == (TEXT, USAGE, "stop")


@holds
async def embeddings(on_stage: OnStage) -> None:
    async with on_stage("embeds") as stage:
        events = await told(stage.provider, asking("embeddings", input=["one", "two"], dimensions=3))
        answer = CreateEmbeddingResponse.model_validate(whole(events))
        assert [(each.index, len(each.embedding)) for each in answer.data] == [(0, 3), (1, 3)]
        assert closed(events).usage == Usage(input=7)


# ---- usage


@holds
async def usage_is_what_was_reported_last(on_stage: OnStage) -> None:
    for scenario in ("answers", "usage comes late", "usage comes twice", "usage grows"):
        async with on_stage(scenario) as stage:
            for call in (asking(stream=True), asking(stream=True, usage_frame=True), asking()):
                events = await told(stage.provider, call)
                assert (closed(events).usage, text(events)) == (stage.usage, TEXT), scenario


@holds
async def no_usage_is_none(on_stage: OnStage) -> None:
    async with on_stage("answers without usage") as stage:
        for call in (asking(stream=True), asking(stream=True, usage_frame=True), asking()):
            assert closed(await told(stage.provider, call)).usage is None


@holds
async def the_usage_chunk_is_for_those_who_asked(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        asked = chunks(await told(stage.provider, asking(stream=True, usage_frame=True)))
        unasked = chunks(await told(stage.provider, asking(stream=True)))
        assert [chunk["usage"]["prompt_tokens"] for chunk in asked if not chunk["choices"]] == [USAGE.input]
        assert [chunk for chunk in unasked if not chunk["choices"]] == []


# ---- answers that are none


@holds
async def a_refusal_is_raised_before_anything(on_stage: OnStage) -> None:
    async with on_stage("refuses") as stage:
        for stream in (True, False):
            before, fault = await failing(stage.provider, asking(stream=stream))
            assert before == []
            assert isinstance(fault, UpstreamError)
            assert (fault.status, fault.kind, fault.own_code) == (429, "requests", "rate_limit_exceeded")
            assert (fault.message, fault.retryable, fault.headers) == ("Slow down.", True, {"retry-after": "2"})
            assert stage.in_use() == 0


@holds
async def an_error_in_a_200_is_raised_before_anything(on_stage: OnStage) -> None:
    async with on_stage("errs in a 200") as stage:
        for stream in (True, False):
            before, fault = await failing(stage.provider, asking(stream=stream))
            assert before == []
            assert isinstance(fault, UpstreamError)
            assert (fault.status, bool(fault.message), fault.retryable) == (None, True, True)
            assert stage.in_use() == 0


@holds
async def nothing_is_raised_before_anything(on_stage: OnStage) -> None:
    for scenario in ("is empty", "breaks before content"):
        async with on_stage(scenario) as stage:
            for stream in (True, False):
                before, fault = await failing(stage.provider, asking(stream=stream))
                assert before == []
                assert isinstance(fault, UpstreamIncomplete)
                assert stage.in_use() == 0


@holds
async def an_answer_that_breaks_off_raises_after_what_came(on_stage: OnStage) -> None:
    for scenario in ("breaks", "is cut"):
        async with on_stage(scenario) as stage:
            before, fault = await failing(stage.provider, asking(stream=True))
            assert isinstance(before[0], Opened)
            assert text(before) == PIECES[0] + PIECES[1]
            assert not any(isinstance(event, Closed) for event in before)
            assert isinstance(fault, UpstreamIncomplete)
            assert stage.in_use() == 0


@holds
async def a_whole_answer_that_breaks_off_says_nothing(on_stage: OnStage) -> None:
    for scenario in ("breaks", "is cut"):
        async with on_stage(scenario) as stage:
            before, fault = await failing(stage.provider, asking())
            assert before == []
            assert isinstance(fault, UpstreamIncomplete)


# ---- leaving


@holds
async def nothing_comes_before_the_first_content(on_stage: OnStage) -> None:
    async with on_stage("is silent") as stage:
        for stream in (True, False):
            async with aclosing(cast("Any", stage.provider.answer(asking(stream=stream)))) as events:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(events), 0.05)
            assert stage.in_use() == 0


@holds
async def who_closes_early_frees_the_provider_at_once(on_stage: OnStage) -> None:
    for scenario, most in (("answers slowly", 4), ("falls silent", 2)):
        for count in range(1, most + 1):
            async with on_stage(scenario) as stage:
                async with aclosing(cast("Any", stage.provider.answer(asking(stream=True)))) as events:
                    for _ in range(count):
                        await anext(events, None)
                assert stage.in_use() == 0
                if stage.left is not None:
                    await asyncio.wait_for(stage.left(), 1)


@holds
async def cancelled_anywhere_it_leaves_nothing_open(on_stage: OnStage) -> None:
    for stream in (True, False):
        step, came = 0, False
        while not came:
            step += 1
            async with on_stage("answers slowly") as stage:
                came = await comes_in_spite(told(stage.provider, asking(stream=stream)), step)
                assert stage.in_use() == 0, step
            assert step < 100
        assert step > 1


async def comes_in_spite(answer: Coroutine[Any, Any, list[Event]], step: int) -> bool:
    """Run in a task that is cancelled the `step`-th time it waits; whether it ended before that."""
    task = asyncio.create_task(_cancelled_at(answer, step))
    await asyncio.wait([task])
    return not task.cancelled() and bool(task.result())


async def _cancelled_at(answer: Coroutine[Any, Any, list[Event]], step: int) -> list[Event]:
    return await _Cancelling(answer, step)


@dataclass(frozen=True)
class _Cancelling:
    inner: Coroutine[Any, Any, list[Event]]
    step: int

    def __await__(self) -> Generator[Any, Any, list[Event]]:
        steps = self.inner.__await__()
        waited, task = 0, asyncio.current_task()
        assert task is not None
        throw: BaseException | None = None
        while True:
            try:
                waits_for = steps.throw(throw) if throw is not None else next(steps)
            except StopIteration as end:
                return cast("list[Event]", end.value)
            waited += 1
            if waited == self.step:
                task.cancel()
            throw = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on to the inside
                throw = error
