"""agent/middlewares/tracing.py: the spans of a reply, in one trace. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NoOpTracerProvider, StatusCode

from spangate.agent import (
    Agent,
    DeadlineExceeded,
    MiddlewareBase,
    ReplyEndEvent,
    ScriptedModel,
    TracingMiddleware,
    calls,
    tool,
)
from spangate.agent.models.labels import reply_headers
from spangate.agent.tools.threads import in_thread
from spangate.call.errors import UpstreamError

from acceptance.lines import Spans, agent, said, stepping, told


def parents(spans: Spans) -> dict[str, str]:
    """Each span's parent, by name."""
    names = {span.context.span_id: span.name for span in spans.ended if span.context}
    return {span.name: names.get(span.parent.span_id, "?") if span.parent else "" for span in spans.ended}


async def test_one_trace_holds_the_reply() -> None:
    spans, tracer = Spans(), None

    @tool
    async def dig() -> str:
        """Dig."""
        with tracer.start_as_current_span("inside the tool"):
            await asyncio.sleep(0)
        return "dug"

    class Asks(ScriptedModel):
        async def pieces(self, *args: Any) -> AsyncIterator[Any]:
            answer = super().pieces(*args)
            headers.append(reply_headers())
            with tracer.start_as_current_span("inside the request"):
                pass
            try:
                async for piece in answer:
                    yield piece
            finally:
                await answer.aclose()  # type: ignore[attr-defined]

    tracer = spans.provider.get_tracer("test")
    headers: list[dict[str, str]] = []
    model = Asks([{"answer": calls("dig"), "times": 1}, {"answer": {"text": "done"}}], model="m")
    await Agent("bot", None, model, [dig], [TracingMiddleware(spans.provider)], description="digs")("go")
    assert parents(spans) == {
        "inside the request": "chat m",
        "chat m": "invoke_agent bot",
        "inside the tool": "execute_tool dig",
        "execute_tool dig": "invoke_agent bot",
        "invoke_agent bot": "",
    }
    chat, _ = spans.named("chat")
    assert chat.context is not None
    assert headers[0]["traceparent"].split("-")[1:3] == [f"{chat.context.trace_id:032x}", f"{chat.context.span_id:016x}"]
    assert said(spans.one("invoke_agent"))["gen_ai.agent.description"] == "digs"


async def test_nothing_is_current_outside() -> None:
    spans = Spans()
    async for _ in agent(stepping(2), TracingMiddleware(spans.provider)).stream("go"):
        assert not trace.get_current_span().get_span_context().is_valid
    assert not trace.get_current_span().get_span_context().is_valid


async def test_the_callers_span_is_the_parent() -> None:
    spans = Spans()
    with spans.provider.get_tracer("test").start_as_current_span("request"):
        await agent(ScriptedModel(), TracingMiddleware(spans.provider))("go")
    assert parents(spans)["invoke_agent a"] == "request"


async def test_a_conversation_is_named_only_where_the_caller_named_it() -> None:
    for options, call, name in (
        ({}, {}, None),
        ({}, {"thread": "t1"}, "t1"),
        ({"conversation_id_fn": lambda agent: f"c-{agent.name}"}, {}, "c-a"),
    ):
        spans = Spans()
        await agent(stepping(1), TracingMiddleware(spans.provider, **options))("go", **call)  # type: ignore[arg-type]
        assert {said(span).get("gen_ai.conversation.id") for span in spans.ended} == {name}


async def test_a_failing_model_fails_the_reply() -> None:
    spans = Spans()
    with pytest.raises(UpstreamError):
        await agent(ScriptedModel([{"fault": {"status": 400, "code": "invalid_request_error"}}]), TracingMiddleware(spans.provider))("go")
    for span in spans.ended:
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert not span.events


async def test_a_provider_that_takes_nothing_changes_nothing() -> None:
    tracing = TracingMiddleware(NoOpTracerProvider())
    assert not tracing.takes_part()
    stream = agent(ScriptedModel(), tracing).stream("go")
    assert stream.view.hooks.stacks["on_reply"] == ()
    assert (await stream.result()).text == "go"
    assert TracingMiddleware(Spans().provider).takes_part()


async def test_a_reply_that_goes_on_after_its_end_is_one_span() -> None:
    class KeepsBack(MiddlewareBase):
        async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            left = 1
            async for event in next_handler():
                if isinstance(event, ReplyEndEvent) and left:
                    left -= 1
                    continue
                yield event

    spans = Spans()
    await told(agent(ScriptedModel(), KeepsBack(), TracingMiddleware(spans.provider)).stream("go"))
    assert [span.name for span in spans.ended] == ["chat scripted", "chat scripted", "invoke_agent a"]


async def test_an_interrupt_and_a_deadline_are_told_apart() -> None:
    for way in ("interrupt", "deadline"):
        spans = Spans()
        model = ScriptedModel([{"fault": {"stall_after": 1}, "answer": {"text": "a b"}}])
        stream = agent(model, TracingMiddleware(spans.provider)).stream("go", deadline=0.02 if way == "deadline" else None)
        if way == "interrupt":
            asyncio.get_running_loop().call_later(0.02, stream.interrupt)
            await told(stream)
        else:
            with pytest.raises(DeadlineExceeded):
                await told(stream)
        reply = spans.one("invoke_agent")
        assert (said(reply).get("spangate.cancelled"), said(reply).get("error.type")) == (
            (True, None) if way == "interrupt" else (None, "deadline_exceeded")
        )
        assert said(spans.one("chat"))["spangate.cancelled"] is True


async def test_content_is_redacted_in_a_thread_and_what_cannot_be_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    threads: list[threading.Thread] = []

    def redact(text: str) -> str:
        threads.append(threading.current_thread())
        if text == "odd":
            raise KeyError("CANARY")
        return text.replace("CANARY", "***")

    @tool
    def find(what: str) -> str:
        """Find."""
        return f"CANARY {what}"

    spans = Spans()
    tracing = TracingMiddleware(spans.provider, capture_content="redacted", redact=redact)
    await agent(ScriptedModel.saying(calls("find", what="a CANARY"), "CANARY found"), tracing, tools=[find])("go CANARY")
    everything = "".join(span.to_json() for span in spans.ended)
    assert "CANARY" not in everything
    assert said(spans.one("execute_tool"))["gen_ai.tool.call.arguments"] == '{"what": "a ***"}'
    assert said(spans.one("execute_tool"))["gen_ai.tool.call.result"] == "*** a ***"
    assert '"go ***"' in said(spans.one("invoke_agent"))["gen_ai.input.messages"]
    assert '"*** found"' in said(spans.one("invoke_agent"))["gen_ai.output.messages"]
    assert threading.main_thread() not in threads
    assert (await agent(ScriptedModel.saying("fine"), tracing)("odd")).text == "fine"
    assert "gen_ai.input.messages" not in said(spans.ended[-1])
    assert set(caplog.messages) == {"a span lacks what could not be written: KeyError"}


async def test_whoever_leaves_while_content_is_redacted_leaves_no_span_open() -> None:
    cancelled = 0
    for turn in range(60):
        spans = Spans()
        tracing = TracingMiddleware(spans.provider, capture_content="redacted", redact=str.upper)
        task = asyncio.create_task(agent(stepping(1), tracing, thread="t")("go"))
        for _ in range(turn):
            await in_thread(str)
        task.cancel()
        cancelled += isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        spans.assert_each_ended_once()
    assert cancelled > 5


async def test_of_metadata_no_word_is_told() -> None:
    spans = Spans()
    turns = [calls("look", of="CANARY"), "CANARY"]
    await agent(ScriptedModel.saying(*turns), TracingMiddleware(spans.provider, capture_content="metadata"))("CANARY")
    assert "CANARY" not in "".join(span.to_json() for span in spans.ended)
    assert '"length":6' in said(spans.one("invoke_agent"))["gen_ai.input.messages"]
    assert "gen_ai.tool.call.arguments" not in said(spans.one("execute_tool"))
