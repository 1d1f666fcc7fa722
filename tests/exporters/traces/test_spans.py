"""exporters/traces/spans.py: a finished call as spans: which, under which parent, with which words, and without any content."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.exporters.record import CLIENT, ERROR, SERVER, UNSET, Span
from spangate.exporters.traces.spans import coarse, ended_at, logs_of, place_of, spans_of

from finished import CALLER, SPAN, STARTED, TRACE, attempt, call, whole_call


def server(seen: Any) -> Span:
    return spans_of(seen)[0]


def test_a_tree_of_siblings() -> None:
    spans = spans_of(whole_call())
    assert [(span.name, span.kind, span.span_id, span.parent_id, span.remote) for span in spans] == [
        ("POST /v1/chat/completions", SERVER, SPAN, CALLER, True),
        ("chat m-big", CLIENT, SPAN + 1, SPAN, False),
        ("chat m-big", CLIENT, SPAN + 2, SPAN, False),
    ]
    assert {(span.trace_id, span.trace_state) for span in spans} == {(TRACE, "a=1")}


def test_a_call_without_a_caller_is_a_root() -> None:
    span = server(call())
    assert (span.parent_id, span.remote) == (0, False)


def test_what_a_call_says() -> None:
    span = server(whole_call())
    assert (span.start, span.end) == (STARTED, STARTED + 1_000_000_000)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "https",
        "network.protocol.version": "1.1",
        "server.address": "gw.example.com",
        "server.port": 8443,
        "client.address": "10.4.3.0",
        "user_agent.original": "OpenAI/Python 2.9.0",
        "spangate.api": "chat_completions",
        "spangate.request.id": "req_1",
        "spangate.request.model": "fast",
        "spangate.request.stream": True,
        "spangate.outcome": "completed",
        "spangate.attempt.count": 2,
        "spangate.organisation": "default",
        "spangate.team": "search",
        "spangate.key": "ci",
        "spangate.user": "u-1",
        "spangate.tag.env": "prod",
    }
    assert (span.status, span.message, span.events) == (UNSET, "", ())


def test_gen_ai_stands_on_attempts_alone() -> None:
    first, *others = spans_of(whole_call())
    assert not any(name.startswith("gen_ai.") for name in first.attributes)
    assert all(any(name.startswith("gen_ai.") for name in span.attributes) for span in others)


def test_what_is_not_known_is_not_said() -> None:
    seen = call(model="", op="", path="/nowhere", status=0, outcome=None, method="BREW")
    span = server(seen)
    assert span.name == "HTTP"
    assert span.attributes == {
        "http.request.method": "_OTHER",
        "http.request.method_original": "BREW",
        "url.path": "/nowhere",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "spangate.request.id": "req_1",
        "spangate.attempt.count": 0,
    }


# ---- how it ended


@pytest.mark.parametrize(
    ("ended", "status", "said"),
    [
        ({"outcome": "refused", "status": 429, "error_code": "budget_exceeded"}, UNSET, {"spangate.refusal.reason": "budget_exceeded"}),
        ({"outcome": "refused", "status": 401, "error_code": "invalid_api_key"}, UNSET, {"spangate.refusal.reason": "unauthenticated"}),
        ({"outcome": "refused", "status": 400, "error_code": "invalid_request"}, UNSET, {"spangate.refusal.reason": "invalid_request"}),
        ({"outcome": "refused", "status": 503, "error_code": "overloaded"}, ERROR, {"error.type": "503"}),
        ({"outcome": "failed", "status": 502, "error_code": "upstream_unreachable"}, ERROR, {"error.type": "502"}),
        ({"outcome": "failed", "status": 400, "error_code": "upstream_error"}, UNSET, {}),
        ({"outcome": "failed", "status": 200, "error_code": "draining", "stream": True}, ERROR, {"error.type": "_OTHER"}),
        ({"outcome": "aborted", "status": 499, "stream": True}, UNSET, {"spangate.stream.aborted_by": "client"}),
        ({"outcome": "cut", "stream": True}, UNSET, {"spangate.stream.aborted_by": "gateway"}),
    ],
)
def test_how_a_call_ended(ended: dict[str, Any], status: int, said: dict[str, str]) -> None:
    span = server(call(**ended))
    assert span.status == status
    assert said.items() <= span.attributes.items()
    assert ("error.type" in span.attributes) == (status == ERROR)
    assert span.attributes.get("spangate.error.code") == ended.get("error_code")
    assert span.message == (ended["error_code"] if status == ERROR else "")


def test_a_stream_that_broke_after_its_status() -> None:
    seen = call(outcome="failed", status=200, error_code="upstream_incomplete", stream=True)
    attempt(seen, stream=True, outcome="error", error_type="upstream_incomplete", first_content=500.2)
    spans = spans_of(seen)
    assert [(span.status, span.attributes["error.type"]) for span in spans] == [(ERROR, "stream_interrupted")] * 2
    assert {span.attributes["spangate.stream.aborted_by"] for span in spans} == {"upstream"}
    assert spans[0].attributes["http.response.status_code"] == 200


def test_a_fallback_that_went_well_is_no_error() -> None:
    seen = call()
    attempt(seen, outcome="error", error_type="429")
    attempt(seen, reason="fallback")
    assert [span.status for span in spans_of(seen)] == [UNSET, ERROR, UNSET]


def test_a_clock_that_went_back() -> None:
    assert ended_at(call(ended=400.0)) == STARTED


# ---- notes and logs


def test_notes_are_events() -> None:
    seen = call(outcome="refused", status=404, error_code="model_not_found", config_version="abc")
    seen.notes.add("access.refused", model="gpt-9")
    span = server(seen)
    [event] = span.events
    assert (event.name, event.at) == ("spangate.policy", span.end)
    assert event.attributes == {
        "spangate.policy.name": "access",
        "spangate.policy.note": "access.refused",
        "spangate.policy.verdict": "deny",
        "spangate.policy.action": "block",
        "spangate.policy.version": "abc",
        "spangate.access.model": "gpt-9",
    }
    summary = {name: value for name, value in span.attributes.items() if name.startswith("spangate.policy.")}
    assert summary == {"spangate.policy.verdict": "deny", "spangate.policy.action": "block", "spangate.policy.matched": ["access"]}


def test_decisions_are_logged_whether_or_not_the_call_is_sampled() -> None:
    seen = call(team="search", key="ci")
    seen.notes.add("access.refused", model="gpt-9")
    attempt(seen, outcome="error", error_type="429")
    [decision, failure] = logs_of(seen, sampled=True)
    assert (decision.event, decision.severity, decision.trace_id, decision.span_id) == ("spangate.policy.decision", 13, TRACE, SPAN)
    assert decision.attributes["spangate.team"] == "search"
    assert (failure.event, failure.span_id) == ("gen_ai.client.inference.exception", SPAN + 1)
    assert [(log.event, log.sampled) for log in logs_of(seen, sampled=False)] == [("spangate.policy.decision", False)]


# ---- the HTTP exchange below an attempt


def test_http_spans_if_they_are_wanted() -> None:
    spans = spans_of(whole_call(), http_spans=True)
    assert [span.name for span in spans] == ["POST /v1/chat/completions", "chat m-big", "POST", "chat m-big", "POST"]
    assert [spans[2].parent_id, spans[4].parent_id] == [spans[1].span_id, spans[3].span_id]
    assert len({span.span_id for span in spans}) == 5
    assert spans[2].attributes == {"http.request.method": "POST", "http.response.status_code": 429, "error.type": "429"}
    assert (spans[2].status, spans[4].status) == (ERROR, UNSET)


def test_an_http_span_tells_the_whole_address() -> None:
    seen = whole_call()
    attempt = seen.attempts[0]
    attempt.address, attempt.port, attempt.url = "127.0.0.1", 8000, "http://127.0.0.1:8000/v1/chat/completions"
    span = spans_of(seen, http_spans=True)[2]
    assert {name: span.attributes[name] for name in ("server.address", "server.port", "url.full")} == {
        "server.address": "127.0.0.1",
        "server.port": 8000,
        "url.full": "http://127.0.0.1:8000/v1/chat/completions",
    }


# ---- addresses


@pytest.mark.parametrize(
    ("host", "scheme", "place"),
    [
        ("gw.example.com", "https", ("gw.example.com", 443)),
        ("gw.example.com:8484", "http", ("gw.example.com", 8484)),
        ("[::1]:8484", "http", ("::1", 8484)),
        ("[::1]", "http", ("::1", 80)),
        ("gw:port", "http", ("gw:port", 80)),
    ],
)
def test_where_a_call_came_to(host: str, scheme: str, place: tuple[str, int]) -> None:
    assert place_of(host, scheme) == place


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("10.4.3.2", "10.4.3.0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        ("::ffff:10.4.3.2", "10.4.3.0"),
        ("127.0.0.1", "127.0.0.0"),
        ("somebody", ""),
    ],
)
def test_a_clients_address_names_nobody(address: str, kept: str) -> None:
    assert coarse(address) == kept
    assert server(call(client_address=address)).attributes.get("client.address", "") == kept
