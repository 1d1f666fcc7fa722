"""One attempt → its CLIENT span: what was asked of which provider, what came back, which try it was; and its log event if it failed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...call.events import Usage
from ...call.seen import Attempt, Seen
from .. import semconv
from ..record import CLIENT, ERROR, UNSET, WARN, Begun, LogRecord, Said, Shared, Span, Value
from . import outcomes

WORD = 64  # characters of a parameter that should be one word

_ODD, _UINT64 = 0x9E3779B97F4A7C15, 2**64 - 1


class Kind(NamedTuple):
    """What many attempts have in common."""

    operation: str
    system: str
    provider: str
    target_model: str
    address: str
    port: int
    stream: bool
    answered_model: str
    finish: str | None
    usage: str
    number: int
    reason: str
    outcome: str
    error: str
    breaker: str
    organisation: str
    team: str
    key: str


def span(seen: Seen, attempt: Attempt, before: Attempt | None, labels: Mapping[str, Value]) -> Span:
    """The attempt's own. `before` is the attempt that it follows, `labels` what the caller says of itself."""
    operation = operation_of(seen, attempt)
    error = outcomes.attempt_error(attempt)
    usage = attempt.usage
    common = (
        operation, attempt.system, attempt.provider, attempt.target_model, attempt.address, attempt.port, attempt.stream,
        attempt.answered_model, attempt.finish, usage.source if usage is not None else "none", attempt.number, attempt.reason,
        attempt.outcome or "cancelled", error, outcomes.attempt_broken_by(attempt, seen), seen.organisation, seen.team, seen.key,
    )  # fmt: skip
    own = _asked(attempt) if attempt.request else {}
    if seen.thread:
        own[semconv.GEN_AI_CONVERSATION_ID] = seen.thread
    _answered(own, attempt, operation)
    if attempt.reason == "fallback" and before is not None:
        own[semconv.FALLBACK_FROM] = before.provider
        own[semconv.FALLBACK_REASON] = outcomes.fallback(before)
    if labels:
        own.update(labels)
    return Span(
        trace_id=seen.trace_id,
        span_id=attempt.span_id,
        name=f"{operation} {attempt.target_model}" if attempt.target_model else operation,
        kind=CLIENT,
        start=attempt.started_ns,
        end=ended_at(seen, attempt),
        attributes=Begun(_shared(common), own),
        parent_id=seen.span_id,
        trace_state=seen.trace_state,
        status=ERROR if error else UNSET,
        message=attempt.error_type if error and error == semconv.FAILURES.get(attempt.error_type) else "",
    )


@lru_cache(1024)
def _shared(common: tuple[Any, ...]) -> Shared:
    kind = Kind(*common)
    said: Said = {
        semconv.GEN_AI_OPERATION_NAME: kind.operation,
        semconv.GEN_AI_PROVIDER_NAME: kind.system or kind.provider,
        semconv.GEN_AI_REQUEST_MODEL: kind.target_model,
        semconv.DEPLOYMENT_NAME: kind.provider,
        semconv.ATTEMPT_NUMBER: kind.number,
        semconv.ATTEMPT_REASON: kind.reason,
        semconv.ATTEMPT_OUTCOME: kind.outcome,
        semconv.USAGE_SOURCE: kind.usage,
    }
    if kind.address:
        said[semconv.SERVER_ADDRESS] = kind.address
        if kind.port:
            said[semconv.SERVER_PORT] = kind.port
    if kind.stream:
        said[semconv.GEN_AI_REQUEST_STREAM] = True
    if kind.system == "openai" and kind.operation == "chat":
        said[semconv.OPENAI_API_TYPE] = "chat_completions"
    if kind.finish:
        said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = [kind.finish]
    if kind.reason == "hedge":
        said[semconv.ATTEMPT_HEDGED] = True
    words = {
        semconv.GEN_AI_RESPONSE_MODEL: kind.answered_model,
        semconv.ERROR_TYPE: kind.error,
        semconv.STREAM_ABORTED_BY: kind.breaker,
        semconv.ORGANISATION: kind.organisation,
        semconv.TEAM: kind.team,
        semconv.KEY: kind.key,
    }
    said.update({name: value for name, value in words.items() if value})
    return Shared(said)


def operation_of(seen: Seen, attempt: Attempt) -> str:
    """`gen_ai.operation.name`."""
    op = attempt.op or seen.op
    return semconv.OPERATIONS.get(op, op)


def ended_at(seen: Seen, attempt: Attempt) -> int:
    """Wall time in nanoseconds."""
    return attempt.started_ns + max(0, round(((attempt.ended or seen.ended) - attempt.started) * 1e9))


def _asked(attempt: Attempt) -> Said:
    """The parameters of the request."""
    said = parameters(attempt.request)
    tier = attempt.request.get("service_tier")
    if attempt.system == "openai" and isinstance(tier, str) and tier != "auto":
        said[semconv.OPENAI_REQUEST_SERVICE_TIER] = tier[:WORD]
    return said


_FLOATS: Final[Mapping[str, str]] = {
    "temperature": semconv.GEN_AI_REQUEST_TEMPERATURE,
    "top_p": semconv.GEN_AI_REQUEST_TOP_P,
    "frequency_penalty": semconv.GEN_AI_REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.GEN_AI_REQUEST_PRESENCE_PENALTY,
}
_INTEGERS: Final[Mapping[str, str]] = {
    "max_tokens": semconv.GEN_AI_REQUEST_MAX_TOKENS,
    "max_completion_tokens": semconv.GEN_AI_REQUEST_MAX_TOKENS,
    "seed": semconv.GEN_AI_REQUEST_SEED,
    "top_k": semconv.GEN_AI_REQUEST_TOP_K,
    "n": semconv.GEN_AI_REQUEST_CHOICE_COUNT,
    "dimensions": semconv.GEN_AI_EMBEDDINGS_DIMENSION_COUNT,
}


def parameters(request: Mapping[str, Any]) -> Said:
    """The parameters of a request that have a name in telemetry, if they are what they should be: a caller may send anything."""
    said: Said = {}
    for name, value in request.items():
        if isinstance(value, bool):
            continue
        if name in _FLOATS and isinstance(value, int | float) and -1e9 < value < 1e9:
            said[_FLOATS[name]] = float(value)
        elif name in _INTEGERS and isinstance(value, int) and abs(value) < 2**63 and (name, value) != ("n", 1):
            said[_INTEGERS[name]] = value
        elif name == "reasoning_effort" and isinstance(value, str):
            said[semconv.GEN_AI_REQUEST_REASONING_LEVEL] = value[:WORD]
        elif name == "encoding_format" and isinstance(value, str):
            said[semconv.GEN_AI_REQUEST_ENCODING_FORMATS] = [value[:WORD]]
        elif name == "response_format":
            kind = value.get("type") if isinstance(value, Mapping) else value
            if isinstance(kind, str) and kind in semconv.OUTPUT_TYPES:
                said[semconv.GEN_AI_OUTPUT_TYPE] = semconv.OUTPUT_TYPES[kind]
    return said


def _answered(said: Said, attempt: Attempt, operation: str) -> None:
    """What came back."""
    if attempt.response_id:
        said[semconv.GEN_AI_RESPONSE_ID] = attempt.response_id
    if attempt.stream:
        if attempt.first_content:
            said[semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK] = max(0.0, attempt.first_content - attempt.started)
        if attempt.deltas:
            said[semconv.STREAM_CHUNK_COUNT] = attempt.deltas
    usage = attempt.usage
    if usage is not None and usage.source != "none":
        _used(said, usage, operation)


def _used(said: Said, usage: Usage, operation: str) -> None:
    """Details are left out where they are nothing, as viewers expect, and a total where it isn't known: no total is 0 for that."""
    if usage.unknown != "input":
        said[semconv.GEN_AI_USAGE_INPUT_TOKENS] = usage.input
    if usage.unknown != "output" and (usage.output or operation != "embeddings"):
        said[semconv.GEN_AI_USAGE_OUTPUT_TOKENS] = usage.output
    if usage.cached:
        said[semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] = usage.cached
    if usage.cache_write:
        said[semconv.GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS] = usage.cache_write
    if usage.reasoning:
        said[semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS] = usage.reasoning


def http_span(seen: Seen, attempt: Attempt) -> Span:
    """A child of the attempt's span for its HTTP request. Its id follows from the attempt's, so that nobody needs to keep it."""
    said: Said = {semconv.HTTP_REQUEST_METHOD: "POST"}
    if attempt.address:
        said |= {semconv.SERVER_ADDRESS: attempt.address, semconv.SERVER_PORT: attempt.port}
    if attempt.url:
        said[semconv.URL_FULL] = attempt.url
    if attempt.status:
        said[semconv.HTTP_RESPONSE_STATUS_CODE] = attempt.status
    error = str(attempt.status) if attempt.status and attempt.status >= 400 else outcomes.attempt_error(attempt)
    if error:
        said[semconv.ERROR_TYPE] = error
    return Span(
        trace_id=seen.trace_id,
        span_id=(attempt.span_id * _ODD) & _UINT64 or 1,
        name="POST",
        kind=CLIENT,
        start=attempt.started_ns,
        end=ended_at(seen, attempt),
        attributes=said,
        parent_id=attempt.span_id,
        trace_state=seen.trace_state,
        status=ERROR if error else UNSET,
    )


def exception(seen: Seen, attempt: Attempt) -> LogRecord:
    """An attempt that failed: which kind of failure, never its words."""
    said: Said = {
        semconv.EXCEPTION_TYPE: outcomes.attempt_error(attempt),
        semconv.GEN_AI_OPERATION_NAME: operation_of(seen, attempt),
        semconv.GEN_AI_PROVIDER_NAME: attempt.system or attempt.provider,
        semconv.GEN_AI_REQUEST_MODEL: attempt.target_model,
        semconv.DEPLOYMENT_NAME: attempt.provider,
        semconv.ATTEMPT_NUMBER: attempt.number,
    }
    return LogRecord(semconv.LOG_EXCEPTION, ended_at(seen, attempt), said, WARN, seen.trace_id, attempt.span_id, sampled=True)
