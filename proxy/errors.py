"""Errors → HTTP, in OpenAI's shape, so that every client raises its usual exception. The only place that knows statuses.

{"error": {"message", "type", "param", "code", "source", "request_id", "trace_id", "doc_url", …facts}}
"""

from __future__ import annotations

import json
import re
from math import ceil
from typing import Any, Protocol

from ..call import sse
from ..call.errors import ProviderFault, SpangateError, UpstreamError
from ..call.seen import Outcome

STATUS = {
    "invalid_request": 400,
    "content_blocked": 400,
    "invalid_api_key": 401,
    "tool_not_allowed": 403,
    "operation_not_allowed": 403,
    "stopped": 403,
    "model_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "request_too_large": 413,
    "unsupported_encoding": 415,
    "rate_limit_exceeded": 429,
    "budget_exceeded": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "upstream_error": 502,
    "upstream_unreachable": 502,
    "upstream_incomplete": 502,
    "overloaded": 503,
    "draining": 503,
    "state_unavailable": 503,
    "upstream_timeout": 504,
}

PASSED_ON = frozenset({400, 404, 409, 413, 415, 422})
"""Provider statuses that tell the caller about its own request: they go through, with the provider's own words."""

_TYPE = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_exceeded"}
_TYPE |= dict.fromkeys((400, 404, 405, 408, 413, 415, 431), "invalid_request_error")
_LIMITED = frozenset({"rate_limit_error", "rate_limit_exceeded", "insufficient_quota", "tokens", "requests"})


_API_WORD = re.compile(r"[a-z][a-z_]{1,63}")


class Asked(Protocol):
    """A request, as far as its answer names it. A Seen is one."""

    @property
    def id(self) -> str: ...
    @property
    def trace_hex(self) -> str: ...


def status_of(error: SpangateError) -> int:
    """The HTTP status that `error` becomes."""
    if isinstance(error, UpstreamError):
        return _upstream_status(error)
    return STATUS.get(error.code, 500)


def _upstream_status(error: UpstreamError) -> int:
    """What passes through, 429 as 429, a provider's time-out as 504, everything else 502."""
    status = error.status
    if status in PASSED_ON or status == 429:
        return status
    if status in (408, 504):
        return 504
    if status is None and (error.kind in _LIMITED or error.own_code in _LIMITED):
        return 429
    return 502


def outcome_of(error: SpangateError) -> Outcome:
    """`refused` where the call ended before a provider was to blame, `failed` where it or we were."""
    if isinstance(error, ProviderFault) or error.code == "internal_error":
        return "failed"
    return "refused"


def public_code(error: SpangateError) -> str:
    """The word of the error table for `error`, as `calls` and the log keep it."""
    if isinstance(error, UpstreamError):
        return {429: "rate_limit_exceeded", 504: "upstream_timeout"}.get(_upstream_status(error), "upstream_error")
    return error.code


def log_words(error: SpangateError) -> str:
    """What the log tells of `error` beside its code; empty where that says it all. Of a provider's own error not its words, which may
    repeat a prompt or somebody's key: its status, and its type and code where they are words of an API."""
    if isinstance(error, UpstreamError) and error.status is not None:
        own = [word for word in (error.kind, error.own_code) if isinstance(word, str) and _API_WORD.fullmatch(word)]
        return ", ".join([f"the provider answered with status {error.status}", *own]) if error.detail else ""
    return error.detail.encode("ascii", "backslashreplace").decode()[:1000]


def error_object(error: SpangateError, asked: Asked | None = None, base: str = "") -> dict[str, Any]:
    """The object under `error`. Of a provider's error that passes through, the four fields are the provider's own. `base` is where the
    client has reached us, so that `doc_url` can be opened as it stands."""
    status = status_of(error)
    code: str | int | None = public_code(error)
    kind = _TYPE.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if error.code == "budget_exceeded":
        kind = "insufficient_quota"
    if isinstance(error, UpstreamError) and (status in PASSED_ON or status == 429):
        kind, code = error.kind or kind, code if error.kind is None and error.own_code is None else error.own_code
    fields = {"message": error.message, "type": kind, "param": error.param, "code": code, "source": error.source}
    if asked is not None:
        fields |= {"request_id": asked.id, "trace_id": asked.trace_hex}
    return fields | {"doc_url": f"{base}/docs/errors/{public_code(error)}"} | error.facts


def error_body(error: SpangateError, asked: Asked | None = None, base: str = "") -> bytes:
    return json.dumps({"error": error_object(error, asked, base)}, separators=(",", ":")).encode("ascii")


def error_frame(error: SpangateError, asked: Asked, base: str = "") -> bytes:
    """The one event that ends a stream which has begun and cannot end well."""
    return sse.frame(error_body(error, asked, base))


def error_headers(error: SpangateError) -> dict[str, str]:
    """Headers of the error itself. A refusal that a retry can't change says so to OpenAI's clients."""
    headers = {name: _whole_seconds(value) if name == "retry-after" else value for name, value in error.headers.items()}
    if error.code == "budget_exceeded":
        headers["x-should-retry"] = "false"
    return headers


def _whole_seconds(value: str) -> str:
    """RFC 9110, 10.2.3: a number of whole seconds, or a date. Some providers send `1.5`."""
    return str(ceil(float(value))) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,9}", value) else value
