"""exporters/metrics/measuring.py: calls on their way into metrics, as they end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.exporters import semconv
from spangate.exporters.gathered import TOGETHER
from spangate.exporters.metrics import openmetrics
from spangate.exporters.metrics.batches import MANY
from spangate.exporters.metrics.measures import Measures
from spangate.exporters.metrics.measuring import QUEUE, Measuring, measuring
from spangate.exporters.metrics.metrics import Metrics
from spangate.exporters.metrics.model_names import ModelNames
from spangate.exporters.metrics.sources import Sources
from spangate.exporters.otlp.config import OtlpConfig
from spangate.exporters.otlp.sampling import Sampling
from spangate.exporters.record import Recorder

from finished import CLOCK, attempt, call, whole_call
from measured import labels, points, series, value

Made = Callable[..., Measuring]

KNOWN = ModelNames(["fast", "m-big"], ["*"])


@pytest.fixture
def made() -> Made:
    return lambda models=KNOWN, **options: measuring(models, options.pop("config", OtlpConfig()).exemplary, **options)


def test_who_looks_sees_every_call(made: Made) -> None:
    recorder: Recorder = made()
    recorder.record(whole_call())
    recorder.record(call())
    assert isinstance(recorder, Measuring)
    assert sum(point.value for point in points(recorder.collect(), semconv.REQUESTS)) == 2
    recorder.record(call())
    recorder.flush()
    assert sum(point.value for point in points(recorder.collect(), semconv.REQUESTS)) == 3


def test_many_kinds_do_not_wait_until_somebody_looks() -> None:
    metrics = Metrics()
    recorder = Measuring(metrics, Measures(metrics, KNOWN))
    for status in range(MANY + 50, 0, -1):
        recorder.record(call(status=status))
        assert not metrics.unsettled.many
    assert value(recorder.collect(), semconv.REQUEST_OVERHEAD) == MANY + 50


def test_enough_calls_are_measured_without_anybody_who_looks(made: Made) -> None:
    recorder = made()
    for _ in range(TOGETHER - 1):
        recorder.record(call())
    assert len(recorder._gathered) == TOGETHER - 1
    recorder.record(call())
    assert len(recorder._gathered) == 0
    assert value(recorder.collect(), semconv.REQUESTS) == TOGETHER


def test_none_is_lost_or_counted_twice_while_others_look(made: Made) -> None:
    recorder = made()
    looked: list[float] = []

    def look() -> None:
        while not looked or looked[-1] < 3000:
            looked.append(sum(point.value for point in points(recorder.collect(), semconv.REQUESTS)))

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(3000):
        recorder.record(call())
    thread.join(10)
    assert looked == sorted(looked)
    assert looked[-1] == 3000


def test_a_full_queue_loses_its_oldest_and_says_so() -> None:
    metrics = Metrics()
    recorder = Measuring(metrics, Measures(metrics, KNOWN), queue=10)
    for _ in range(30):  # fewer than are measured together
        recorder.record(call())
    found = recorder.collect()
    assert value(found, semconv.REQUESTS) == 10
    assert value(found, semconv.TELEMETRY_DROPPED, {"signal": "metrics", "reason": "queue_full"}) == 20
    assert QUEUE > 1000


def test_a_call_that_cant_be_measured_costs_itself(made: Made) -> None:
    recorder = made(cost=lambda seen, _: (1 // (seen.status - 200), "catalog"))
    for status in (200, 500, 200):
        seen = call(status=status)
        attempt(seen)
        recorder.record(seen)
    found = recorder.collect()
    assert value(found, semconv.TELEMETRY_DROPPED, {"signal": "metrics", "reason": "invalid"}) == 2
    assert value(found, semconv.HTTP_SERVER_DURATION, {"http.response.status_code": 500}) == pytest.approx(1.0)


def test_losses_of_others_are_told_beside_its_own() -> None:
    metrics = Metrics(most=2)
    recorder = Measuring(metrics, Measures(metrics, KNOWN), Sources(dropped=lambda: {("traces", "timeout"): 3}, resends=lambda: 2))
    for status in (200, 404, 500, 502):
        recorder.record(call(status=status))
    found = recorder.collect()
    assert value(found, semconv.TELEMETRY_DROPPED, {"signal": "traces", "reason": "timeout"}) == 3
    assert value(found, semconv.TELEMETRY_DROPPED, {"signal": "metrics", "reason": "overflow"}) == 2
    assert value(found, semconv.UPSTREAM_RESENDS) == 2


def test_no_loss_no_line(made: Made) -> None:
    assert points(made().collect(), semconv.TELEMETRY_DROPPED) == []


@pytest.mark.parametrize(
    ("exemplars", "sampling", "expected"),
    [
        ("trace_based", Sampling(), True),
        ("trace_based", Sampling(bound=0), False),
        ("always_on", Sampling(bound=0), True),
        ("always_off", Sampling(), False),
    ],
)
def test_exemplars_are_of_calls_whose_spans_are_sent(made: Made, exemplars: Any, sampling: Sampling, expected: bool) -> None:
    recorder = made(config=OtlpConfig(exemplars=exemplars, sampling=sampling))
    recorder.record(call())
    assert bool(points(recorder.collect(), semconv.REQUESTS)[0].exemplar) == expected


def test_models_of_a_new_configuration(made: Made) -> None:
    recorder = made(ModelNames())
    recorder.record(whole_call())
    assert {each["gen_ai.request.model"] for each in labels(recorder.collect(), semconv.ATTEMPTS)} == {"_other"}
    recorder.models = KNOWN
    recorder.record(whole_call())
    assert {each["gen_ai.request.model"] for each in labels(recorder.collect(), semconv.ATTEMPTS)} == {"_other", "m-big"}
    assert recorder.models is KNOWN


# ---- strangers


def asks_for(model: str, number: int) -> Seen:
    """A call that was passed through to a provider, whatever the model, and answered."""
    seen = call(model=model, trace_id=number + 1, stream=True, first_content=CLOCK + 0.3, usage=Usage(13, 20, cached=1))
    attempt(seen, target_model=model, answered_model=model, stream=True, first_content=CLOCK + 0.3, usage=seen.usage, address="up", port=80)
    return seen


@pytest.mark.fault("TEL-05")
def test_unknown_models_are_one_series_more_and_no_memory(made: Made) -> None:
    recorder = made()
    recorder.record(asks_for("m-big", 1))
    before = {metric.spec.name: len(metric.points) for metric in recorder.collect()}
    for number in range(2000):
        recorder.record(asks_for(f"random-{number:x}", number))
    recorder.flush()
    gc.collect()
    memory, text = psutil.Process().memory_info().rss, len(openmetrics.text_of(recorder.collect(), openmetrics=False))
    for number in range(2000, 20_000):
        recorder.record(asks_for(f"random-{number:x}", number))
        if number % 1000 == 0:
            recorder.flush()  # so many at once would be too many
    found = recorder.collect()
    growth = {metric.spec.name: len(metric.points) - before[metric.spec.name] for metric in found}
    assert growth.pop("gen_ai.client.token.usage") == 2  # one of input and one of output
    assert growth.pop("spangate.tokens") == 3  # and one of cached ones
    assert max(growth.values()) == 1
    assert {each["gen_ai.request.model"] for each in labels(found, semconv.ATTEMPTS)} == {"m-big", "_other"}
    assert value(found, semconv.ATTEMPTS, {"gen_ai.request.model": "_other"}) == 20_000
    assert len(openmetrics.text_of(found, openmetrics=False)) - text < 2000  # more digits
    gc.collect()
    assert psutil.Process().memory_info().rss - memory < 8 << 20


@pytest.mark.fault("TEL-05")
def test_a_provider_that_makes_up_names_is_bounded_too(made: Made) -> None:
    recorder = made()
    for number in range(3000):
        seen = asks_for("m-big", number)
        seen.attempts[0].answered_model = f"m-big-{number}"
        recorder.record(seen)
    answers = {each["gen_ai.response.model"] for each in labels(recorder.collect(), semconv.INFERENCE_DURATION)}
    assert len(answers) == 9
    assert "_other" in answers
    assert series(recorder.collect()) < 200
