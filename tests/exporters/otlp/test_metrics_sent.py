"""exporters/otlp/metrics.py: metrics on their way to a collector, at each interval, when asked, and at the end."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from typing import Any

import pytest

from spangate.exporters import semconv
from spangate.exporters.metrics.measuring import measuring
from spangate.exporters.metrics.model_names import ModelNames
from spangate.exporters.metrics.sources import Sources
from spangate.exporters.otlp.config import OtlpConfig, Signal, Target
from spangate.exporters.otlp.metrics import Pushing, pushing
from spangate.exporters.otlp.outlet import Counts
from spangate.exporters.record import Recorder, Resource

from finished import call, whole_call
from measured import value
from otlp_sink import Sink, attributes
from upstream import refusing_port

RESOURCE = Resource({"service.name": "spangate"}, "https://example.com/schema")

Made = Callable[..., Pushing]


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


@pytest.fixture
def made() -> Iterator[Made]:
    """Makes recorders, and closes them at the end."""
    all_made: list[Pushing] = []

    def make(endpoint: str, **changes: Any) -> Pushing:
        target = Target(f"{endpoint}/v1/metrics", timeout=changes.pop("timeout", 3.0))
        config = OtlpConfig(**{"metrics": Signal(target)} | changes)
        recorder = pushing(config, measuring(ModelNames(["fast", "m-big"]), config.exemplary), resource=lambda: RESOURCE)
        assert recorder is not None
        all_made.append(recorder)
        return recorder

    yield make
    for each in all_made:
        each.close(0.2)


def requests_of(sink: Sink) -> list[int]:
    """`spangate.requests` as the collector got it, each time."""
    return [point.as_int for metric in sink.metrics if metric.name == semconv.REQUESTS.name for point in metric.sum.data_points]


def test_they_arrive_when_asked(sink: Sink, made: Made) -> None:
    recorder: Recorder = made(sink.endpoint)
    recorder.record(whole_call())
    recorder.flush()
    assert requests_of(sink) == [1]
    [received] = sink.taken
    resource = received.message.resource_metrics[0]
    assert (attributes(resource.resource), resource.schema_url) == ({"service.name": "spangate"}, "https://example.com/schema")
    [scope] = resource.scope_metrics
    assert scope.scope.name == "spangate.gateway"
    assert {"gen_ai.client.inference.duration", "gen_ai.client.token.usage", "http.server.request.duration"} < {
        metric.name for metric in scope.metrics
    }


def test_they_go_at_each_interval(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint, interval=0.05)
    recorder.record(call())
    sink.wait(lambda: len(requests_of(sink)) >= 3)
    assert requests_of(sink)[:3] == [1, 1, 1]
    assert sink.connections == 1


def test_a_gateway_without_calls_tells_of_itself(sink: Sink) -> None:
    config = OtlpConfig(metrics=Signal(Target(f"{sink.endpoint}/v1/metrics")), interval=0.02)
    recorder = pushing(
        config, measuring(ModelNames(), config.exemplary, sources=Sources(reload_failed=lambda: False)), resource=lambda: RESOURCE
    )
    assert recorder is not None
    recorder.start()
    sink.wait(lambda: bool(sink.metrics))
    assert {metric.name for metric in sink.metrics} == {semconv.CONFIG_RELOAD_FAILED.name}
    assert recorder.close()


def test_delta_where_it_is_preferred(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint, temporality="delta")
    for number in (1, 2, 0, 3):
        for _ in range(number):
            recorder.record(call())
        recorder.flush()
    assert requests_of(sink) == [1, 2, 3]
    first, second, third = [metric.sum for metric in sink.metrics if metric.name == semconv.REQUESTS.name]
    assert first.aggregation_temporality == second.aggregation_temporality == 1
    assert second.data_points[0].start_time_unix_nano == first.data_points[0].time_unix_nano
    assert third.data_points[0].start_time_unix_nano > second.data_points[0].time_unix_nano
    assert value(recorder.measuring.collect(), semconv.REQUESTS) == 6  # /metrics goes on


def test_the_last_ones_go_before_the_end(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint)
    recorder.record(call())
    assert recorder.close()
    assert requests_of(sink) == [1]
    recorder.record(call())
    assert not recorder.wait(0.1)


def test_a_dead_collector_costs_a_count(made: Made) -> None:
    recorder = made(f"http://127.0.0.1:{refusing_port()}", timeout=0.2)
    recorder.record(call())
    assert recorder.wait(3.0)
    assert recorder.counts.dropped["metrics", "unreachable"] == 3
    assert recorder.counts.sent == {}


def test_a_mute_one_holds_nobody_up_for_long(sink: Sink, made: Made) -> None:
    sink.mode = "mute"
    recorder = made(sink.endpoint, timeout=30.0)
    began = time.monotonic()
    recorder.record(call())
    assert not recorder.wait(0.2)
    assert not recorder.close(0.2)
    assert time.monotonic() - began < 2.0


def test_what_is_under_way_at_the_end_is_counted(sink: Sink, made: Made) -> None:
    sink.mode = "mute"
    recorder = made(sink.endpoint, timeout=30.0)
    recorder.record(call())
    began = time.monotonic()
    assert not recorder.close(0.3)
    assert time.monotonic() - began < 1.5
    assert sum(recorder.counts.dropped.values()) == 3
    assert recorder.counts.sent == {}


def test_losses_are_counted_with_those_of_the_other_signals(sink: Sink) -> None:
    sink.mode = "refusing"
    counts = Counts()
    config = OtlpConfig(metrics=Signal(Target(f"{sink.endpoint}/v1/metrics")))
    recorder = pushing(config, measuring(ModelNames(), config.exemplary), counts, lambda: RESOURCE)
    assert recorder is not None
    recorder.record(call())
    recorder.close()
    assert counts.dropped == {("metrics", "rejected"): 3}


def test_where_nothing_goes_there_is_no_recorder() -> None:
    assert pushing(OtlpConfig(), measuring(ModelNames(), OtlpConfig().exemplary)) is None


def test_the_console_shows_them() -> None:
    config, out = OtlpConfig(metrics=Signal(console=True)), io.StringIO()
    recorder = pushing(config, measuring(ModelNames(), config.exemplary), resource=lambda: RESOURCE)
    assert recorder is not None
    with redirect_stdout(out):
        recorder.record(call())
        recorder.close()
    assert [line.count('"name":"spangate.requests"') for line in out.getvalue().splitlines()] == [1, 0, 0]


def test_many_series_are_many_requests(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint, batch=2)
    recorder.record(whole_call())
    recorder.flush()
    sizes = [len(each.message.resource_metrics[0].scope_metrics[0].metrics) for each in sink.taken]
    assert max(sizes) == 2
    assert sum(sizes) == len(recorder.measuring.collect())
