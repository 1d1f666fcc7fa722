"""Every name that telemetry uses, once: attributes, span and event names, metrics with their buckets, enumerations. No other module
writes one out.

`gen_ai.*` and `openai.*` are those of the GenAI conventions v0.1.0, which no package holds; the others are stable in OpenTelemetry's core
conventions. `spangate.*` is ours. Names ending in `_PREFIX` are continued with a word of the configuration or of a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec

# ---- resource and scope

SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

SERVICE: Final = "spangate"
SCOPE_GATEWAY: Final = "spangate.gateway"
SCOPE_AGENT: Final = "spangate.agent"

# ---- HTTP

HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_REQUEST_METHOD_ORIGINAL: Final = "http.request.method_original"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
URL_FULL: Final = "url.full"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
NETWORK_PROTOCOL_VERSION: Final = "network.protocol.version"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CLIENT_ADDRESS: Final = "client.address"
USER_AGENT_ORIGINAL: Final = "user_agent.original"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"

METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
OTHER: Final = "_OTHER"

# ---- gen_ai

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_OUTPUT_TYPE: Final = "gen_ai.output.type"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_REQUEST_ENCODING_FORMATS: Final = "gen_ai.request.encoding_formats"
GEN_AI_REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
GEN_AI_REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_K: Final = "gen_ai.request.top_k"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_EMBEDDINGS_DIMENSION_COUNT: Final = "gen_ai.embeddings.dimension.count"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_USAGE_COST: Final = "gen_ai.usage.cost"  # ours; the one other figure under gen_ai.usage that viewers understand
GEN_AI_TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no secret
GEN_AI_TOKEN_MODALITY: Final = "gen_ai.token.modality"  # noqa: S105 - no secret
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
OPENAI_API_TYPE: Final = "openai.api.type"
OPENAI_REQUEST_SERVICE_TIER: Final = "openai.request.service_tier"

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
FUNCTION: Final = "function"
"""`gen_ai.tool.type` of a tool that the agent runs itself."""
OPERATIONS: Final[Mapping[str, str]] = {"chat": "chat", "completions": "text_completion", "embeddings": "embeddings"}
"""`gen_ai.operation.name` by our op."""
APIS: Final[Mapping[str, str]] = {"chat": "chat_completions", "completions": "completions", "embeddings": "embeddings"}
"""`spangate.api` by our op."""
OUTPUT_TYPES: Final[Mapping[str, str]] = {"text": "text", "json_object": "json", "json_schema": "json"}
"""`gen_ai.output.type` by the type of a response_format."""

# ---- error.type: a provider's code if it is one of these, else its HTTP status, else one of our words, else _OTHER

PROVIDER_CODES: Final = frozenset({
    "authentication_error", "billing_not_active", "content_filter", "context_length_exceeded", "insufficient_quota", "invalid_api_key",
    "invalid_request_error", "model_not_found", "not_found_error", "overloaded_error", "permission_error", "rate_limit_error",
    "rate_limit_exceeded", "request_too_large", "server_error", "string_above_max_length", "unsupported_parameter", "unsupported_value",
})  # fmt: skip
TIMEOUT: Final = "timeout"
CONNECTION_ERROR: Final = "connection_error"
STREAM_INTERRUPTED: Final = "stream_interrupted"
INVALID_RESPONSE: Final = "invalid_response"
FAILURES: Final[Mapping[str, str]] = {
    "upstream_timeout": TIMEOUT,
    "upstream_unreachable": CONNECTION_ERROR,
    "upstream_incomplete": STREAM_INTERRUPTED,
    "upstream_error": INVALID_RESPONSE,
}
"""`error.type` by our error code."""
ERROR_TYPES: Final = PROVIDER_CODES | {TIMEOUT, CONNECTION_ERROR, STREAM_INTERRUPTED, INVALID_RESPONSE, OTHER}
"""Every `error.type` that is no status."""

# ---- spangate

REQUEST_ID: Final = "spangate.request.id"
OUTCOME: Final = "spangate.outcome"
REFUSAL_REASON: Final = "spangate.refusal.reason"
ERROR_CODE: Final = "spangate.error.code"
ORGANISATION: Final = "spangate.organisation"
TEAM: Final = "spangate.team"
KEY: Final = "spangate.key"
USER: Final = "spangate.user"
TAG_PREFIX: Final = "spangate.tag."
API: Final = "spangate.api"
REQUEST_MODEL: Final = "spangate.request.model"
REQUEST_STREAM: Final = "spangate.request.stream"
ROUTE_NAME: Final = "spangate.route.name"
ROUTE_CONFIDENCE: Final = "spangate.route.confidence"
REPLY_ID: Final = "spangate.reply.id"
PURPOSE: Final = "spangate.purpose"
CANCELLED: Final = "spangate.cancelled"
DEPLOYMENT_NAME: Final = "spangate.deployment.name"
ATTEMPT_COUNT: Final = "spangate.attempt.count"
ATTEMPT_NUMBER: Final = "spangate.attempt.number"
ATTEMPT_REASON: Final = "spangate.attempt.reason"
ATTEMPT_OUTCOME: Final = "spangate.attempt.outcome"
ATTEMPT_HEDGED: Final = "spangate.attempt.hedged"
FALLBACK_FROM: Final = "spangate.fallback.from"
FALLBACK_REASON: Final = "spangate.fallback.reason"
POLICY_PREFIX: Final = "spangate.policy."
POLICY_NAME: Final = "spangate.policy.name"
POLICY_NOTE: Final = "spangate.policy.note"
POLICY_STAGE: Final = "spangate.policy.stage"
POLICY_VERDICT: Final = "spangate.policy.verdict"
POLICY_ACTION: Final = "spangate.policy.action"
POLICY_MODE: Final = "spangate.policy.mode"
POLICY_MATCHED: Final = "spangate.policy.matched"
POLICY_VERSION: Final = "spangate.policy.version"
BUDGET_NAME: Final = "spangate.budget.name"
BUDGET_SCOPE: Final = "spangate.budget.scope"
BUDGET_WINDOW: Final = "spangate.budget.window"
BUDGET_UNIT: Final = "spangate.budget.unit"
ESTIMATE_KIND: Final = "spangate.estimate.kind"
RATE_LIMIT_NAME: Final = "spangate.rate_limit.name"
RATE_LIMIT_SCOPE: Final = "spangate.rate_limit.scope"
RATE_LIMIT_WAITED: Final = "spangate.rate_limit.waited"
COST_SOURCE: Final = "spangate.cost.source"
USAGE_SOURCE: Final = "spangate.usage.source"
STREAM_CHUNK_COUNT: Final = "spangate.stream.chunk.count"
STREAM_ABORTED_BY: Final = "spangate.stream.aborted_by"
SIGNAL: Final = "signal"
REASON: Final = "reason"
RECORD_OUTCOME: Final = "outcome"
METRIC_OVERFLOW: Final = "otel.metric.overflow"

OTHER_MODEL: Final = "_other"
"""What metrics call a model that nobody configured."""
MODALITY: Final = "unknown"
"""`gen_ai.token.modality` where a provider doesn't split its counts."""
TOKEN_INPUT: Final = "input"  # noqa: S105 - no secret
TOKEN_OUTPUT: Final = "output"  # noqa: S105 - no secret
TOKEN_DETAILS: Final = ("cached", "cache_write", "reasoning")
"""Types of `spangate.tokens` beside input and output, of which they are parts."""
MODES: Final = ("enforce", "shadow")
STAGES: Final = ("request", "response", "stream", "tool")

FIGURE_PREFIX: Final = "spangate."
"""A note `budget.reserved` with the figure `used` gives `spangate.budget.used`."""
POLICY_FIGURES: Final = frozenset({"stage", "verdict", "action", "mode", "names", "matched", "version", "rule", "condition"})
"""Figures that every policy may give, under `POLICY_PREFIX`."""
VERDICTS: Final = ("allow", "warn", "modify", "escalate", "deny")
"""From best to worst."""
ACTIONS: Final = ("allow", "modify", "escalate", "block")
REFUSALS: Final[Mapping[str, str]] = {
    "invalid_api_key": "unauthenticated",
    "model_not_found": "forbidden_model",
    "tool_not_allowed": "policy_denied",
    "operation_not_allowed": "policy_denied",
    "stopped": "policy_denied",
    "content_blocked": "policy_denied",
    "budget_exceeded": "budget_exceeded",
    "rate_limit_exceeded": "rate_limited",
    "overloaded": "overloaded",
    "draining": "overloaded",
    "state_unavailable": "overloaded",
}
"""`spangate.refusal.reason` by error code; any other is `invalid_request`."""
FALLBACKS: Final[Mapping[str, str]] = {
    "429": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "insufficient_quota": "rate_limited",
    "context_length_exceeded": "context_length",
    "content_filter": "content_filter",
    TIMEOUT: "timeout",
    "408": "timeout",
    "504": "timeout",
    CONNECTION_ERROR: "connection_error",
}
"""`spangate.fallback.reason` by the `error.type` of the attempt before; any other is `server_error`."""

# ---- names of events

SPAN_PROBE: Final = "spangate doctor"
EVENT_POLICY: Final = "spangate.policy"
EVENT_RATE_LIMIT_WAIT: Final = "spangate.rate_limit.wait"
LOG_POLICY_DECISION: Final = "spangate.policy.decision"
LOG_BUDGET_THRESHOLD: Final = "spangate.budget.threshold"
LOG_BUDGET_REFUSAL: Final = "spangate.budget.refusal"
LOG_RATE_LIMIT_REFUSAL: Final = "spangate.rate_limit.refusal"
LOG_EXCEPTION: Final = "gen_ai.client.inference.exception"

LOG_EVENTS: Final[Mapping[str, str]] = {
    "budget.threshold": LOG_BUDGET_THRESHOLD,
    "budget.refused": LOG_BUDGET_REFUSAL,
    "rate_limit.refused": LOG_RATE_LIMIT_REFUSAL,
}
"""The log event of a note; any other refusal is a `LOG_POLICY_DECISION`."""

# ---- metrics

Kind = Literal["counter", "updown", "gauge", "histogram"]
GenaiNames: TypeAlias = Literal["legacy", "v0_1", "both"]
"""Which names of requests to models are told: those before v0.1.0, its own, or both."""
GENAI_NAMES: Final = get_args(GenaiNames)


class Instrument(msgspec.Struct, frozen=True):
    """One metric. Buckets are upper bounds."""

    name: str
    kind: Kind
    unit: str
    about: str
    buckets: tuple[float, ...] = ()


SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS: Final = tuple(4.0**power for power in range(14))
FIRST_TOKEN: Final = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 45, 60)
PER_TOKEN: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
HTTP_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320)
REPLY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
STEPS: Final = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
OVERHEAD: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


def _counter(name: str, unit: str, about: str) -> Instrument:
    return Instrument(name, "counter", unit, about)


def _histogram(name: str, unit: str, buckets: tuple[float, ...], about: str) -> Instrument:
    return Instrument(name, "histogram", unit, about, buckets)


# gen_ai, as client: the names before v0.1.0
CLIENT_OPERATION_DURATION: Final = _histogram("gen_ai.client.operation.duration", "s", SECONDS, "GenAI operation duration.")
CLIENT_TOKEN_USAGE: Final = _histogram("gen_ai.client.token.usage", "{token}", TOKENS, "Number of input and output tokens used.")
CLIENT_OPERATION_FIRST_CHUNK: Final = _histogram(
    "gen_ai.client.operation.time_to_first_chunk", "s", SECONDS, "Time from the request to the first chunk of a stream."
)
CLIENT_OPERATION_PER_CHUNK: Final = _histogram(
    "gen_ai.client.operation.time_per_output_chunk", "s", SECONDS, "Time from one chunk of a stream to the next."
)
# gen_ai, as client: the names of v0.1.0
INFERENCE_DURATION: Final = _histogram("gen_ai.client.inference.duration", "s", SECONDS, "Duration of a request to a provider.")
INFERENCE_FIRST_CHUNK: Final = _histogram(
    "gen_ai.client.inference.time_to_first_chunk", "s", SECONDS, "Time from the request to the first chunk of a stream."
)
INFERENCE_PER_CHUNK: Final = _histogram(
    "gen_ai.client.inference.time_per_output_chunk", "s", SECONDS, "Time from one chunk of a stream to the next."
)
INFERENCE_INPUT: Final = _counter("gen_ai.client.inference.usage.input_tokens", "{token}", "Input tokens, cached ones included.")
INFERENCE_OUTPUT: Final = _counter("gen_ai.client.inference.usage.output_tokens", "{token}", "Output tokens, reasoning included.")
INFERENCE_CACHE_READ: Final = _counter("gen_ai.client.inference.usage.cache_read.input_tokens", "{token}", "Input tokens from a cache.")
INFERENCE_CACHE_WRITE: Final = _counter(
    "gen_ai.client.inference.usage.cache_write.input_tokens", "{token}", "Input tokens put into a cache."
)
INFERENCE_REASONING: Final = _counter("gen_ai.client.inference.usage.reasoning.output_tokens", "{token}", "Output tokens of reasoning.")
INFERENCE_OPERATION_INPUT: Final = _histogram(
    "gen_ai.client.inference.operation.input_tokens", "{token}", TOKENS, "Input tokens of one request."
)
INFERENCE_OPERATION_OUTPUT: Final = _histogram(
    "gen_ai.client.inference.operation.output_tokens", "{token}", TOKENS, "Output tokens of one request."
)
# gen_ai, as server
SERVER_REQUEST_DURATION: Final = _histogram("gen_ai.server.request.duration", "s", SECONDS, "Duration of a call, as its caller sees it.")
SERVER_FIRST_TOKEN: Final = _histogram("gen_ai.server.time_to_first_token", "s", FIRST_TOKEN, "Time to the first token of an answer.")
SERVER_PER_TOKEN: Final = _histogram("gen_ai.server.time_per_output_token", "s", PER_TOKEN, "Time per output token after the first.")
USAGE_COST: Final = _histogram(GEN_AI_USAGE_COST, "USD", (0.0001, 0.001, 0.01, 0.1, 1, 10), "Cost of one request.")
# gen_ai, as agent
EXECUTE_TOOL_DURATION: Final = _histogram("gen_ai.execute_tool.duration", "s", SECONDS, "Duration of a tool call.")
INVOKE_AGENT_DURATION: Final = _histogram("gen_ai.invoke_agent.duration", "s", REPLY_SECONDS, "Duration of an agent's reply.")
INVOKE_AGENT_INFERENCE_CALLS: Final = _histogram(
    "gen_ai.invoke_agent.inference_calls", "{inference_call}", STEPS, "Requests to models of one reply."
)
INVOKE_AGENT_TOOL_CALLS: Final = _histogram("gen_ai.invoke_agent.tool_calls", "{tool_call}", STEPS, "Tool calls of one reply.")
# HTTP
HTTP_SERVER_DURATION: Final = _histogram("http.server.request.duration", "s", HTTP_SECONDS, "Duration of HTTP server requests.")
HTTP_CLIENT_DURATION: Final = _histogram("http.client.request.duration", "s", HTTP_SECONDS, "Duration of HTTP client requests.")
# spangate
REQUESTS: Final = _counter("spangate.requests", "{request}", "Calls, by how they ended.")
REQUEST_OVERHEAD: Final = _histogram("spangate.request.overhead", "s", OVERHEAD, "Time of a call that was not spent waiting for providers.")
TEAM_TOKENS: Final = _counter("spangate.tokens", "{token}", "Tokens of requests to providers, by team.")
ATTEMPTS: Final = _counter("spangate.attempts", "{attempt}", "Requests sent to providers.")
FALLBACK_COUNT: Final = _counter("spangate.fallbacks", "{fallback}", "Attempts elsewhere after a failure.")
POLICY_DECISIONS: Final = _counter("spangate.policy.decisions", "{decision}", "What policies decided.")
BUDGET_UTILIZATION: Final = Instrument("spangate.budget.utilization", "gauge", "1", "Share of a budget that is used.")
BUDGET_LIMIT: Final = Instrument("spangate.budget.limit", "gauge", "", "How much may be used, in the budget's unit.")
BUDGET_USED: Final = Instrument("spangate.budget.used", "gauge", "", "How much of a budget is used, in its unit.")
BUDGET_RESERVED: Final = Instrument("spangate.budget.reserved", "gauge", "", "How much of a budget calls under way hold, in its unit.")
BUDGET_OVERSHOOT: Final = _counter("spangate.budget.overshoot", "", "How much was used beyond budgets, in their units.")
ESTIMATED_TOKENS: Final = _counter(
    "spangate.estimate.tokens", "{token}", "Tokens that were estimated before calls, that they used, and that were beyond the estimate."
)
STATE_UNAVAILABLE: Final = Instrument(
    "spangate.state.unavailable", "gauge", "", "Whether the shared counters, or some of them, can't be used."
)
STATE_LOST: Final = _counter("spangate.state.lost", "{request}", "Calls of whose end the shared counters were told too late, or never.")
CONNECTIONS_REFUSED: Final = _counter("spangate.connections.refused", "{connection}", "Connections shut, as no files were left for them.")
BUDGET_REFUSALS: Final = _counter("spangate.budget.refusals", "{request}", "Calls refused by a budget.")
RATE_LIMIT_REFUSALS: Final = _counter("spangate.rate_limit.refusals", "{request}", "Calls refused by a rate limit.")
RATE_LIMIT_WAIT: Final = _histogram("spangate.rate_limit.wait.duration", "s", SECONDS, "Time that a call waited for a rate limit.")
COST: Final = _counter("spangate.cost", "{USD}", "Cost of calls.")
STREAMS_ACTIVE: Final = Instrument("spangate.streams.active", "updown", "{stream}", "Streams under way.")
STREAM_MALFORMED: Final = _counter("spangate.stream.malformed", "{event}", "Events of providers' streams that are no JSON.")
UPSTREAM_RESENDS: Final = _counter("spangate.upstream.resends", "{request}", "Requests sent again on a fresh connection.")
USAGE_RECORDS: Final = _counter("spangate.usage.records", "{record}", "Rows of usage, one a call: written, or dropped.")
TELEMETRY_DROPPED: Final = _counter("spangate.telemetry.dropped", "{item}", "Spans, log events and points that were lost.")
CONFIG_RELOAD_FAILED: Final = Instrument(
    "spangate.config.reload_failed", "gauge", "", "Whether the configuration on disk was refused, and an older one is in use."
)
CONFIG_LOADED: Final = Instrument("spangate.config.loaded", "gauge", "s", "When the configuration in use was loaded, in Unix time.")
