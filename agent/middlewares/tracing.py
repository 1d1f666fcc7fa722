"""`TracingMiddleware`: a span for each reply, each request to a model, and each tool call, and what they took as metrics; through the
OpenTelemetry API.

A span is current only while its inside runs, one step at a time: it is never held across a `yield`, so a stream may be read and left by
any task. Where no provider is set, each hook gives back what the next one gives.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, ClassVar

from opentelemetry import context as otel
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import NoOpTracer, NoOpTracerProvider, SpanKind, Tracer, TracerProvider

from ... import __version__
from ...exporters import semconv
from ...exporters.semconv import GENAI_NAMES, GenaiNames
from ..events import AgentEvent
from ..hooks import MiddlewareBase
from ..messages.msg import Msg
from ..models.response import ChatResponse, ModelStream
from ..tools.chunks import ToolResponse
from .given import number, said_by
from .harmless import attempted, quietly
from .traced import ChatSpan, ReplySpan, Telling, ToolSpan, begun, chat_begins, reply_begins, tool_begins
from .traced_content import Capture, Content, Redact
from .traced_metrics import Measures, measuring
from .watched import Watched, Watcher, watched

_END = object()
_NO_SPANS: TracerProvider = NoOpTracerProvider()
_NO_METRICS: MeterProvider = NoOpMeterProvider()
_API = ("opentelemetry.trace", "opentelemetry.metrics")


class TracingMiddleware(MiddlewareBase):
    """Put it first in the list. `tracer_provider`, `meter_provider`: default the process's, asked for at each reply, since they may be set
    later.

    `capture_content`: what of messages, arguments and results stands on the spans. `"none"`: nothing. `"metadata"`: who said what kind of
    thing, how long, no word of it. `"full"`: each text, cut at `max_attr_len` characters. `"redacted"`: the same after `redact`, a function
    of a text. Default: what `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, and none without it. `conversation_id_fn(agent)`
    names the conversation; default: the reply's thread, where the caller named one. `genai_metrics`: the names of the metrics of requests
    to models, `"legacy"`, those of OpenTelemetry's conventions `"v0_1"`, or `"both"`. Where the model is a gateway of ours, which counts by
    itself, model calls bear no usage: tokens are counted once.
    """

    innermost: ClassVar[frozenset[str]] = frozenset({"on_model_call"})

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        capture_content: Capture | None = None,
        redact: Redact | None = None,
        max_attr_len: int = 8192,
        conversation_id_fn: Callable[..., Any] | None = None,
        genai_metrics: GenaiNames = "both",
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        if genai_metrics not in GENAI_NAMES:
            raise ValueError(f"genai_metrics must be one of {', '.join(GENAI_NAMES)}, not {genai_metrics!r}")
        self._providers = (tracer_provider, meter_provider)
        self._content = Content(capture_content, int(number("max_attr_len", max_attr_len, least=1)), redact)
        self._conversation_id_fn = conversation_id_fn
        self._names = genai_metrics
        self._key = otel.create_key("spangate-reply")
        self._known: tuple[Any, Any, Telling | None] = (None, None, None)

    def _telling(self) -> Telling | None:
        """None where nobody takes spans, or metrics."""
        given, measured = self._providers
        traces = given or attempted(_NO_SPANS, trace.get_tracer_provider)
        meters = measured or attempted(_NO_METRICS, metrics.get_meter_provider)
        known, also_known, telling = self._known
        if traces is not known or meters is not also_known:
            telling = self._found(traces, meters)
            self._known = (traces, meters, telling)
        return telling

    def _found(self, traces: TracerProvider, meters: MeterProvider) -> Telling | None:
        # The API's own providers stand for nobody.
        takes_spans, takes_metrics = (not type(each).__module__.startswith(_API) for each in (traces, meters))
        if not (takes_spans or takes_metrics):
            return None
        tracer: Tracer = NoOpTracer()
        if takes_spans:
            tracer = attempted(tracer, traces.get_tracer, semconv.SCOPE_AGENT, __version__)
        measures = attempted(None, self._measures, meters) if takes_metrics else None
        return Telling(tracer, measures, self._content)

    def _measures(self, meters: MeterProvider) -> Measures | None:
        return Measures(meters.get_meter(semconv.SCOPE_AGENT, __version__), self._names)

    def takes_part(self) -> bool:
        return self._telling() is not None

    # a reply

    def on_reply(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncIterator[Any]:
        telling = self._telling()
        events: AsyncIterator[Any] = next_handler()
        return events if telling is None else self._reply(telling, agent, input_kwargs, events)

    async def _reply(
        self, telling: Telling, agent: Any, input_kwargs: dict[str, Any], events: AsyncIterator[AgentEvent | Msg]
    ) -> AsyncGenerator[AgentEvent | Msg, None]:
        conversation = agent.thread_id if agent.has_thread else ""
        if self._conversation_id_fn is not None:
            conversation = (await quietly(_said(self._conversation_id_fn, agent)))[0] or ""
        span = begun(telling.tracer, semconv.INVOKE_AGENT, agent.name, reply_begins(agent, conversation))
        told = ReplySpan(telling, span, agent, conversation)
        inside = measuring(otel.set_value(self._key, told, trace.set_span_in_context(span)), telling.measures)
        try:
            await told.asked(input_kwargs["inputs"])
            while (item := await _next(events, inside)) is not _END:
                if isinstance(item, Msg):
                    await told.answered(item)
                else:
                    told.see(item)
                yield item
        except BaseException as error:
            told.fails(error)
            raise
        finally:
            if hasattr(events, "aclose"):
                await events.aclose()
            told.end()

    # a request to a model

    def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        telling = self._telling()
        return next_handler() if telling is None else self._model_call(telling, agent, input_kwargs, next_handler)

    async def _model_call(self, telling: Telling, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        model = input_kwargs["current_model"]
        begins: dict[str, Any] = attempted({}, chat_begins, agent, model, self._conversation())
        span = begun(telling.tracer, semconv.CHAT, model.model, begins, kind=SpanKind.CLIENT)
        told, inside = ChatSpan(telling, span, model, begins), trace.set_span_in_context(span)

        async def asking(**changed: Any) -> Any:
            await told.asked(input_kwargs)
            return await _within(inside, next_handler, **changed)

        return await watched(agent, asking, told, _stream=partial(_Traced, inside))

    # a tool call

    def on_acting(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncIterator[Any]:
        telling = self._telling()
        chunks: AsyncIterator[Any] = next_handler()
        return chunks if telling is None else self._acting(telling, agent, input_kwargs, chunks)

    async def _acting(
        self, telling: Telling, agent: Any, input_kwargs: dict[str, Any], chunks: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        call, reply = input_kwargs["tool_call"], otel.get_value(self._key)
        if isinstance(reply, ReplySpan):
            reply.traced.add(call.id)
        begins = tool_begins(agent, call.id, call.name, self._conversation())
        span = begun(telling.tracer, semconv.EXECUTE_TOOL, call.name, begins)
        told, inside = ToolSpan(telling, span, agent, call.name), trace.set_span_in_context(span)
        try:
            await told.asked(call)
            while (chunk := await _next(chunks, inside)) is not _END:
                if isinstance(chunk, ToolResponse):
                    await told.answered(chunk)
                yield chunk
        except BaseException as error:
            told.fails(error)
            raise
        finally:
            if hasattr(chunks, "aclose"):
                await chunks.aclose()
            told.end()

    def _conversation(self) -> str:
        reply = otel.get_value(self._key)
        return reply.conversation if isinstance(reply, ReplySpan) else ""


class _Traced(Watched):
    """A stream whose span is current while a piece is waited for, and at no other time."""

    def __init__(self, inside: Context, source: ModelStream, watcher: Watcher) -> None:
        super().__init__(source, watcher)
        self._inside = inside

    async def __anext__(self) -> ChatResponse:
        token = otel.attach(self._inside)
        try:
            return await super().__anext__()
        finally:
            otel.detach(token)


async def _next(items: AsyncIterator[Any], inside: Context) -> Any:
    """One step within the context; in a coroutine of its own, so that none is held across a yield."""
    token = otel.attach(inside)
    try:
        return await anext(items, _END)
    finally:
        otel.detach(token)


async def _within(inside: Context, next_handler: Callable[..., Any], **changed: Any) -> Any:
    token = otel.attach(inside)
    try:
        return await next_handler(**changed)
    finally:
        otel.detach(token)


async def _said(function: Callable[..., Any], agent: Any) -> str:
    return str(await said_by(function, agent) or "")
