"""exporters/metrics/measures.py: what a finished call adds to the metrics."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.events import Usage
from spangate.call.seen import Attempt, Seen
from spangate.exporters import semconv
from spangate.exporters.metrics.batches import FULL
from spangate.exporters.metrics.measures import KEPT, Measures, overhead
from spangate.exporters.metrics.metrics import Metric, Metrics, Spread
from spangate.exporters.metrics.model_names import ModelNames

from finished import CLOCK, SPAN, STARTED, TRACE, attempt, call, whole_call
from measured import labels, names, points, value

KNOWN = ModelNames(["fast", "m-big"], ["*"])


def measured(*seens: Seen, **options: Any) -> list[Metric]:
    metrics = Metrics()
    measures = Measures(metrics, options.pop("models", KNOWN), **options)
    for seen in seens:
        measures.measure(seen)
    return metrics.collect()


def answered(**fields: Any) -> Seen:
    """A streamed chat of 1 s, answered by its first attempt, which took half of that; its first content came after 0.3 s."""
    usual = {"stream": True, "first_content": CLOCK + 0.3, "usage": Usage(1310, 88)}
    seen = call(**usual | fields)
    attempt(seen, stream=seen.stream, first_content=seen.first_content, usage=seen.usage, address="api.openai.com", port=443)
    return seen


def test_an_answer_as_its_providers_client() -> None:
    found = measured(answered())
    for duration in (semconv.CLIENT_OPERATION_DURATION, semconv.INFERENCE_DURATION, semconv.HTTP_CLIENT_DURATION):
        assert value(found, duration) == pytest.approx(0.5)
    for first in (semconv.CLIENT_OPERATION_FIRST_CHUNK, semconv.INFERENCE_FIRST_CHUNK):
        assert value(found, first) == pytest.approx(0.2)
    assert value(found, semconv.CLIENT_TOKEN_USAGE, {"gen_ai.token.type": "input"}) == 1310
    assert value(found, semconv.CLIENT_TOKEN_USAGE, {"gen_ai.token.type": "output"}) == 88
    assert (value(found, semconv.INFERENCE_INPUT), value(found, semconv.INFERENCE_OUTPUT)) == (1310, 88)
    assert (value(found, semconv.INFERENCE_OPERATION_INPUT), value(found, semconv.INFERENCE_OPERATION_OUTPUT)) == (1310, 88)
    assert value(found, semconv.ATTEMPTS, {"spangate.attempt.outcome": "success"}) == 1


def test_an_answer_as_its_callers_server() -> None:
    found = measured(answered())
    assert value(found, semconv.SERVER_REQUEST_DURATION) == pytest.approx(1.0)
    assert value(found, semconv.SERVER_FIRST_TOKEN) == pytest.approx(0.3)
    assert value(found, semconv.SERVER_PER_TOKEN) == pytest.approx(0.7 / 87)
    assert value(found, semconv.HTTP_SERVER_DURATION) == pytest.approx(1.0)
    assert value(found, semconv.REQUESTS, {"spangate.outcome": "completed", "spangate.route.name": "fast"}) == 1
    assert value(found, semconv.REQUEST_OVERHEAD) == pytest.approx(0.5)


def test_a_whole_answer_has_no_first_token() -> None:
    found = measured(answered(stream=False))
    first = {semconv.SERVER_FIRST_TOKEN.name, semconv.SERVER_PER_TOKEN.name, semconv.INFERENCE_FIRST_CHUNK.name}
    assert first & names(found) == set()
    assert value(found, semconv.SERVER_REQUEST_DURATION) == pytest.approx(1.0)


def test_one_token_has_no_time_to_the_next() -> None:
    found = measured(answered(usage=Usage(3, 1)))
    assert points(found, semconv.SERVER_PER_TOKEN) == []
    assert value(found, semconv.SERVER_FIRST_TOKEN) == pytest.approx(0.3)


def test_a_call_saved_by_a_fallback() -> None:
    found = measured(whole_call())
    assert value(found, semconv.ATTEMPTS, {"error.type": "429", "spangate.deployment.name": "azure"}) == 1
    assert value(found, semconv.ATTEMPTS, {"spangate.attempt.outcome": "success", "spangate.deployment.name": "up"}) == 1
    assert value(found, semconv.FALLBACK_COUNT, {"spangate.fallback.reason": "rate_limited", "spangate.route.name": "fast"}) == 1
    assert len(points(found, semconv.INFERENCE_DURATION)) == 2
    [server] = labels(found, semconv.SERVER_REQUEST_DURATION)
    assert server["gen_ai.provider.name"] == "openai"
    assert "error.type" not in server
    assert value(found, semconv.INFERENCE_CACHE_READ) == 1200
    assert value(found, semconv.INFERENCE_CACHE_WRITE) == 7
    assert value(found, semconv.INFERENCE_REASONING) == 5


def test_a_failed_attempt_counts_no_tokens_but_is_there() -> None:
    seen = call(outcome="failed", status=502, error_code="upstream_error")
    attempt(seen, outcome="error", status=503, error_type="503")
    found = measured(seen)
    assert (value(found, semconv.INFERENCE_INPUT), value(found, semconv.INFERENCE_OUTPUT)) == (0, 0)
    assert points(found, semconv.INFERENCE_OPERATION_INPUT) == points(found, semconv.CLIENT_TOKEN_USAGE) == []
    assert value(found, semconv.SERVER_REQUEST_DURATION, {"error.type": "502"}) == pytest.approx(1.0)
    assert value(found, semconv.HTTP_SERVER_DURATION, {"error.type": "502", "http.response.status_code": 502}) == pytest.approx(1.0)


def test_a_stream_that_broke_is_no_first_token() -> None:
    seen = answered(outcome="failed", error_code="upstream_incomplete")
    seen.attempts[0].outcome, seen.attempts[0].error_type = "error", "upstream_incomplete"
    found = measured(seen)
    assert points(found, semconv.SERVER_FIRST_TOKEN) == []
    assert value(found, semconv.SERVER_REQUEST_DURATION, {"error.type": "stream_interrupted"}) == pytest.approx(1.0)
    assert value(found, semconv.INFERENCE_DURATION, {"error.type": "stream_interrupted"}) == pytest.approx(0.5)


def test_a_refused_call_has_no_provider() -> None:
    seen = call(outcome="refused", status=404, error_code="model_not_found", model="gpt-9")
    seen.notes.add("access.refused", model="gpt-9")
    found = measured(seen, models=ModelNames(["fast"]))
    assert names(found) == {
        "spangate.requests",
        "spangate.request.overhead",
        "spangate.policy.decisions",
        "http.server.request.duration",
    }
    refused = {"spangate.outcome": "refused", "spangate.refusal.reason": "forbidden_model", "spangate.route.name": "_other"}
    assert value(found, semconv.REQUESTS, refused) == 1
    assert labels(found, semconv.POLICY_DECISIONS) == [
        {
            "spangate.policy.name": "access",
            "spangate.policy.stage": "request",
            "spangate.policy.verdict": "deny",
            "spangate.policy.action": "block",
            "spangate.policy.mode": "enforce",
        }
    ]


def test_events_that_are_no_json_are_counted() -> None:
    seen = call(provider="up")
    seen.notes.add("stream.malformed", events=2)
    found = measured(seen)
    assert value(found, semconv.STREAM_MALFORMED, {"spangate.deployment.name": "up"}) == 2
    assert labels(found, semconv.POLICY_DECISIONS) == []


def test_decisions_in_shadow_and_odd_words() -> None:
    seen = call()
    seen.notes.add("redact.found", verdict="modify", mode="shadow", stage="response")
    seen.notes.add("guard.asked", verdict="perhaps", stage=["x"], mode="whatever the model said")
    seen.notes.add("time_limit.reached", seconds=3)
    found = labels(measured(seen), semconv.POLICY_DECISIONS)
    assert [tuple(each.values()) for each in found] == [
        ("redact", "response", "modify", "allow", "shadow"),
        ("guard", "_OTHER", "_OTHER", "allow", "_OTHER"),
    ]


def test_embeddings() -> None:
    seen = call(op="embeddings", path="/v1/embeddings", usage=Usage(20))
    attempt(seen, usage=seen.usage)
    found = measured(seen)
    assert value(found, semconv.CLIENT_TOKEN_USAGE, {"gen_ai.operation.name": "embeddings", "gen_ai.token.type": "input"}) == 20
    assert len(points(found, semconv.CLIENT_TOKEN_USAGE)) == 1
    assert points(found, semconv.INFERENCE_DURATION) == []
    assert value(found, semconv.REQUESTS, {"spangate.api": "embeddings"}) == 1


@pytest.mark.parametrize(
    ("usage", "inputs", "outputs"),
    [
        (None, 0, 0),
        (Usage(source="none"), 0, 0),
        (Usage(0, 7, unknown="input"), 0, 1),
        (Usage(7, 0, unknown="output"), 1, 0),
        (Usage(7, 0), 1, 1),
        (Usage(7, 5, source="estimated"), 1, 1),
    ],
    ids=str,
)
def test_only_tokens_that_somebody_told_are_counted(usage: Usage | None, inputs: int, outputs: int) -> None:
    seen = call()
    attempt(seen, usage=usage)
    found = measured(seen)
    assert len(points(found, semconv.INFERENCE_OPERATION_INPUT)) == inputs
    assert len(points(found, semconv.INFERENCE_OPERATION_OUTPUT)) == outputs
    assert len(points(found, semconv.CLIENT_TOKEN_USAGE)) == inputs + outputs


def test_no_figure_beyond_belief() -> None:
    seen = call(usage=Usage(10**30, -5, cached=10**40))
    attempt(seen, usage=seen.usage)
    found = measured(seen)
    assert (value(found, semconv.INFERENCE_INPUT), value(found, semconv.INFERENCE_OUTPUT)) == (2**31, 0)
    assert value(found, semconv.INFERENCE_CACHE_READ) == 2**31


def test_a_clock_that_went_back_gives_no_negative_time() -> None:
    seen = answered(ended=CLOCK - 5)
    seen.attempts[0].ended, seen.attempts[0].first_content = CLOCK - 3, CLOCK - 4
    for metric in measured(seen):
        assert all(getattr(point, "low", 0) >= 0 for point in metric.points)


def test_costs() -> None:
    def cost(seen: Seen, attempt: Attempt) -> tuple[float, str] | None:
        return (0.25, "catalog") if attempt.outcome == "success" else None

    found = measured(whole_call(), answered(), cost=cost)
    assert sum(point.value for point in points(found, semconv.COST)) == 0.5
    assert labels(found, semconv.COST) == [
        {"spangate.team": "search", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m-big", "spangate.cost.source": "catalog"},
        {"gen_ai.provider.name": "openai", "gen_ai.request.model": "m-big", "spangate.cost.source": "catalog"},
    ]
    assert sum(point.sum for point in points(found, semconv.USAGE_COST)) == 0.5
    assert semconv.COST.name not in names(measured(answered(), cost=lambda *_: (float("nan"), "catalog")))


def test_tokens_by_team() -> None:
    usage = Usage(1310, 88, cached=1000, cache_write=10, reasoning=30)
    found = measured(answered(team="search", usage=usage), answered(team="search", usage=usage), answered(usage=usage))
    of_search = {
        point_labels["gen_ai.token.type"]: value(found, semconv.TEAM_TOKENS, point_labels)
        for point_labels in labels(found, semconv.TEAM_TOKENS)
        if point_labels.get("spangate.team") == "search"
    }
    assert of_search == {"input": 2620, "output": 176, "cached": 2000, "cache_write": 20, "reasoning": 60}
    assert len(points(found, semconv.TEAM_TOKENS)) == 10


def test_a_team_stands_on_requests_tokens_and_cost_alone() -> None:
    found = measured(answered(team="search"), cost=lambda *_: (0.25, "catalog"))
    told = {metric.spec.name for metric in found if any("spangate.team" in dict(point.labels) for point in metric.points)}
    assert told == {semconv.REQUESTS.name, semconv.TEAM_TOKENS.name, semconv.COST.name}


def test_exemplars_lead_to_the_spans() -> None:
    found = measured(whole_call())
    [duration] = [each for each in points(found, semconv.INFERENCE_DURATION) if ("error.type", "429") not in each.labels]
    [exemplar] = duration.exemplars
    assert (exemplar.trace_id, exemplar.span_id, exemplar.at) == (TRACE, SPAN + 2, STARTED + 10**9)
    assert exemplar.value == pytest.approx(0.5)
    [request] = points(found, semconv.REQUESTS)
    assert (request.exemplar.trace_id, request.exemplar.span_id) == (TRACE, SPAN)


def test_no_exemplar_leads_to_a_trace_that_is_nowhere() -> None:
    found = measured(call(sampled=False), call(id="req_2"), exemplars=lambda seen: seen.sampled)
    assert points(found, semconv.REQUESTS)[0].value == 2
    assert all(not getattr(point, "exemplars", ()) for metric in measured(call(sampled=False)) for point in metric.points)


def test_it_is_the_same_who_looks_how_often() -> None:
    rarely, often = Metrics(), Metrics()
    measures = [Measures(metrics, KNOWN, cost=lambda seen, _: (seen.status / 8, "catalog")) for metrics in (rarely, often)]
    odd = call(outcome="refused", status=404), call(op="", status=404), answered(team="search", usage=Usage(7, 0, cached=3))
    for number in range(FULL):
        for seen in (whole_call(), answered(ended=CLOCK + number, usage=Usage(number, 2 * number)), *odd):
            for each in measures:
                each.measure(seen)
        often.collect()
    figures = [
        {(metric.spec.name, point.labels): _figures(point) for metric in metrics.collect() for point in metric.points}
        for metrics in (rarely, often)
    ]
    assert figures[0] == figures[1]
    assert len(figures[0]) > 50


def _figures(point: Any) -> tuple[Any, ...]:
    if isinstance(point, Spread):
        return *point.counts, point.low, point.high, pytest.approx(point.sum)
    return (pytest.approx(point.value),)


@pytest.mark.parametrize("usage", [Usage("x"), Usage(1, None), Usage(1, 1, cached="")], ids=str)  # type: ignore[arg-type]
def test_what_is_no_figure_harms_no_other(usage: Usage) -> None:
    metrics = Metrics()
    measures = Measures(metrics, KNOWN)
    measures.measure(answered())
    with pytest.raises(TypeError):
        measures.measure(answered(usage=usage))
    measures.measure(answered())
    assert value(metrics.collect(), semconv.INFERENCE_INPUT) == 2620


def test_models_may_change() -> None:
    metrics = Metrics()
    measures = Measures(metrics, ModelNames())
    measures.measure(answered())
    measures.models = KNOWN
    measures.measure(answered())
    assert [each["gen_ai.request.model"] for each in labels(metrics.collect(), semconv.INFERENCE_DURATION)] == ["_other", "m-big"]


def test_more_kinds_than_are_kept_lose_nothing() -> None:
    metrics = Metrics()
    measures = Measures(metrics, KNOWN)
    for status in range(KEPT + 10):
        measures.measure(call(status=status))
    assert value(metrics.collect(), semconv.REQUEST_OVERHEAD) == KEPT + 10


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], 1.0),
        ([(0.1, 0.6)], 0.5),
        ([(0.1, 0.3), (0.5, 0.9)], 0.4),
        ([(0.1, 0.6), (0.2, 0.4)], 0.5),
        ([(0.4, 0.9), (0.1, 0.6)], 0.2),
        ([(0.0, 5.0)], 0.0),
    ],
)
def test_overhead_is_when_no_attempt_ran(spans: list[tuple[float, float]], expected: float) -> None:
    seen = call()
    for start, end in spans:
        attempt(seen, started=CLOCK + start, ended=CLOCK + end)
    assert overhead(seen) == pytest.approx(expected)


SECRETS = {
    "id": "req_canary", "organisation": "canary-org", "key": "canary-key", "user": "canary-user",
    "thread": "canary-thread", "reply": "canary-reply", "tags": {"canary-tag": "canary-value"}, "client_request_id": "canary-request",
    "host": "canary.example", "client_address": "10.4.3.2", "user_agent": "canary-agent", "trace_state": "canary=1",
    "config_version": "canary-version",
}  # fmt: skip

words = st.text(string.ascii_letters + '"\\\n\0é', max_size=12).map("canary".__add__)


@given(st.lists(words, min_size=8, max_size=8))
def test_nothing_that_a_caller_chooses_stands_on_a_metric(words: list[str]) -> None:
    model, path, method, scheme, version, code, answered_model, error = words
    seen = call(**SECRETS, model=model, method=method, scheme=scheme, http_version=version, outcome="failed", error_code=code)
    attempt(
        seen, target_model=model, answered_model=answered_model, outcome="error", error_type=error, upstream_request_id=path,
        response_id=path, finish=path, request={"stop": path},
    )  # fmt: skip
    seen.notes.add("guard.refused", rule=path, model=model, user=path, stage=path, mode=path, verdict=path, action=path)
    elsewhere = call(op="", path=path, status=404, outcome="refused")
    assert "canary" not in str([metric.points for metric in measured(seen, elsewhere)])
