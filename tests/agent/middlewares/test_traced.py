"""agent/middlewares/traced.py: what stands on each span."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from spangate.agent import (
    BatchPlan,
    MiddlewareBase,
    ModelCallEndEvent,
    PermissionDecision,
    ScriptedModel,
    ToolResponse,
    TracingMiddleware,
    calls,
    tool,
)
from spangate.agent.errors import NoAnswer
from spangate.agent.middlewares.traced import error_type
from spangate.call.errors import UpstreamError, UpstreamTimeout

from acceptance.lines import Half, Spans, agent, look, said, stepping


async def test_what_a_reply_says() -> None:
    spans = Spans()
    usage = {"input": 10, "output": 4, "cached": 3}
    stream = agent(stepping(1, usage=usage), TracingMiddleware(spans.provider)).stream("go")
    await stream.result()
    span = spans.one("invoke_agent")
    assert span.kind is SpanKind.INTERNAL
    assert said(span) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.request.model": "scripted",
        "spangate.reply.id": stream.reply_id,
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 6,
        "gen_ai.response.finish_reasons": ("stop",),
    }


async def test_what_a_request_says() -> None:
    spans = Spans()
    model = ScriptedModel([{"answer": {"text": "a b"}, "usage": {"input": 1, "output": 2}}], model="m")
    model.settings = {"temperature": 0.5, "max_tokens": 9, "user": "someone"}
    stream = agent(model, TracingMiddleware(spans.provider)).stream("go")
    await stream.result()
    span = spans.one("chat")
    found = said(span)
    assert span.kind is SpanKind.CLIENT
    assert found.pop("gen_ai.response.time_to_first_chunk") >= 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.agent.name": "a",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "spangate.reply.id": stream.reply_id,
        "spangate.attempt.number": 1,
        "spangate.attempt.reason": "first",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.model": "m",
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2,
    }


@pytest.mark.fault("USE-12")
async def test_a_total_that_was_left_out_is_not_nought() -> None:
    spans = Spans()
    events = [event async for event in agent(Half([{"answer": {"text": "a b"}}]), TracingMiddleware(spans.provider)).stream("go")]
    for name in ("chat", "invoke_agent"):
        found = said(spans.one(name))
        assert (found["gen_ai.usage.input_tokens"], "gen_ai.usage.output_tokens" in found) == (7, False)
    assert [event.usage_unknown for event in events if isinstance(event, ModelCallEndEvent)] == ["output"]


async def test_a_gateway_counts_by_itself() -> None:
    class Gateway(ScriptedModel):
        takes_reply_labels = True  # type: ignore[assignment]
        address = "https://gw.example.com/v1"  # type: ignore[assignment]

    spans = Spans()
    await agent(Gateway.saying("hi", model="smart"), TracingMiddleware(spans.provider))("go")
    found = said(spans.one("chat"))
    assert not [name for name in found if "usage" in name]
    assert (found["gen_ai.provider.name"], found["server.address"], found["server.port"]) == ("spangate", "gw.example.com", 443)
    assert said(spans.one("invoke_agent"))["gen_ai.usage.input_tokens"] > 0, "the totals stand on the reply"


async def test_internal_calls_say_what_they_are_for() -> None:
    class Asks(MiddlewareBase):
        async def before_model(self, agent: Any) -> None:
            await agent.ask("?", purpose="guard", by=self)

    spans = Spans()
    await agent(ScriptedModel(), TracingMiddleware(spans.provider), Asks())("go")
    first, second = spans.named("chat")
    assert (said(first)["spangate.purpose"], said(second).get("spangate.purpose")) == ("guard", None)
    assert said(second)["spangate.attempt.number"] == 1


async def test_a_retry_is_another_try_of_the_same_model() -> None:
    class Retry(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            try:
                return await next_handler()
            except UpstreamError:
                return await next_handler()

    spans = Spans()
    model = ScriptedModel.saying(calls("look"), {"fault": {"status": 503}}, "done")
    await agent(model, TracingMiddleware(spans.provider), Retry())("go")
    found = [(said(span)["spangate.attempt.number"], said(span)["spangate.attempt.reason"]) for span in spans.named("chat")]
    assert found == [(1, "first"), (1, "first"), (2, "retry")]


class Denies(MiddlewareBase):
    async def on_check_permission(self, agent: Any, input_kwargs: Any, next_handler: Any) -> PermissionDecision:
        return PermissionDecision.deny("no") if input_kwargs["tool_call"].name == "denied" else await next_handler()

    async def on_tool_calls(self, agent: Any, input_kwargs: Any, next_handler: Any) -> BatchPlan:
        plan: BatchPlan = await next_handler()
        for each in plan:
            if each.call.name == "answered":
                plan = plan.answer(each.call.id, "not this one")
        return plan


async def test_every_tool_call_has_a_span_with_what_became_of_it() -> None:
    @tool
    def fails() -> str:
        """Fail."""
        raise KeyError("CANARY")

    @tool
    def refuses() -> ToolResponse:
        """Say no."""
        return ToolResponse.error("no")

    @tool
    def denied() -> str:
        """Never."""
        return ""

    @tool
    def answered() -> str:
        """Never."""
        return ""

    spans = Spans()
    asked = [{"name": name} for name in ("look", "fails", "refuses", "denied", "answered", "nobodys")]
    asked.append({"name": "look", "arguments": {"of": 3}})
    model = ScriptedModel.saying({"tool_calls": asked}, "done")
    layers = [TracingMiddleware(spans.provider), Denies()]
    await agent(model, *layers, tools=[look, fails, refuses, denied, answered])("go")
    found = [(span.name.split()[1], said(span).get("error.type")) for span in spans.named("execute_tool")]
    assert sorted(found, key=str) == sorted(
        [
            ("look", None),
            ("fails", "KeyError"),
            ("refuses", "tool_error"),
            ("denied", "denied"),
            ("answered", "tool_error"),
            ("nobodys", "unknown_tool"),
            ("look", "invalid_arguments"),
        ],
        key=str,
    )
    for span in spans.named("execute_tool"):
        assert (span.status.status_code is StatusCode.ERROR) == ("error.type" in said(span))
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.end_time >= span.start_time
        assert said(span)["gen_ai.tool.type"] == "function"
        assert said(span)["gen_ai.tool.call.id"]
    assert said(next(span for span in spans.named("execute_tool look")))["gen_ai.tool.description"] == "Look."
    assert spans.one("invoke_agent").status.status_code is StatusCode.UNSET, "the agent dealt with it"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UpstreamError("x", status=429, kind="rate_limit_error", own_code="rate_limit_exceeded"), "rate_limit_exceeded"),
        (UpstreamError("x", status=429, kind="odd", own_code="mine"), "429"),
        (UpstreamError("x"), "invalid_response"),
        (UpstreamTimeout("x", limit="total"), "timeout"),
        (NoAnswer("x"), "stream_interrupted"),
        (builtins.ValueError("x"), "ValueError"),
    ],
)
def test_what_an_error_is_called(error: BaseException, told: str) -> None:
    assert error_type(error) == told


def test_a_foreign_error_is_called_by_its_full_name() -> None:
    class Odd(Exception):
        pass

    assert error_type(Odd()).endswith("Odd")
    assert error_type(Odd()).startswith(__name__)
