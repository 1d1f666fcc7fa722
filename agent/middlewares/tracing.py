"""`TracingMiddleware`: a span for each reply, each request to a model, and each tool call, through the OpenTelemetry API.

A span is current only while its inside runs, one step at a time: it is never held across a `yield`, so a stream may be read and left by
any task. Where no provider is set, each hook gives back what the next one gives.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, ClassVar

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, SpanKind, Tracer, TracerProvider

from ... import __version__
from ...exporters import semconv
from ..hooks import MiddlewareBase
from ..models.response import ChatResponse, ModelStream
from ..tools.chunks import ToolResponse
from .given import number, said_by
from .traced import ChatSpan, ReplySpan, ToolSpan, chat_begins, reply_begins, tool_begins
from .traced_content import Capture, capture_of
from .watched import Watched, Watcher, watched

_END = object()


class TracingMiddleware(MiddlewareBase):
    """Put it first in the list. `tracer_provider`: default the process's, asked for at each reply, since it may be set later.

    `capture_content="full"` puts messages, arguments and results on the spans, each text cut at `max_attr_len` characters; `"none"` never
    does. Default: what `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, and none without it. `conversation_id_fn(agent)` names
    the conversation; default: the reply's thread, where the caller named one. Where the model is a gateway of ours, which counts by
    itself, the spans of model calls carry no usage: tokens are counted once.
    """

    innermost: ClassVar[frozenset[str]] = frozenset({"on_model_call"})

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        capture_content: Capture | None = None,
        max_attr_len: int = 8192,
        conversation_id_fn: Callable[..., Any] | None = None,
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        self._provider = tracer_provider
        self._limit = int(number("max_attr_len", max_attr_len, least=1)) if capture_of(capture_content) else 0
        self._conversation_id_fn = conversation_id_fn
        self._key = otel.create_key("spangate-reply")
        self._known: tuple[TracerProvider | None, Tracer | None] = (None, None)

    def _tracer(self) -> Tracer | None:
        """None where nobody takes spans."""
        provider = self._provider or trace.get_tracer_provider()
        known, tracer = self._known
        if provider is not known:
            nobody = type(provider) in (ProxyTracerProvider, NoOpTracerProvider)
            tracer = None if nobody else provider.get_tracer(semconv.SCOPE_AGENT, __version__)
            self._known = (provider, tracer)
        return tracer

    def takes_part(self) -> bool:
        return self._tracer() is not None

    # a reply

    def on_reply(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncIterator[Any]:
        tracer = self._tracer()
        events: AsyncIterator[Any] = next_handler()
        return events if tracer is None else self._reply(tracer, agent, input_kwargs, events)

    async def _reply(
        self, tracer: Tracer, agent: Any, input_kwargs: dict[str, Any], events: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        conversation = agent.thread_id if agent.has_thread else ""
        if self._conversation_id_fn is not None:
            conversation = str(await said_by(self._conversation_id_fn, agent) or "")
        span = tracer.start_span(_named(semconv.INVOKE_AGENT, agent.name), attributes=reply_begins(agent, conversation))
        told = ReplySpan(tracer, span, agent, conversation, self._limit)
        told.asked(input_kwargs["inputs"])
        inside = otel.set_value(self._key, told, trace.set_span_in_context(span))
        try:
            while (item := await _next(events, inside)) is not _END:
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
        tracer = self._tracer()
        return next_handler() if tracer is None else self._model_call(tracer, agent, input_kwargs, next_handler)

    async def _model_call(self, tracer: Tracer, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        model = input_kwargs["current_model"]
        begins = chat_begins(agent, model, self._conversation())
        span = tracer.start_span(_named(semconv.CHAT, model.model), kind=SpanKind.CLIENT, attributes=begins)
        told = ChatSpan(span, agent, model, self._limit)
        told.asked(input_kwargs)
        inside = trace.set_span_in_context(span)
        return await watched(agent, partial(_within, inside, next_handler), told, _stream=partial(_Traced, inside))

    # a tool call

    def on_acting(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncIterator[Any]:
        tracer = self._tracer()
        chunks: AsyncIterator[Any] = next_handler()
        return chunks if tracer is None else self._acting(tracer, agent, input_kwargs, chunks)

    async def _acting(
        self, tracer: Tracer, agent: Any, input_kwargs: dict[str, Any], chunks: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        call, reply = input_kwargs["tool_call"], otel.get_value(self._key)
        if isinstance(reply, ReplySpan):
            reply.traced.add(call.id)
        begins = tool_begins(agent, call.id, call.name, self._conversation())
        span = tracer.start_span(_named(semconv.EXECUTE_TOOL, call.name), attributes=begins)
        told, inside = ToolSpan(span, self._limit), trace.set_span_in_context(span)
        told.asked(call)
        try:
            while (chunk := await _next(chunks, inside)) is not _END:
                if isinstance(chunk, ToolResponse):
                    told.gave(chunk.state, chunk.metadata, chunk.text)
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


def _named(operation: str, name: str) -> str:
    return f"{operation} {name}" if name else operation
