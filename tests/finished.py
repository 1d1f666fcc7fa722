"""Finished calls for the tests of exporters: one that went well, to be changed by what a test is about.

seen = call(outcome="refused", status=404, error_code="model_not_found")
attempt(seen, outcome="error", error_type="429")
"""

from __future__ import annotations

from typing import Any

from spangate.call.events import Usage
from spangate.call.seen import Attempt, Seen

STARTED = 1_700_000_000_000_000_000  # wall time, ns
CLOCK = 500.0  # the monotonic clock at that moment
TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0x00F067AA0BA902B7
CALLER = 0xB7AD6B7169203331


def call(**fields: Any) -> Seen:
    """A chat that took a second and was answered; `fields` are of its Seen. It has no attempts."""
    usual: dict[str, Any] = {
        "id": "req_1",
        "trace_id": TRACE,
        "span_id": SPAN,
        "started_ns": STARTED,
        "started": CLOCK,
        "ended": CLOCK + 1,
        "method": "POST",
        "path": "/v1/chat/completions",
        "op": "chat",
        "model": "fast",
        "status": 200,
        "outcome": "completed",
    }
    return Seen(**usual | fields)


def attempt(seen: Seen, **fields: Any) -> Attempt:
    """One more attempt of a call: half a second, answered."""
    number = len(seen.attempts) + 1
    usual: dict[str, Any] = {
        "number": number,
        "provider": "up",
        "target_model": "m-big",
        "span_id": SPAN + number,
        "started_ns": STARTED + 100_000_000,
        "started": CLOCK + 0.1,
        "ended": CLOCK + 0.6,
        "status": 200,
        "outcome": "success",
        "op": seen.op,
        "system": "openai",
    }
    made = Attempt(**usual | fields)
    seen.attempts.append(made)
    return made


def whole_call() -> Seen:
    """A streamed chat of which everything is known, tried twice."""
    seen = call(
        stream=True,
        parent_span_id=CALLER,
        organisation="default",
        team="search",
        key="ci",
        user="u-1",
        tags={"env": "prod"},
        thread="thread-1",
        host="gw.example.com:8443",
        scheme="https",
        client_address="10.4.3.2",
        user_agent="OpenAI/Python 2.9.0",
        trace_state="a=1",
        config_version="abc",
        usage=Usage(1310, 88, cached=1200, cache_write=7, reasoning=5),
    )
    attempt(seen, provider="azure", system="azure.ai.openai", outcome="error", status=429, error_type="429")
    attempt(
        seen,
        reason="fallback",
        stream=True,
        address="api.openai.com",
        port=443,
        request={"temperature": 1, "max_tokens": 128, "n": 2},
        first_content=CLOCK + 0.3,
        deltas=31,
        answered_model="m-big-2026",
        response_id="chatcmpl-1",
        finish="tool_calls",
        usage=seen.usage,
    )
    return seen
