"""2.1: tracing."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, StatusCode

from spangate.agent import (
    ChatResponse,
    DataBlock,
    ModelFallbackMiddleware,
    ModelStream,
    ScriptedModel,
    TextBlockDeltaEvent,
    TracingMiddleware,
    URLSource,
    UserMsg,
    calls,
    tool,
)
from spangate.agent.view import ReplyView
from spangate.call.errors import UpstreamError, UpstreamIncomplete

from acceptance.lines import Spans, accepts, agent, said


class Untouchable:
    """Fails for whoever looks into it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"looked at {name}")


@accepts("no provider → zero spans, next called once, no serialisation executed")
async def no_provider() -> None:
    for provider in (NoOpTracerProvider(), ProxyTracerProvider()):
        tracing = TracingMiddleware(provider, capture_content="full")
        for hook in (tracing.on_reply, tracing.on_model_call, tracing.on_acting):
            asked: list[object] = []
            inside = object()

            def following(asked: list[object] = asked, inside: Any = inside) -> Any:
                asked.append(inside)
                return inside

            assert hook(Untouchable(), Untouchable(), following) is inside  # type: ignore[arg-type]
            assert asked == [inside]


LATER = """
import asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from spangate.agent import Agent, ScriptedModel, TracingMiddleware

agent, spans = Agent("a", None, ScriptedModel(), middlewares=[TracingMiddleware()]), InMemorySpanExporter()

async def main():
    await agent("one")
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    await agent("two")

asyncio.run(main())
print(*[span.name for span in spans.get_finished_spans()], sep=",")
"""


@accepts("provider set after construction → next reply traced")
async def provider_set_later() -> None:
    ran = await asyncio.to_thread(subprocess.run, [sys.executable, "-P", "-c", LATER], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "chat scripted,invoke_agent a"


@accepts("stream of 3 chunks with usage on the last → one chat span, ends after the 3rd, tokens set")
async def three_chunks() -> None:
    spans = Spans()
    rule = {"answer": {"text": "one two three", "chunks": 3}, "usage": {"input": 7, "output": 3, "cached": 2, "reasoning": 1}}
    deltas = 0
    async for event in agent(ScriptedModel([rule]), TracingMiddleware(spans.provider)).stream("hi"):
        if isinstance(event, TextBlockDeltaEvent):
            deltas += 1
            assert not spans.named("chat")
    assert deltas == 3
    usage = {name.removeprefix("gen_ai.usage."): value for name, value in said(spans.one("chat")).items() if "usage" in name}
    assert usage == {"input_tokens": 7, "output_tokens": 3, "cache_read.input_tokens": 2, "reasoning.output_tokens": 1}


@accepts('consumer aclose() from another task after chunk 1 → no "failed to detach" log, span ended once, cancelled, not ERROR')
async def left_by_another_task() -> None:
    spans, logged = Spans(), Logged()
    logging.getLogger().addHandler(logged)
    try:
        stream = agent(ScriptedModel.saying("one two three"), TracingMiddleware(spans.provider)).stream("hi")

        async def until_the_first() -> None:
            async for event in stream:
                if isinstance(event, TextBlockDeltaEvent):
                    return

        await asyncio.create_task(until_the_first())
        await asyncio.create_task(stream.aclose())
    finally:
        logging.getLogger().removeHandler(logged)
    assert logged.messages == []
    spans.assert_each_ended_once()
    assert [span.name for span in spans.ended] == ["chat scripted", "invoke_agent a"]
    for span in spans.ended:
        assert span.status.status_code is StatusCode.UNSET
        assert said(span)["spangate.cancelled"] is True
        assert not span.events


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@accepts("stream yields nothing → span ended, ERROR only if upstream failed")
async def nothing_comes() -> None:
    async def nothing(error: Exception | None) -> AsyncIterator[ChatResponse]:
        if error is not None:
            raise error
        return
        yield

    for error, status in ((None, StatusCode.UNSET), (UpstreamIncomplete("It broke."), StatusCode.ERROR)):
        spans, source = Spans(), ModelStream(nothing(error))
        model = ScriptedModel()
        view: ReplyView = agent(model).stream("hi").view

        async def following(source: ModelStream = source) -> ModelStream:
            return source

        given = {"messages": [], "tools": [], "tool_choice": None, "current_model": model}
        stream = await TracingMiddleware(spans.provider).on_model_call(view, given, following)  # type: ignore[arg-type]
        raised = None
        try:
            async with aclosing(stream):
                assert [piece async for piece in stream] == []
        except UpstreamIncomplete as found:
            raised = found
        assert raised is error
        assert spans.one("chat").status.status_code is status
        spans.assert_each_ended_once()


@accepts("two parallel tools → two sibling spans under the reply span, never nested in each other")
async def siblings() -> None:
    spans, both = Spans(), asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Meet."""
        await both.wait()
        return name

    first = {"tool_calls": [{"name": "meet", "arguments": {"name": name}} for name in ("x", "y")]}
    await agent(ScriptedModel.saying(first, "done"), TracingMiddleware(spans.provider), tools=[meet])("go")
    reply = spans.one("invoke_agent")
    tools = spans.named("execute_tool")
    assert len(tools) == 2
    for span in (*tools, *spans.named("chat")):
        assert span.parent is not None
        assert reply.context is not None
        assert span.parent.span_id == reply.context.span_id


@accepts("fallback used → one chat span per attempt; response model = answering model")
async def a_span_an_attempt() -> None:
    spans = Spans()
    broken = ScriptedModel([{"fault": {"status": 503}}], model="broken")
    spare = ScriptedModel.saying("saved", model="spare")
    # Tracing stands first, and sees each request all the same.
    await agent(broken, TracingMiddleware(spans.provider), ModelFallbackMiddleware(spare))("hi")
    failed, answered = spans.named("chat")
    assert (failed.name, failed.status.status_code, said(failed)["error.type"]) == ("chat broken", StatusCode.ERROR, "server_error")
    assert (answered.name, answered.status.status_code) == ("chat spare", StatusCode.UNSET)
    assert said(answered)["gen_ai.response.model"] == "spare"
    assert [said(span)["spangate.attempt.reason"] for span in (failed, answered)] == ["first", "fallback"]
    assert spans.one("invoke_agent").status.status_code is StatusCode.UNSET


@accepts("content capture none → no message text, args, or results in any attribute or event")
async def no_content() -> None:
    secret = "CANARY"

    @tool
    def find(what: str) -> str:
        """Find."""
        if what.endswith("!"):
            raise ValueError(f"{secret} no")
        return f"{secret} found"

    turns = [calls("find", what=secret), calls("find", what=f"{secret}!"), calls("nothing", what=secret), f"{secret} said"]
    for capture in ("none", "full"):
        spans = Spans()
        tracing = TracingMiddleware(spans.provider, capture_content=capture)  # type: ignore[arg-type]
        await agent(ScriptedModel.saying(*turns), tracing, tools=[find], prompt=f"{secret} prompt")(f"{secret} asked")
        broken = agent(ScriptedModel([{"fault": {"status": 400, "message": f"{secret} echoed"}}]), tracing)
        with pytest.raises(UpstreamError, match=secret):
            await broken(f"{secret} asked")
        everything = "".join(span.to_json() for span in spans.ended)
        assert (secret in everything) is (capture == "full")


@accepts("attribute serialisation raises → call still succeeds")
async def what_cannot_be_written() -> None:
    spans = Spans()
    image: Any = DataBlock(URLSource(None))  # type: ignore[arg-type]
    tracing = TracingMiddleware(spans.provider, capture_content="full")
    answer = await agent(ScriptedModel.saying("fine"), tracing)(UserMsg(name="u", content=[image]))
    assert answer.text == "fine"
    assert "gen_ai.input.messages" not in said(spans.one("chat"))
    assert "fine" in said(spans.one("chat"))["gen_ai.output.messages"]
    spans.assert_each_ended_once()
