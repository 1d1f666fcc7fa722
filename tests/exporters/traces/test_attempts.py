"""exporters/traces/attempts.py: one request to a provider as a span of the GenAI conventions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.events import Usage
from spangate.exporters.record import ERROR, UNSET, Span
from spangate.exporters.traces.attempts import exception, parameters, span
from spangate.exporters.traces.spans import caller_of, spans_of

from finished import CLOCK, SPAN, STARTED, attempt, call, whole_call


def only(**fields: Any) -> Span:
    """The span of a call's one attempt."""
    seen = call(op=fields.get("op", "chat"))
    return span(seen, attempt(seen, **fields), None, caller_of(seen))


def test_what_an_attempt_says() -> None:
    last = spans_of(whole_call())[-1]
    assert (last.start, last.end) == (STARTED + 100_000_000, STARTED + 600_000_000)
    assert last.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-big",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.max_tokens": 128,
        "gen_ai.request.choice.count": 2,
        "gen_ai.conversation.id": "thread-1",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "m-big-2026",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.2),
        "gen_ai.usage.input_tokens": 1310,
        "gen_ai.usage.output_tokens": 88,
        "gen_ai.usage.cache_read.input_tokens": 1200,
        "gen_ai.usage.cache_write.input_tokens": 7,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "openai.api.type": "chat_completions",
        "server.address": "api.openai.com",
        "server.port": 443,
        "spangate.usage.source": "provider",
        "spangate.stream.chunk.count": 31,
        "spangate.deployment.name": "up",
        "spangate.attempt.number": 2,
        "spangate.attempt.reason": "fallback",
        "spangate.attempt.outcome": "success",
        "spangate.fallback.from": "azure",
        "spangate.fallback.reason": "rate_limited",
        "spangate.organisation": "default",
        "spangate.team": "search",
        "spangate.key": "ci",
        "spangate.user": "u-1",
        "spangate.tag.env": "prod",
    }
    assert type(last.attributes["gen_ai.request.temperature"]) is float
    assert (last.status, last.events) == (UNSET, ())


def test_a_failed_attempt_says_no_more_than_its_kind() -> None:
    first = spans_of(whole_call())[1]
    assert (first.status, first.message) == (ERROR, "")
    assert first.attributes["error.type"] == "429"
    assert first.attributes["spangate.attempt.outcome"] == "error"
    assert first.attributes["spangate.usage.source"] == "none"
    assert "openai.api.type" not in first.attributes
    assert not any(name.startswith(("gen_ai.response", "gen_ai.usage")) for name in first.attributes)


@pytest.mark.parametrize(
    ("op", "name", "api"),
    [
        ("chat", "chat m-big", "chat_completions"),
        ("completions", "text_completion m-big", None),
        ("embeddings", "embeddings m-big", None),
    ],
)
def test_operations(op: str, name: str, api: str | None) -> None:
    made = only(op=op)
    assert made.name == name
    assert made.attributes["gen_ai.operation.name"] == name.split(" ")[0]
    assert made.attributes.get("openai.api.type") == api


def test_embeddings_have_no_output() -> None:
    said = only(op="embeddings", usage=Usage(7, 0), request={"encoding_format": "base64", "dimensions": 256}).attributes
    assert said["gen_ai.usage.input_tokens"] == 7
    assert "gen_ai.usage.output_tokens" not in said
    assert said["gen_ai.request.encoding_formats"] == ["base64"]
    assert said["gen_ai.embeddings.dimension.count"] == 256


def test_details_that_are_nothing_are_left_out() -> None:
    said = only(usage=Usage(7, 2)).attributes
    assert {name for name in said if name.startswith("gen_ai.usage")} == {"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"}


@pytest.mark.parametrize(("unknown", "told"), [("input", {"gen_ai.usage.output_tokens": 2}), ("output", {"gen_ai.usage.input_tokens": 7})])
def test_a_total_that_is_not_known_is_not_nought(unknown: Any, told: dict[str, int]) -> None:
    said = only(usage=Usage(7 if unknown == "output" else 0, 2 if unknown == "input" else 0, unknown=unknown)).attributes
    assert {name: value for name, value in said.items() if name.startswith("gen_ai.usage")} == told


def test_an_estimate_is_called_one() -> None:
    said = only(usage=Usage(7, 2, source="estimated")).attributes
    assert (said["gen_ai.usage.input_tokens"], said["spangate.usage.source"]) == (7, "estimated")


def test_a_provider_that_is_called_by_its_name_here() -> None:
    assert only(system="", provider="local").attributes["gen_ai.provider.name"] == "local"


def test_a_cancelled_attempt_is_no_error() -> None:
    made = only(outcome="cancelled", reason="hedge", status=None, ended=0.0)
    assert (made.status, made.attributes["spangate.attempt.outcome"], made.attributes["spangate.attempt.hedged"]) == (
        UNSET,
        "cancelled",
        True,
    )
    assert made.end == STARTED + 1_000_000_000, "the end of the call, for one that nobody saw end"


def test_who_broke_a_stream() -> None:
    seen = call(outcome="aborted", status=499, stream=True)
    left = attempt(seen, stream=True, outcome="cancelled", first_content=CLOCK + 0.2)
    assert span(seen, left, None, {}).attributes["spangate.stream.aborted_by"] == "client"


# ---- parameters


def test_parameters_have_the_names_of_the_conventions() -> None:
    given = {
        "temperature": 0.2,
        "top_p": 1,
        "frequency_penalty": -2,
        "presence_penalty": 0.5,
        "max_completion_tokens": 99,
        "seed": -1,
        "top_k": 40,
        "n": 1,
        "reasoning_effort": "high",
        "response_format": {"type": "json_schema"},
        "stop": ["never told"],
        "user": "never told",
    }
    assert parameters(given) == {
        "gen_ai.request.temperature": 0.2,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.frequency_penalty": -2.0,
        "gen_ai.request.presence_penalty": 0.5,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.seed": -1,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.reasoning.level": "high",
        "gen_ai.output.type": "json",
    }


@pytest.mark.parametrize(
    "request_",
    [
        {"temperature": "hot"},
        {"temperature": True},
        {"temperature": math.nan},
        {"temperature": 1e300},
        {"max_tokens": 10**400},
        {"max_tokens": 1.5},
        {"n": "2"},
        {"response_format": {"type": ["json"]}},
        {"response_format": "secret"},
        {"reasoning_effort": 3},
        {"encoding_format": None},
    ],
    ids=str,
)
def test_parameters_that_are_not_what_they_should_be_are_left_out(request_: dict[str, Any]) -> None:
    assert parameters(request_) == {}


def test_a_word_is_no_place_for_a_text() -> None:
    assert len(str(parameters({"reasoning_effort": "x" * 1000})["gen_ai.request.reasoning.level"])) == 64


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)
asked = st.sampled_from(
    ["temperature", "top_p", "max_tokens", "seed", "n", "response_format", "reasoning_effort", "encoding_format", "service_tier"]
)


@given(st.dictionaries(asked, anything))
def test_whatever_a_caller_sends_there_is_a_span(request_: dict[str, Any]) -> None:
    said = only(request=request_).attributes
    assert all(not isinstance(value, float) or math.isfinite(value) for value in said.values())


def test_the_service_tier_is_openais_own() -> None:
    assert only(request={"service_tier": "flex"}).attributes["openai.request.service_tier"] == "flex"
    assert "openai.request.service_tier" not in only(request={"service_tier": "auto"}).attributes
    assert "openai.request.service_tier" not in only(request={"service_tier": "flex"}, system="vllm").attributes


# ---- its log event


def test_a_failure_is_logged_without_its_words() -> None:
    seen = call()
    log = exception(seen, attempt(seen, outcome="error", error_type="upstream_timeout"))
    assert (log.at, log.severity, log.span_id, log.sampled) == (STARTED + 600_000_000, 13, SPAN + 1, True)
    assert log.attributes == {
        "exception.type": "timeout",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-big",
        "spangate.deployment.name": "up",
        "spangate.attempt.number": 1,
    }
