"""Errors → HTTP: statuses, types and words, so that every client raises its usual exception."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spangate.call import sse
from spangate.call.errors import (
    CallerFault,
    OurFault,
    Refused,
    SpangateError,
    UpstreamError,
    UpstreamIncomplete,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from spangate.call.seen import Seen
from spangate.proxy import errors

SEEN = Seen.open(trace_id=0xABC)


def provider(status: int | None, kind: str | None = None, own_code: str | int | None = None) -> UpstreamError:
    return UpstreamError("they said", status=status, kind=kind, own_code=own_code, param="messages" if kind else None)


@pytest.mark.parametrize(
    ("error", "status", "type", "code", "outcome"),
    [
        (CallerFault("x"), 400, "invalid_request_error", "invalid_request", "refused"),
        (Refused("x"), 401, "authentication_error", "invalid_api_key", "refused"),
        (Refused("x", code="operation_not_allowed"), 403, "permission_error", "operation_not_allowed", "refused"),
        (Refused("x", code="model_not_found"), 404, "invalid_request_error", "model_not_found", "refused"),
        (CallerFault("x", code="method_not_allowed"), 405, "invalid_request_error", "method_not_allowed", "refused"),
        (CallerFault("x", code="request_timeout"), 408, "invalid_request_error", "request_timeout", "refused"),
        (CallerFault("x", code="request_too_large"), 413, "invalid_request_error", "request_too_large", "refused"),
        (CallerFault("x", code="unsupported_encoding"), 415, "invalid_request_error", "unsupported_encoding", "refused"),
        (CallerFault("x", code="headers_too_large"), 431, "invalid_request_error", "headers_too_large", "refused"),
        (Refused("x", code="rate_limit_exceeded"), 429, "rate_limit_exceeded", "rate_limit_exceeded", "refused"),
        (Refused("x", code="budget_exceeded"), 429, "insufficient_quota", "budget_exceeded", "refused"),
        (Refused("x", code="draining"), 503, "server_error", "draining", "refused"),
        (OurFault("x"), 500, "server_error", "internal_error", "failed"),
        (SpangateError("x", code="a word unknown"), 500, "server_error", "a word unknown", "refused"),
        (UpstreamUnreachable("x"), 502, "server_error", "upstream_unreachable", "failed"),
        (UpstreamIncomplete("x"), 502, "server_error", "upstream_incomplete", "failed"),
        (UpstreamTimeout("x", limit="first"), 504, "server_error", "upstream_timeout", "failed"),
    ],
)
def test_our_own_errors(error: SpangateError, status: int, type: str, code: str, outcome: str) -> None:
    shown = errors.error_object(error, SEEN)
    assert (errors.status_of(error), shown["type"], shown["code"], errors.outcome_of(error)) == (status, type, code, outcome)
    assert errors.public_code(error) == code
    assert shown["doc_url"] == f"/docs/errors/{code}"


@pytest.mark.parametrize(
    ("error", "status", "type", "code"),
    [
        # About the caller's own request: through, with the provider's own words.
        (provider(400, "invalid_request_error", "context_length_exceeded"), 400, "invalid_request_error", "context_length_exceeded"),
        (provider(404, "not_found_error"), 404, "not_found_error", None),
        (provider(409, "conflict"), 409, "conflict", None),
        (provider(413, "too_big", 7), 413, "too_big", 7),
        (provider(422, "bad"), 422, "bad", None),
        (provider(400, own_code="context_length_exceeded"), 400, "invalid_request_error", "context_length_exceeded"),
        (provider(400), 400, "invalid_request_error", "upstream_error"),
        (provider(422), 422, "invalid_request_error", "upstream_error"),
        # A limit stays one, wherever it is told.
        (provider(429, "insufficient_quota", "insufficient_quota"), 429, "insufficient_quota", "insufficient_quota"),
        (provider(429), 429, "rate_limit_exceeded", "rate_limit_exceeded"),
        (provider(None, "insufficient_quota"), 429, "insufficient_quota", None),
        (provider(None, "x", "rate_limit_exceeded"), 429, "x", "rate_limit_exceeded"),
        # Its time-outs are ours to tell.
        (provider(408), 504, "server_error", "upstream_timeout"),
        (provider(504, "x", "y"), 504, "server_error", "upstream_timeout"),
        # Everything else is not the caller's business: our key may be wrong, their server may be down.
        (provider(401, "invalid_request_error", "invalid_api_key"), 502, "server_error", "upstream_error"),
        (provider(402), 502, "server_error", "upstream_error"),
        (provider(403, "permission_error"), 502, "server_error", "upstream_error"),
        (provider(500), 502, "server_error", "upstream_error"),
        (provider(529, "overloaded_error"), 502, "server_error", "upstream_error"),
        (provider(302), 502, "server_error", "upstream_error"),
        (provider(None), 502, "server_error", "upstream_error"),
        (provider(None, "server_error", "oops"), 502, "server_error", "upstream_error"),
    ],
)
def test_a_providers_errors(error: UpstreamError, status: int, type: str, code: Any) -> None:
    shown = errors.error_object(error)
    assert (errors.status_of(error), shown["type"], shown["code"]) == (status, type, code)
    assert (shown["message"], shown["param"], shown["source"]) == ("they said", error.param, "provider")
    assert errors.outcome_of(error) == "failed"
    assert errors.public_code(error) in errors.STATUS


def test_an_error_has_openais_shape_and_says_where_to_look() -> None:
    error = Refused("no", code="budget_exceeded", param="model", facts={"budget": {"limit": 5}}, detail="for the log alone")
    assert json.loads(errors.error_body(error, SEEN)) == {
        "error": {
            "message": "no",
            "type": "insufficient_quota",
            "param": "model",
            "code": "budget_exceeded",
            "source": "gateway",
            "request_id": SEEN.id,
            "trace_id": "abc".zfill(32),
            "doc_url": "/docs/errors/budget_exceeded",
            "budget": {"limit": 5},
        }
    }
    assert not {"request_id", "trace_id"} & errors.error_object(error).keys()
    assert errors.error_object(error, base="http://gateway:8484")["doc_url"] == "http://gateway:8484/docs/errors/budget_exceeded"


def test_any_message_can_be_sent() -> None:
    body = errors.error_body(CallerFault("lone \ud83d, 日本, \u2028", param="\udfff"))
    assert body.isascii()
    assert json.loads(body)["error"]["message"] == "lone \ud83d, 日本, \u2028"


def test_an_error_in_a_stream_is_one_event_and_no_end() -> None:
    frame = errors.error_frame(UpstreamIncomplete("It stopped."), SEEN, "http://gateway")
    assert list(sse.frames(frame)) == [frame]
    assert json.loads(sse.data_of(frame) or b"") == json.loads(errors.error_body(UpstreamIncomplete("It stopped."), SEEN, "http://gateway"))
    assert b"[DONE]" not in frame


def test_headers_are_the_errors_own() -> None:
    limited = Refused("x", code="rate_limit_exceeded", headers={"retry-after": "2"})
    assert errors.error_headers(limited) == {"retry-after": "2"}
    for theirs, ours in (("1.5", "2"), ("7", "7"), ("0.0", "0"), ("Wed, 21 Oct 2026 07:28:00 GMT",) * 2, ("1e9.5",) * 2):
        assert errors.error_headers(UpstreamError("x", status=429, headers={"retry-after": theirs})) == {"retry-after": ours}
    spent = Refused("x", code="budget_exceeded", headers={"retry-after": "59"})
    assert errors.error_headers(spent) == {"retry-after": "59", "x-should-retry": "false"}
    assert spent.headers == {"retry-after": "59"}


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        (None, None, "the provider answered with status 500"),
        ("server_error", "model_overloaded", "the provider answered with status 500, server_error, model_overloaded"),
        ("Your key sk-1 is bad", "sk-0123456789abcdef", "the provider answered with status 500"),
    ],
)
def test_the_log_reads_no_words_of_a_provider(kind: str | None, code: str | None, told: str) -> None:
    error = UpstreamError("ours", status=500, kind=kind, own_code=code, detail="theirs, and the prompt")
    assert errors.log_words(error) == told


def test_the_log_reads_our_own_details() -> None:
    assert errors.log_words(UpstreamUnreachable("no", detail="127.0.0.1:1: \u00fc refused")) == "127.0.0.1:1: \\xfc refused"
    assert errors.log_words(provider(400, "invalid_request_error")) == "", "its caller reads it"
