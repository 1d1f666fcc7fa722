"""exporters/metrics/families.py: which series an attempt and a call of a kind have, and what stands on them."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.exporters import semconv
from spangate.exporters.metrics.families import AttemptKind, AttemptSeries, CallKind, CallSeries, Families
from spangate.exporters.metrics.metrics import Exemplar, Metrics
from spangate.exporters.semconv import GenaiNames

from measured import labels, names, points, value

BASE = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "m-big",
    "gen_ai.response.model": "m-big-2026",
    "server.address": "api.openai.com",
    "server.port": 443,
}

OLD = {"gen_ai.client.operation.duration", "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.token.usage"}
NEW = {
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.time_to_first_chunk",
    "gen_ai.client.inference.operation.input_tokens",
    "gen_ai.client.inference.operation.output_tokens",
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
}


def kind(**fields: Any) -> AttemptKind:
    usual: dict[str, Any] = {
        "operation": "chat", "system": "openai", "provider": "up", "model": "m-big", "answered": "m-big-2026", "address": "api.openai.com",
        "port": 443, "status": 200, "error": "", "outcome": "success", "streamed": True, "input": True, "output": True,
    }  # fmt: skip
    return AttemptKind(**usual | fields)


def call(**fields: Any) -> CallKind:
    usual: dict[str, Any] = {
        "method": "POST", "scheme": "http", "protocol": "1.1", "op": "chat", "path": "/v1/chat/completions", "status": 200, "error": "",
        "route": "fast", "outcome": "completed", "refusal": "",
    }  # fmt: skip
    return CallKind(**usual | fields)


def attempt(told: GenaiNames = "both", **fields: Any) -> tuple[Metrics, AttemptSeries]:
    metrics = Metrics()
    return metrics, AttemptSeries(Families(metrics, told), kind(**fields))


ALL = {"cached": True, "cache_write": True, "reasoning": True}
OURS = {"spangate.attempts", "http.client.request.duration"}
TOKENS = {"spangate.tokens"}


@pytest.mark.parametrize(("told", "expected"), [("legacy", OLD), ("v0_1", NEW), ("both", OLD | NEW)])
def test_an_attempt_is_told_of_by_the_names_that_are_wanted(told: GenaiNames, expected: set[str]) -> None:
    metrics, _ = attempt(told, **ALL)
    assert names(metrics.collect()) == expected | OURS | TOKENS


@pytest.mark.parametrize("told", ["legacy", "v0_1", "both"])
def test_embeddings_keep_the_old_names(told: GenaiNames) -> None:
    metrics, _ = attempt(told, operation="embeddings", streamed=False, output=False)
    assert names(metrics.collect()) == {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"} | OURS | TOKENS


def test_what_is_not_known_is_no_series() -> None:
    metrics, series = attempt(streamed=False, input=False, output=False)
    assert names(metrics.collect()) == OURS | {
        "gen_ai.client.operation.duration",
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
    }
    times, *others = series.columns
    assert len(times) == 2
    assert others == [()] * 6


def test_what_stands_on_an_attempt() -> None:
    metrics, _ = attempt(error="429", outcome="error", status=429, **ALL)
    found = metrics.collect()
    assert labels(found, semconv.CLIENT_OPERATION_DURATION) == [BASE | {"error.type": "429"}]
    assert labels(found, semconv.INFERENCE_DURATION) == [BASE | {"error.type": "429"}]
    assert labels(found, semconv.INFERENCE_FIRST_CHUNK) == labels(found, semconv.CLIENT_OPERATION_FIRST_CHUNK) == [BASE]
    assert labels(found, semconv.CLIENT_TOKEN_USAGE) == [BASE | {"gen_ai.token.type": kind} for kind in ("input", "output")]
    assert labels(found, semconv.INFERENCE_OPERATION_INPUT) == [BASE | {"error.type": "429"}]
    for counter in (semconv.INFERENCE_INPUT, semconv.INFERENCE_OUTPUT, semconv.INFERENCE_CACHE_READ, semconv.INFERENCE_REASONING):
        assert labels(found, counter) == [BASE | {"gen_ai.token.modality": "unknown"}]
    assert labels(found, semconv.ATTEMPTS) == [
        {
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "m-big",
            "spangate.deployment.name": "up",
            "spangate.attempt.outcome": "error",
            "error.type": "429",
        }
    ]
    assert labels(found, semconv.HTTP_CLIENT_DURATION) == [
        {
            "http.request.method": "POST",
            "server.address": "api.openai.com",
            "server.port": 443,
            "http.response.status_code": 429,
            "error.type": "429",
        }
    ]


def test_nothing_empty_stands_on_one() -> None:
    metrics, _ = attempt(model="", answered="", address="", port=0, status=None)
    found = metrics.collect()
    assert labels(found, semconv.INFERENCE_DURATION) == [{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}]
    assert labels(found, semconv.HTTP_CLIENT_DURATION) == []


def test_an_answer_is_its_providers() -> None:
    metrics, series = attempt()
    failed, well = series.answer("502", first=False, tokens=False), series.answer("", first=True, tokens=True)
    assert [len(column) for column in failed.columns] == [1, 0, 0]
    assert [len(column) for column in well.columns] == [1, 1, 1]
    assert series.answer("", first=True, tokens=True) is well
    found = metrics.collect()
    assert labels(found, semconv.SERVER_REQUEST_DURATION) == [BASE | {"error.type": "502"}, BASE]
    assert labels(found, semconv.SERVER_FIRST_TOKEN) == labels(found, semconv.SERVER_PER_TOKEN) == [BASE]


def test_what_stands_on_a_call() -> None:
    metrics = Metrics()
    CallSeries(Families(metrics, "both"), call(status=404, outcome="refused", refusal="forbidden_model"))
    found = metrics.collect()
    assert labels(found, semconv.HTTP_SERVER_DURATION) == [
        {
            "http.request.method": "POST",
            "url.scheme": "http",
            "network.protocol.version": "1.1",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 404,
        }
    ]
    assert labels(found, semconv.REQUEST_OVERHEAD) == [{"spangate.api": "chat_completions"}]
    assert labels(found, semconv.REQUESTS) == [
        {
            "spangate.api": "chat_completions",
            "spangate.route.name": "fast",
            "spangate.outcome": "refused",
            "spangate.refusal.reason": "forbidden_model",
        }
    ]


def test_a_request_for_no_model_is_http_alone_and_its_path_is_a_strangers() -> None:
    metrics = Metrics()
    CallSeries(Families(metrics, "both"), call(op="", path="/wp-admin", scheme="gopher", protocol="7.3"))
    assert names(metrics.collect()) == {"http.server.request.duration"}
    assert labels(metrics.collect(), semconv.HTTP_SERVER_DURATION) == [
        {"http.request.method": "POST", "url.scheme": "_OTHER", "http.response.status_code": 200}
    ]


def test_kinds_share_the_series_that_they_have_in_common() -> None:
    metrics = Metrics()
    all = Families(metrics, "both")
    one, other = AttemptSeries(all, kind()), AttemptSeries(all, kind(cached=True))
    assert [number for number, mine in enumerate(one.columns) if mine != other.columns[number]] == [4]
    assert (len(one.columns[4]), len(other.columns[4])) == (0, 2)
    assert one.counts == other.counts


def test_a_row_of_figures_goes_into_all_series_of_its_kind() -> None:
    metrics, series = attempt(**ALL)
    for mark in (None, (1, 2, 3)):
        series.tell((0.5, 0.25, 10, 20, 3, 4, 5, mark))
    found = metrics.collect()
    for duration in (semconv.CLIENT_OPERATION_DURATION, semconv.INFERENCE_DURATION, semconv.HTTP_CLIENT_DURATION):
        assert value(found, duration) == 1.0
    assert value(found, semconv.INFERENCE_FIRST_CHUNK) == 0.5
    assert value(found, semconv.INFERENCE_OPERATION_INPUT) == value(found, semconv.INFERENCE_INPUT) == 20
    assert value(found, semconv.INFERENCE_OPERATION_OUTPUT) == value(found, semconv.INFERENCE_OUTPUT) == 40
    details = semconv.INFERENCE_CACHE_READ, semconv.INFERENCE_CACHE_WRITE, semconv.INFERENCE_REASONING
    assert [value(found, each) for each in details] == [6, 8, 10]
    by_team = [value(found, semconv.TEAM_TOKENS, each) for each in labels(found, semconv.TEAM_TOKENS)]
    assert by_team == [20, 40, 6, 8, 10]
    assert points(found, semconv.ATTEMPTS)[0].exemplar == Exemplar(1, at=3, trace_id=1, span_id=2)


def test_what_attempts_cost_is_told_by_how_it_is_known() -> None:
    metrics, series = attempt(team="search")
    assert series.cost("catalog") is series.cost("catalog")
    for source, dollars in (("catalog", 0.25), ("config", 0.5), ("catalog", 1.0)):
        series.cost(source).tell((dollars, None))
    found = metrics.collect()
    assert value(found, semconv.COST, {"spangate.team": "search", "spangate.cost.source": "catalog"}) == 1.25
    assert value(found, semconv.COST, {"spangate.cost.source": "config"}) == 0.5
    assert value(found, semconv.USAGE_COST) == 1.75
