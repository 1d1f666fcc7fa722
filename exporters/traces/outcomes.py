"""How ends are called in telemetry: the `error.type` of a call and of an attempt, the reason of a refusal and of a fallback, who broke
a stream. Spans and metrics use the same words, by asking here.
"""

from __future__ import annotations

from ...call.seen import Attempt, Seen
from .. import semconv


def attempt_error(attempt: Attempt) -> str:
    """`error.type` of an attempt; empty unless it failed. One that we cancelled has not."""
    if attempt.outcome != "error":
        return ""
    said = attempt.error_type
    if said in semconv.PROVIDER_CODES or (len(said) == 3 and said.isascii() and said.isdigit()):
        return said
    if said == "upstream_error" and attempt.first_content:
        return semconv.STREAM_INTERRUPTED
    return semconv.FAILURES.get(said, semconv.OTHER)


def call_error(seen: Seen) -> str:
    """`error.type` of a call, as its caller saw it: empty where the caller erred, or left."""
    if seen.outcome not in ("failed", "refused"):
        return ""
    if seen.status >= 500:
        return str(seen.status)
    if seen.status >= 400:
        return ""
    last = seen.attempts[-1] if seen.attempts else None  # its status was out already
    return (attempt_error(last) if last else "") or semconv.FAILURES.get(seen.error_code, semconv.OTHER)


def refusal(seen: Seen) -> str:
    """`spangate.refusal.reason`; empty unless the call was refused."""
    return semconv.REFUSALS.get(seen.error_code, "invalid_request") if seen.outcome == "refused" else ""


def fallback(before: Attempt) -> str:
    """`spangate.fallback.reason` of the attempt after this one."""
    return semconv.FALLBACKS.get(attempt_error(before), "server_error")


def call_broken_by(seen: Seen) -> str:
    """Who ended a stream before its end; empty where nobody did."""
    if not seen.stream:
        return ""
    if seen.outcome == "aborted":
        return "client"
    if seen.outcome == "cut":
        return "gateway"
    if seen.outcome == "failed" and seen.status == 200:
        return "upstream" if seen.attempts and seen.attempts[-1].outcome == "error" else "gateway"
    return ""


def attempt_broken_by(attempt: Attempt, seen: Seen) -> str:
    """The same of an attempt's stream, once it had begun."""
    if not attempt.stream or not attempt.first_content or attempt.outcome in (None, "success"):
        return ""
    if attempt.outcome == "error":
        return "upstream"
    return "client" if seen.outcome == "aborted" else "gateway"
