"""agent/middlewares/tracing.py: the spans of a reply, in one trace. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
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


@pytest.mark.fault("TOOL-08")
@pytest.mark.parametrize("stream", [True, False])
async def test_arguments_that_max_tokens_cut_are_told_as_they_are_and_run_nothing(stream: bool) -> None:
    """Half a command is not a command: the tool never hears of it, the model does, and the span holds the text that came."""
    ran = []

    @tool
    def erase(path: str = "/") -> str:
        """Erase."""
        ran.append(path)
        return "gone"

    cut = '{"path":"/a'
    spans = Spans()
    turns = [{"tool_calls": [{"name": "erase", "arguments": cut}], "finish": "length"}, "sorry"]
    model = ScriptedModel.saying(*turns, stream=stream)
    reply = await agent(model, TracingMiddleware(spans.provider, capture_content="full"), tools=[erase])("go")
    assert (reply.text, ran) == ("sorry", [])
    first, _ = spans.named("chat")
    assert said(first)["gen_ai.response.finish_reasons"] == ("length",)
    [message] = json.loads(said(first)["gen_ai.output.messages"])
    assert [part["arguments"] for part in message["parts"]] == [cut]
    _, call, result = model.calls[1]["messages"][-3:]
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"unreadable_arguments": cut}, "some refuse a history without JSON"
    assert result["content"].startswith("erase was not run. The arguments are no JSON")


async def test_of_metadata_no_word_is_told() -> None:
    spans = Spans()
    turns = [calls("look", of="CANARY"), "CANARY"]
    await agent(ScriptedModel.saying(*turns), TracingMiddleware(spans.provider, capture_content="metadata"))("CANARY")
    assert "CANARY" not in "".join(span.to_json() for span in spans.ended)
    assert '"length":6' in said(spans.one("invoke_agent"))["gen_ai.input.messages"]
    assert "gen_ai.tool.call.arguments" not in said(spans.one("execute_tool"))


def failing(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("CANARY")


async def cancelled(agent: Any) -> str:
    raise asyncio.CancelledError


class Wordless:
    def __str__(self) -> str:
        raise KeyError("CANARY")


@pytest.mark.parametrize("names", [failing, cancelled, lambda agent: Wordless()])
async def test_a_conversation_that_cannot_be_named_has_no_name(names: Any, caplog: pytest.LogCaptureFixture) -> None:
    spans = Spans()
    assert (await agent(stepping(1), TracingMiddleware(spans.provider, conversation_id_fn=names))("go")).text
    assert {said(span).get("gen_ai.conversation.id") for span in spans.ended} == {None}
    assert len(spans.ended) == 4
    assert "CANARY" not in caplog.text


class Failing(SpanProcessor):
    def __init__(self, when: str) -> None:
        setattr(self, when, failing)


def processing(when: str) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(Failing(when))
    return provider


class Given:
    """A provider, or a tracer, of which one method fails."""

    def __init__(self, method: str, gives: Any = None) -> None:
        setattr(self, method, failing if gives is None else lambda *args, **kwargs: gives)


UNFIT: dict[str, Any] = {
    "on_start": lambda: {"tracer_provider": processing("on_start")},
    "on_end": lambda: {"tracer_provider": processing("on_end")},
    "get_tracer": lambda: {"tracer_provider": Given("get_tracer")},
    "start_span": lambda: {"tracer_provider": Given("get_tracer", Given("start_span"))},
    "get_meter": lambda: {"tracer_provider": Spans().provider, "meter_provider": Given("get_meter")},
    "create_histogram": lambda: {"tracer_provider": Spans().provider, "meter_provider": Given("get_meter", Given("create_histogram"))},
}


@pytest.mark.parametrize("what", UNFIT)
async def test_telemetry_that_fails_fails_no_reply(what: str, caplog: pytest.LogCaptureFixture) -> None:
    tracing = TracingMiddleware(**UNFIT[what]())
    denied = {"tool_calls": [{"name": "nobody's"}]}
    model = ScriptedModel.saying(denied, calls("dig"), "done")

    @tool
    def dig() -> str:
        """Dig."""
        return "dug"

    assert (await agent(model, tracing, tools=[dig])("go")).text == "done"
    assert {message.rpartition(": ")[2] for message in caplog.messages} <= {"KeyError", "AttributeError"}
    assert caplog.messages


async def test_what_runs_inside_a_span_that_could_not_be_begun_hangs_below_the_callers() -> None:
    spans, inside = Spans(), []

    @tool
    async def dig() -> str:
        """Dig."""
        inside.append(trace.get_current_span().get_span_context())
        return "dug"

    tracing = TracingMiddleware(Given("get_tracer", Given("start_span")))  # type: ignore[arg-type]
    with spans.provider.get_tracer("test").start_as_current_span("request") as request:
        await agent(ScriptedModel.saying(calls("dig"), "done"), tracing, tools=[dig])("go")
        assert request.is_recording()
    assert inside == [request.get_span_context()]
