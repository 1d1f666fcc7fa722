"""What the spans of an agent say: at their start, as they go, at their end. Nothing here may fail a call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, Status, StatusCode, Tracer

from ...call.errors import SpangateError, UpstreamError
from ...exporters import semconv
from ...exporters.traces.attempts import parameters
from ..events import AgentEvent, ReplyEndEvent, ToolResultEndEvent, ToolResultStartEvent
from ..messages.blocks import ToolCallBlock, ToolResultState
from ..messages.msg import ChatUsage, Msg, as_messages
from ..models.base import ChatModelBase
from ..models.response import ChatResponse
from ..settings import ReplyFinishedReason
from ..structured import STRUCTURED
from ..tools.chunks import ToolResponse
from ..tools.threads import in_thread
from .harmless import attempted, harmless, quietly
from .traced_content import Content
from .traced_metrics import Measures

Said = dict[str, Any]
MEASURED = (
    semconv.GEN_AI_OPERATION_NAME,
    semconv.GEN_AI_PROVIDER_NAME,
    semconv.GEN_AI_REQUEST_MODEL,
    semconv.SERVER_ADDRESS,
    semconv.SERVER_PORT,
)
"""What of a request's span stands on its metrics."""


def reply_begins(agent: Any, conversation: str) -> Said:
    said: Said = {
        semconv.GEN_AI_OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.GEN_AI_AGENT_NAME: agent.name,
        semconv.GEN_AI_REQUEST_MODEL: agent.model.model,
        semconv.REPLY_ID: agent.reply_id,
    }
    if agent.description:
        said[semconv.GEN_AI_AGENT_DESCRIPTION] = agent.description
    return said | _in(conversation)


def chat_begins(agent: Any, model: ChatModelBase, conversation: str) -> Said:
    said: Said = {
        semconv.GEN_AI_OPERATION_NAME: semconv.CHAT,
        semconv.GEN_AI_PROVIDER_NAME: _provider(model),
        semconv.GEN_AI_REQUEST_MODEL: model.model,
        semconv.GEN_AI_AGENT_NAME: agent.name,
        semconv.REPLY_ID: agent.reply_id,
        **_address(getattr(model, "address", "")),
    }
    if getattr(model, "stream", False):
        said[semconv.GEN_AI_REQUEST_STREAM] = True
    if agent.purpose != "main":
        return said | _in(conversation) | {semconv.PURPOSE: agent.purpose}
    tries = [each for each in agent.attempts if each.purpose == "main"][sum(len(step.attempts) for step in agent.steps) :]
    reason = "first" if not tries else "retry" if tries[-1].model == model.model else "fallback"
    labels: Said = agent.labels
    return said | _in(conversation) | labels | {semconv.ATTEMPT_NUMBER: len(tries) + 1, semconv.ATTEMPT_REASON: reason}


def tool_begins(agent: Any, call_id: str, name: str, conversation: str) -> Said:
    tool = agent.find_tool(name)
    said: Said = {
        semconv.GEN_AI_OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.GEN_AI_TOOL_NAME: name,
        semconv.GEN_AI_TOOL_TYPE: semconv.FUNCTION,
        semconv.GEN_AI_TOOL_CALL_ID: call_id,
        semconv.GEN_AI_AGENT_NAME: agent.name,
        semconv.REPLY_ID: agent.reply_id,
    }
    if tool is not None and tool.description:
        said[semconv.GEN_AI_TOOL_DESCRIPTION] = tool.description
    return said | _in(conversation)


def _in(conversation: str) -> Said:
    return {semconv.GEN_AI_CONVERSATION_ID: conversation} if conversation else {}


def _provider(model: ChatModelBase) -> str:
    if getattr(model, "takes_reply_labels", False):
        return semconv.SERVICE
    return getattr(model, "provider", "") or semconv.OTHER


def _address(url: str) -> Said:
    parts = urlsplit(url)
    if not parts.hostname:
        return {}
    port = parts.port or semconv.PORTS.get(parts.scheme, 443)
    return {semconv.SERVER_ADDRESS: parts.hostname, semconv.SERVER_PORT: port}


def error_type(error: BaseException) -> str:
    """`error.type`: a provider's code, its status, our word for it, or the name of the exception. Never its words."""
    if isinstance(error, UpstreamError):
        codes = [str(each) for each in (error.own_code, error.kind) if each is not None]
        known = [code for code in codes if code in semconv.PROVIDER_CODES]
        if known or error.status:
            return known[0] if known else str(error.status)
    if isinstance(error, SpangateError):
        return semconv.FAILURES.get(error.code, error.code)
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def is_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError | GeneratorExit)


class Telling(NamedTuple):
    """How an agent is told of: by which tracer, by which instruments if any, and how much of what is said."""

    tracer: Tracer
    measures: Measures | None
    content: Content


def begun(tracer: Tracer, operation: str, name: str, begins: Said, **options: Any) -> Span:
    """A span; where none can be begun, one that tells nothing and stands for the caller's."""
    nothing: Span = NonRecordingSpan(trace.get_current_span().get_span_context())
    return attempted(nothing, tracer.start_span, f"{operation} {name}" if name else operation, attributes=begins, **options)


class _Ending:
    """A span that ends once, and what is measured when it does."""

    def __init__(self, telling: Telling, span: Span) -> None:
        self.span = span
        self.measures = telling.measures
        self.content = telling.content
        self._began = time.monotonic()
        self._error = ""
        self._cancelled = False

    async def write(self, name: str, write: Callable[..., str], *what: Any) -> None:
        """Put content onto the span, if there is to be any."""
        if self.content and self.span.is_recording():
            said, _ = await quietly(self._written(write, what))
            if said:
                self._set(name, said)

    @harmless
    def _set(self, name: str, said: str) -> None:
        self.span.set_attribute(name, said)

    async def _written(self, write: Callable[..., str], what: Sequence[Any]) -> str:
        said: str = await in_thread(write, *what) if self.content.is_slow else write(*what)
        return said

    def fails(self, error: BaseException) -> None:
        if is_cancellation(error):
            self._cancelled = True
        else:
            self._error = error_type(error)

    def end(self) -> None:
        if self.span.is_recording():
            self._last()
        self._over()
        if self.measures is not None:
            self._measured(self.measures, time.monotonic() - self._began)

    @harmless
    def _last(self) -> None:
        if self._cancelled:
            self.span.set_attribute(semconv.CANCELLED, True)
        elif self._error:
            self.span.set_attribute(semconv.ERROR_TYPE, self._error)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.set_attributes(self._said())

    @harmless
    def _over(self) -> None:
        self.span.end()

    def _said(self) -> Said:
        return {}

    def _measured(self, measures: Measures, seconds: float) -> None:
        raise NotImplementedError


class ReplySpan(_Ending):
    """`invoke_agent`. `traced` holds the tool calls that have a span of their own."""

    def __init__(self, telling: Telling, span: Span, agent: Any, conversation: str) -> None:
        super().__init__(telling, span)
        self.conversation = conversation
        self.traced: set[str] = set()
        self._telling = telling
        self._agent = agent
        self._begun: dict[str, tuple[str, int]] = {}
        self._tools = 0
        self._ended = False

    async def asked(self, inputs: Any) -> None:
        await self.write(semconv.GEN_AI_INPUT_MESSAGES, lambda: self.content.messages(as_messages(inputs)))

    async def answered(self, message: Msg) -> None:
        await self.write(semconv.GEN_AI_OUTPUT_MESSAGES, self.content.answer, message.content)

    @harmless
    def see(self, item: AgentEvent) -> None:
        if isinstance(item, ToolResultStartEvent):
            self._begun[item.tool_call_id] = (item.tool_call_name, time.time_ns())
        elif isinstance(item, ToolResultEndEvent):
            self._tool_ended(item)
        elif isinstance(item, ReplyEndEvent):
            self._ended = True
            reason, error = item.finished_reason, item.error
            self._cancelled = reason is ReplyFinishedReason.INTERRUPTED
            if reason is ReplyFinishedReason.ERROR:
                self._error = (error.code or error.type) if error is not None else semconv.OTHER

    def fails(self, error: BaseException) -> None:
        # Who leaves once the end is told leaves nothing undone.
        if not (self._ended and isinstance(error, GeneratorExit)):
            super().fails(error)

    def _tool_ended(self, event: ToolResultEndEvent) -> None:
        """A call that was answered without running: denied, unknown, or with arguments that can't be used."""
        name, began = self._begun.pop(event.tool_call_id, ("", 0))
        if not began:
            return
        self._tools += 1
        if event.tool_call_id in self.traced:
            return
        begins = tool_begins(self._agent, event.tool_call_id, name, self.conversation)
        inside = trace.set_span_in_context(self.span)
        span = begun(self._telling.tracer, semconv.EXECUTE_TOOL, name, begins, context=inside, start_time=began)
        told = ToolSpan(self._telling, span, self._agent, name)
        told.gave(event.state, event.metadata)
        told.end()

    def _said(self) -> Said:
        usage = sum((each.usage for each in self._agent.attempts if each.usage is not None), ChatUsage())
        said = _used(usage)
        answer = self._agent.answer
        if answer is not None and answer.finish:
            said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [answer.finish]
        return said

    @harmless
    def _measured(self, measures: Measures, seconds: float) -> None:
        requests = len(self._agent.attempts)
        measures.reply(self._agent.name, self._agent.model.model, seconds, self._error, requests=requests, tools=self._tools)


class ChatSpan(_Ending):
    """`chat`: one request to one model. `begins`: what its span says at its start, some of which stands on its metrics too."""

    def __init__(self, telling: Telling, span: Span, model: ChatModelBase, begins: Said) -> None:
        super().__init__(telling, span)
        self._model = model
        self._labels = {name: begins[name] for name in MEASURED if name in begins}
        self._streams = bool(getattr(model, "stream", False))
        self._first: float | None = None
        self._latest = self._began
        self._whole: ChatResponse | None = None
        self._usage: ChatUsage | None = None

    async def asked(self, input_kwargs: Mapping[str, Any]) -> None:
        if not self.span.is_recording():
            return
        self._asked_for()
        tools, choice = input_kwargs["tools"], input_kwargs["tool_choice"]
        await self.write(semconv.GEN_AI_INPUT_MESSAGES, self.content.messages, input_kwargs["messages"])
        if tools and (choice is None or choice.mode != "none"):
            await self.write(semconv.GEN_AI_TOOL_DEFINITIONS, self.content.tools, tools)

    @harmless
    def _asked_for(self) -> None:
        self.span.set_attributes(dict(parameters(getattr(self._model, "settings", {}))))

    def piece(self, piece: ChatResponse) -> None:
        self._usage = piece.usage or self._usage
        if not piece.says_something:
            return
        now = time.monotonic()
        if self._first is None:
            self._first = now - self._began
        elif self.measures is not None and not piece.is_last:
            self._chunk(self.measures, piece.model, now - self._latest)
        self._latest = now

    @harmless
    def _chunk(self, measures: Measures, model: str, seconds: float) -> None:
        measures.chunk(self._told(model), seconds)

    def _told(self, model: str) -> Said:
        return {**self._labels, semconv.GEN_AI_RESPONSE_MODEL: model} if model else self._labels

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        self._whole = whole
        try:
            if whole is not None:
                await self.write(semconv.GEN_AI_OUTPUT_MESSAGES, self.content.answer, whole.content)
        finally:
            self._close(whole, error)

    def _close(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        if error is not None:
            self.fails(error)
        elif whole is None:
            self._cancelled = True
        self.end()

    def _said(self) -> Said:
        said: Said = {}
        if self._first is not None and self._streams:
            said[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = self._first
        whole = self._whole
        if whole is not None:
            if whole.finish:
                said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [whole.finish]
            if whole.model:
                said[semconv.GEN_AI_RESPONSE_MODEL] = whole.model
        return said if self._usage is None or self._is_counted else said | _used(self._usage)

    @property
    def _is_counted(self) -> bool:
        # A gateway tells usage itself, in the same trace; twice told is twice counted.
        return bool(getattr(self._model, "is_counted", False))

    @harmless
    def _measured(self, measures: Measures, seconds: float) -> None:
        labels = self._told(self._whole.model if self._whole is not None else "")
        measures.request(labels, seconds, self._error)
        if self._first is not None and self._streams:
            measures.first_chunk(labels, self._first)
        if not self._is_counted:
            measures.usage(labels, self._usage, self._error)


class ToolSpan(_Ending):
    """`execute_tool`."""

    def __init__(self, telling: Telling, span: Span, agent: Any, name: str) -> None:
        super().__init__(telling, span)
        self._agent_name = agent.name
        # A name that the model made up is not one that metrics may bear.
        self._name = name if name == STRUCTURED or agent.find_tool(name) is not None else semconv.OTHER

    async def asked(self, call: ToolCallBlock) -> None:
        await self.write(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, self.content.arguments, call.input)

    async def answered(self, response: ToolResponse) -> None:
        self.gave(response.state, response.metadata)
        await self.write(semconv.GEN_AI_TOOL_CALL_RESULT, lambda: self.content.result(response.text))

    @harmless
    def gave(self, state: ToolResultState, metadata: Mapping[str, Any]) -> None:
        self._cancelled = state is ToolResultState.INTERRUPTED
        if state is ToolResultState.DENIED:
            self._error = "denied"
        elif state is ToolResultState.ERROR:
            self._error = str(metadata.get("error_type") or "tool_error")

    @harmless
    def _measured(self, measures: Measures, seconds: float) -> None:
        measures.tool(self._name, self._agent_name, seconds, self._error)


def _used(usage: ChatUsage) -> Said:
    if usage.source == "none":
        return {}
    said: Said = {
        semconv.GEN_AI_USAGE_INPUT_TOKENS: usage.input_tokens,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: usage.output_tokens,
        semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cache_input_tokens,
        semconv.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: usage.cache_creation_input_tokens,
        semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
    }
    totals = {semconv.GEN_AI_USAGE_INPUT_TOKENS: "input", semconv.GEN_AI_USAGE_OUTPUT_TOKENS: "output"}
    return {name: value for name, value in said.items() if value or totals.get(name, usage.unknown) != usage.unknown}
