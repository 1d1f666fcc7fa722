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
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from proxy.providers.stage import (
    MODEL,
    PIECES,
    TEXT,
    TOOL,
    USAGE,
    OnStage,
    asking,
    chunks,
    closed,
    comes_in_spite,
    deltas,
    failing,
    given_back,
    text,
    told,
    whole,
)  # fmt: skip

from spangate.call import sse
from spangate.call.errors import UpstreamError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Opened, Usage
from spangate.policies.gauges import Amount
from spangate.proxy.convert import as_whole

Check = Callable[[OnStage], Awaitable[None]]
CONTRACT: dict[str, Check] = {}


def holds(check: Check) -> Check:
    CONTRACT[cast("Any", check).__name__.replace("_", " ")] = check
    return check


# ---- good answers


@holds
async def a_stream_is_opened_deltas_closed(on_stage: OnStage) -> None:
    async with on_stage("answers") as stage:
        events = await told(stage.provider, asking(stream=True))
        kinds = [type(event) for event in events]
        assert kinds == [Opened, *[Delta] * (len(events) - 2), Closed]
        assert text(events) == TEXT
        assert (closed(events).usage, closed(events).finish) == (USAGE, "stop")
        await given_back(stage)


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
        await given_back(stage)


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
            line = stage.provider.lines.of(MODEL)
            assert line is not None
            assert line.take(Amount(1)) is None  # what it asked for is kept


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
                assert came or stage.in_use() == 0, step
                await given_back(stage)
            assert step < 100
        assert step > 1
