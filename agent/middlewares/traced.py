"""What the spans of an agent say: at their start, as they go, at their end. Nothing here may fail a call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from ...call.errors import SpangateError, UpstreamError
from ...exporters import semconv
from ...exporters.traces.attempts import parameters
from ..events import AgentEvent, ReplyEndEvent, ToolResultEndEvent, ToolResultStartEvent
from ..messages.blocks import ToolCallBlock, ToolResultState
from ..messages.msg import ChatUsage, Msg, as_messages
from ..models.base import ChatModelBase
from ..models.response import ChatResponse
from ..settings import ReplyFinishedReason
from .traced_content import answer_of, cut, messages_of, tools_of

logger = logging.getLogger(__name__)
Said = dict[str, Any]
F = TypeVar("F", bound=Callable[..., None])


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


def harmless(function: F) -> F:
    """What can't be told is not told; the call goes on."""

    def isolated(*args: Any) -> None:
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - telemetry never fails a call
            logger.warning("a span lacks what could not be written: %s", type(error).__name__)

    return isolated  # type: ignore[return-value]


class _Ending:
    """A span that ends once. `limit`: how many characters of content it may hold of each text, 0 for no content at all."""

    def __init__(self, span: Span, limit: int) -> None:
        self.span = span
        self.limit = limit
        self._error = ""
        self._cancelled = False

    def fails(self, error: BaseException) -> None:
        if is_cancellation(error):
            self._cancelled = True
        else:
            self._error = error_type(error)

    def end(self) -> None:
        if self.span.is_recording():
            self._last()
        self.span.end()

    @harmless
    def _last(self) -> None:
        if self._cancelled:
            self.span.set_attribute(semconv.CANCELLED, True)
        elif self._error:
            self.span.set_attribute(semconv.ERROR_TYPE, self._error)
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.set_attributes(self._said())

    def _said(self) -> Said:
        return {}


class ReplySpan(_Ending):
    """`invoke_agent`. `traced` holds the tool calls that have a span of their own."""

    def __init__(self, tracer: Tracer, span: Span, agent: Any, conversation: str, limit: int) -> None:
        super().__init__(span, limit)
        self.conversation = conversation
        self.traced: set[str] = set()
        self._tracer = tracer
        self._agent = agent
        self._begun: dict[str, tuple[str, int]] = {}
        self._ended = False

    @harmless
    def asked(self, inputs: Any) -> None:
        if self.limit and self.span.is_recording():
            self.span.set_attribute(semconv.GEN_AI_INPUT_MESSAGES, messages_of(as_messages(inputs), self.limit))

    @harmless
    def see(self, item: AgentEvent | Msg) -> None:
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
        elif isinstance(item, Msg) and self.limit:
            self.span.set_attribute(semconv.GEN_AI_OUTPUT_MESSAGES, answer_of(item.content, self.limit))

    def fails(self, error: BaseException) -> None:
        # Who leaves once the end is told leaves nothing undone.
        if not (self._ended and isinstance(error, GeneratorExit)):
            super().fails(error)

    def _tool_ended(self, event: ToolResultEndEvent) -> None:
        """A call that was answered without running: denied, unknown, or with arguments that can't be used."""
        name, began = self._begun.pop(event.tool_call_id, ("", 0))
        if not began or event.tool_call_id in self.traced:
            return
        span = self._tracer.start_span(
            f"{semconv.EXECUTE_TOOL} {name}",
            trace.set_span_in_context(self.span),
            attributes=tool_begins(self._agent, event.tool_call_id, name, self.conversation),
            start_time=began,
        )
        told = ToolSpan(span, 0)
        told.gave(event.state, event.metadata, "")
        told.end()

    def _said(self) -> Said:
        usage = sum((each.usage for each in self._agent.attempts if each.usage is not None), ChatUsage())
        said = _used(usage)
        answer = self._agent.answer
        if answer is not None and answer.finish:
            said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [answer.finish]
        return said


class ChatSpan(_Ending):
    """`chat`: one request to one model."""

    def __init__(self, span: Span, agent: Any, model: ChatModelBase, limit: int) -> None:
        super().__init__(span, limit)
        self._model = model
        self._began = time.monotonic()
        self._first: float | None = None
        self._whole: ChatResponse | None = None
        self._usage: ChatUsage | None = None

    @harmless
    def asked(self, input_kwargs: Mapping[str, Any]) -> None:
        if not self.span.is_recording():
            return
        said: Said = dict(parameters(getattr(self._model, "settings", {})))
        if self.limit:
            choice = input_kwargs["tool_choice"]
            said[semconv.GEN_AI_INPUT_MESSAGES] = messages_of(input_kwargs["messages"], self.limit)
            if input_kwargs["tools"] and (choice is None or choice.mode != "none"):
                said[semconv.GEN_AI_TOOL_DEFINITIONS] = tools_of(input_kwargs["tools"])
        self.span.set_attributes(said)

    def piece(self, piece: ChatResponse) -> None:
        self._usage = piece.usage or self._usage
        if self._first is None and piece.says_something:
            self._first = time.monotonic() - self._began

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        self._whole = whole
        if error is not None:
            self.fails(error)
        elif whole is None:
            self._cancelled = True
        self.end()

    def _said(self) -> Said:
        said: Said = {}
        if self._first is not None and getattr(self._model, "stream", False):
            said[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = self._first
        whole = self._whole
        if whole is not None:
            if whole.finish:
                said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [whole.finish]
            if whole.model:
                said[semconv.GEN_AI_RESPONSE_MODEL] = whole.model
            if self.limit:
                said[semconv.GEN_AI_OUTPUT_MESSAGES] = answer_of(whole.content, self.limit)
        # A gateway tells usage itself, in the same trace; twice told is twice counted.
        return said if self._usage is None or getattr(self._model, "is_counted", False) else said | _used(self._usage)


class ToolSpan(_Ending):
    """`execute_tool`."""

    def __init__(self, span: Span, limit: int) -> None:
        super().__init__(span, limit)
        self._result = ""

    @harmless
    def asked(self, call: ToolCallBlock) -> None:
        if self.limit and self.span.is_recording():
            self.span.set_attribute(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, cut(call.input, self.limit))

    def gave(self, state: ToolResultState, metadata: Mapping[str, Any], text: str) -> None:
        self._result = text
        self._cancelled = state is ToolResultState.INTERRUPTED
        if state is ToolResultState.DENIED:
            self._error = "denied"
        elif state is ToolResultState.ERROR:
            self._error = str(metadata.get("error_type") or "tool_error")

    def _said(self) -> Said:
        return {semconv.GEN_AI_TOOL_CALL_RESULT: cut(self._result, self.limit)} if self.limit and self._result else {}


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
    always = (semconv.GEN_AI_USAGE_INPUT_TOKENS, semconv.GEN_AI_USAGE_OUTPUT_TOKENS)
    return {name: value for name, value in said.items() if value or name in always}
