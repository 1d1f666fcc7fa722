"""exporters/otlp/metrics.py: what it encodes is what OpenTelemetry's SDK makes of the same, and what it tells again."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry.exporter.otlp.proto.common._internal.metrics_encoder import OTLPMetricExporterMixin
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, NumberDataPoint
from opentelemetry.sdk.metrics import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from spangate.exporters.metrics.measuring import measuring
from spangate.exporters.metrics.metrics import Exemplar, Labels, Metric, Metrics, Point, Spread
from spangate.exporters.metrics.model_names import ModelNames
from spangate.exporters.otlp.config import OtlpConfig, Temporality
from spangate.exporters.otlp.encoding import GATEWAY, Encoder, frame
from spangate.exporters.otlp.metrics import Since, encoded
from spangate.exporters.record import Resource
from spangate.exporters.semconv import Instrument

from finished import whole_call
from measured import points
from otlp_sink import attributes

CALLS = Instrument("calls", "counter", "{call}", "Calls.")
OPEN = Instrument("open", "updown", "{call}", "Open.")
SIZE = Instrument("size", "gauge", "By", "Size.")
TIME = Instrument("time", "histogram", "s", "Time.", (0.5, 1, 2.5, 5))

RESOURCE = Resource({"service.name": "spangate"}, "https://example.com/schema")
ENCODER = Encoder()
PAIRS = ENCODER.pairs  # one for all examples, so that what it remembers of one is met by the next

A: Labels = (("who", "a"),)

# ---- the same points, encoded by both

times = st.integers(0, 2**63 - 1)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
sets = st.dictionaries(texts.filter(bool), texts | st.booleans() | st.integers(-(2**63), 2**63 - 1), max_size=5).map(
    lambda d: tuple(d.items())
)
exemplars = st.builds(Exemplar, value=numbers, at=times, trace_id=st.integers(1, 2**128 - 1), span_id=st.integers(1, 2**64 - 1))
simple = st.builds(Point, labels=sets, value=numbers, exemplar=st.none() | exemplars)
spreads = st.builds(
    Spread,
    labels=sets,
    counts=st.tuples(*[st.integers(0, 2**60)] * 5),
    sum=st.floats(allow_nan=False),
    low=st.floats(allow_nan=False),
    high=st.floats(allow_nan=False),
    exemplars=st.lists(exemplars, max_size=3).map(tuple),
)


def metrics_of(spec: Instrument, points: st.SearchStrategy[Any]) -> st.SearchStrategy[Metric]:
    some = st.lists(points, min_size=1, max_size=3)
    return st.builds(Metric, spec=st.just(spec), points=some, start=times, at=times, asked=st.booleans(), delta=st.booleans())


any_metrics = metrics_of(CALLS, simple) | metrics_of(OPEN, simple) | metrics_of(SIZE, simple) | metrics_of(TIME, spreads)


def by_us(*metrics: Metric) -> ExportMetricsServiceRequest:
    messages = [encoded(metric, PAIRS) for metric in metrics]
    return ExportMetricsServiceRequest.FromString(frame(ENCODER.resource(RESOURCE), ENCODER.scope(GATEWAY), messages))


def by_the_sdk(*metrics: Metric) -> ExportMetricsServiceRequest:
    scope = InstrumentationScope(GATEWAY.name, GATEWAY.version)
    made = sdk.ScopeMetrics(scope, [sdk_metric(metric) for metric in metrics], "")
    resource = SdkResource(RESOURCE.attributes, RESOURCE.schema_url)
    return encode_metrics(sdk.MetricsData([sdk.ResourceMetrics(resource, [made], RESOURCE.schema_url)]))


def sdk_metric(metric: Metric) -> sdk.Metric:
    spec = metric.spec
    temporality = sdk.AggregationTemporality.DELTA if metric.delta else sdk.AggregationTemporality.CUMULATIVE
    data: Any
    if spec.kind == "histogram":
        data = sdk.Histogram([sdk_spread(point, metric) for point in metric.points], temporality)  # type: ignore[arg-type]
    else:
        found = [
            sdk.NumberDataPoint(dict(point.labels), metric.start, metric.at, point.value, sdk_exemplars(point.exemplar))  # type: ignore[union-attr]
            for point in metric.points
        ]
        data = sdk.Gauge(found) if spec.kind == "gauge" else sdk.Sum(found, temporality, spec.kind == "counter")
    return sdk.Metric(spec.name, spec.about, spec.unit, data)


def sdk_spread(spread: Spread, metric: Metric) -> sdk.HistogramDataPoint:
    assert spread.low is not None
    assert spread.high is not None
    return sdk.HistogramDataPoint(
        dict(spread.labels), metric.start, metric.at, spread.count, spread.sum, spread.counts, metric.spec.buckets, spread.low, spread.high,
        sdk_exemplars(*spread.exemplars),
    )  # fmt: skip


def sdk_exemplars(*exemplars: Exemplar | None) -> list[SdkExemplar]:
    return [SdkExemplar({}, each.value, each.at, each.span_id, each.trace_id) for each in exemplars if each is not None]


@given(st.lists(any_metrics, min_size=1, max_size=3))
def test_points_are_encoded_as_the_sdk_does(metrics: list[Metric]) -> None:
    assert by_us(*metrics) == by_the_sdk(*metrics)


def test_all_metrics_of_a_gateway_are() -> None:
    recorder = measuring(ModelNames(["m-big"]), OtlpConfig().exemplary, cost=lambda *_: (0.01, "catalog"))
    recorder.record(whole_call())
    metrics = recorder.collect()
    assert len(metrics) > 20
    assert by_us(*metrics) == by_the_sdk(*metrics)


def test_what_has_no_place_in_it_costs_itself() -> None:
    [metric] = by_us(Metric(SIZE, [Point((("a\ud800", "b\0"), ("", "x")), 2**70)], 1, 2)).resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.gauge.data_points
    assert attributes(point) == {"a\ufffd": "b\ufffd"}
    assert point.as_double == 2.0**70


# ---- the same values, put together by both

amounts = st.tuples(
    st.sampled_from([CALLS, OPEN, TIME]),
    st.sampled_from([(("who", "a"),), (("who", "b"), ("n", 1)), ()]),
    st.integers(0, 2**30) | st.floats(0, 10),
    st.none() | st.tuples(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.just(1)),
)
LOOK = None


class TheSdk:
    """A meter of the SDK, and what its exporter would send."""

    def __init__(self, temporality: Temporality) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", temporality)
            preferred = OTLPMetricExporterMixin()._get_temporality({})
        self.reader = sdk.InMemoryMetricReader(preferred_temporality=preferred)  # type: ignore[arg-type]
        meter = MeterProvider([self.reader], shutdown_on_exit=False).get_meter(GATEWAY.name, GATEWAY.version)
        self.made: dict[str, Any] = {
            CALLS.name: meter.create_counter(CALLS.name, CALLS.unit, CALLS.about),
            OPEN.name: meter.create_up_down_counter(OPEN.name, OPEN.unit, OPEN.about),
            TIME.name: meter.create_histogram(TIME.name, TIME.unit, TIME.about, explicit_bucket_boundaries_advisory=TIME.buckets),
        }

    def tell(self, spec: Instrument, labels: Labels, amount: float, mark: tuple[int, int, int] | None) -> None:
        context = SpanContext(mark[0], mark[1], is_remote=False, trace_flags=TraceFlags(1)) if mark else SpanContext(0, 0, is_remote=False)
        tell = self.made[spec.name].record if spec.kind == "histogram" else self.made[spec.name].add
        tell(amount, dict(labels), context=set_span_in_context(NonRecordingSpan(context)))

    def look(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        return plain(encode_metrics(data)) if data is not None else {}


def plain(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    """A request by its metrics' names and points' attributes, without what differs between any two processes: times, and of a sum the
    exemplars, which the SDK picks by chance."""
    found: dict[str, Any] = {}
    for metric in [each for resource in request.resource_metrics for scope in resource.scope_metrics for each in scope.metrics]:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        by_labels = {frozenset(attributes(point).items()): without_times(point) for point in data.data_points}
        assert len(by_labels) == len(data.data_points)
        temporality = data.aggregation_temporality
        found[metric.name] = (metric.unit, metric.description, kind, temporality, getattr(data, "is_monotonic", None), by_labels)
    return found


def without_times(point: NumberDataPoint | HistogramDataPoint) -> Any:
    point.ClearField("attributes")
    point.ClearField("start_time_unix_nano")
    point.ClearField("time_unix_nano")
    if isinstance(point, NumberDataPoint):
        point.ClearField("exemplars")
        return point.as_int or point.as_double
    for exemplar in point.exemplars:
        exemplar.ClearField("time_unix_nano")
    return point


@given(st.lists(amounts | st.just(LOOK), max_size=40), st.sampled_from(["cumulative", "delta", "lowmemory"]))
def test_values_are_put_together_as_the_sdk_does(told: list[Any], temporality: Temporality) -> None:
    theirs, ours = TheSdk(temporality), Metrics()
    made: dict[str, Any] = {spec.name: ours.counter(spec) for spec in (CALLS, OPEN)} | {TIME.name: ours.histogram(TIME)}
    since = Since(temporality)
    for each in (*told, LOOK):
        if each is not LOOK:
            spec, labels, amount, mark = each
            theirs.tell(spec, labels, amount, mark)
            series = made[spec.name].series(labels)
            (series.record if spec.kind == "histogram" else series.add)(amount, mark and (*mark[:2], time.time_ns()))
            continue
        expected, found = theirs.look(), plain(by_us(*since.tell(ours.collect())))
        if temporality != "cumulative" and TIME.name in expected:
            for point in expected[TIME.name][-1].values():  # which we don't know of a time in between
                point.ClearField("min")
                point.ClearField("max")
        compare(found, expected)


def compare(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Where a delta is 0 the SDK says so, and we say nothing."""
    assert found.keys() <= expected.keys()
    for name, (*head, told) in expected.items():
        *our_head, ours = found.get(name, (*head, {}))
        assert our_head == head
        assert ours.keys() <= told.keys()
        for labels, point in told.items():
            if isinstance(point, HistogramDataPoint):
                same(ours[labels], point)
            else:
                assert ours.get(labels, 0) == pytest.approx(point)


def same(ours: HistogramDataPoint, theirs: HistogramDataPoint) -> None:
    assert list(ours.bucket_counts) == list(theirs.bucket_counts)
    assert list(ours.explicit_bounds) == list(theirs.explicit_bounds)
    assert (ours.count, ours.sum) == (theirs.count, pytest.approx(theirs.sum, abs=1e-6))
    assert (ours.HasField("min"), ours.min, ours.max) == (theirs.HasField("min"), theirs.min, theirs.max)
    ids = {(each.trace_id, each.span_id, each.as_int or each.as_double) for each in ours.exemplars}
    assert {(each.trace_id, each.span_id, each.as_int or each.as_double) for each in theirs.exemplars} <= ids


# ---- after what was told before


def told(since: Since, *metrics: Metric) -> list[Metric]:
    return since.tell(metrics)


def counter(value: float, at: int, **fields: Any) -> Metric:
    return Metric(CALLS, [Point(A, value)], 10, at, **fields)


def test_cumulative_is_as_it_stands() -> None:
    since = Since("cumulative")
    assert told(since, counter(5, 20)) == [counter(5, 20)]
    assert told(since, counter(5, 30)) == [counter(5, 30)]


def test_delta_is_what_came_since() -> None:
    since = Since("delta")
    assert told(since, counter(5, 20)) == [replace(counter(5, 20), delta=True)]
    assert told(since, counter(7, 30)) == [replace(counter(2, 30), start=20, delta=True)]
    assert told(since, counter(7, 40)) == []
    assert told(since, counter(8, 50)) == [replace(counter(1, 50), start=40, delta=True)]


def test_a_count_that_began_anew_is_told_whole() -> None:
    since = Since("delta")
    told(since, counter(5, 20))
    assert told(since, counter(2, 30))[0].points == [Point(A, 2)]


def test_a_series_that_is_new_is_told_whole() -> None:
    since = Since("delta")
    told(since, counter(5, 20))
    [metric] = told(since, Metric(CALLS, [Point(A, 5), Point((), 0)], 10, 30))
    assert metric.points == [Point((), 0)]


def test_a_histogram_since() -> None:
    since = Since("delta")
    before, after = Spread(A, (1, 0, 0, 0, 2), 9.0, 0.1, 7.0), Spread(A, (1, 3, 0, 0, 2), 11.5, 0.1, 7.0)
    assert told(since, Metric(TIME, [before], 10, 20))[0].points == [Spread(A, (1, 0, 0, 0, 2), 9.0)]
    assert told(since, Metric(TIME, [after], 10, 30))[0].points == [Spread(A, (0, 3, 0, 0, 0), 2.5)]
    assert told(since, Metric(TIME, [after], 10, 40)) == []


@pytest.mark.parametrize("spec", [OPEN, SIZE], ids=["updown", "gauge"])
def test_what_goes_up_and_down_is_never_a_delta(spec: Instrument) -> None:
    since, metric = Since("delta"), Metric(spec, [Point(A, 5)], 10, 20)
    assert told(since, metric) == told(since, metric) == [metric]


def test_low_memory_remembers_no_figures_that_are_kept_elsewhere() -> None:
    since = Since("lowmemory")
    assert told(since, counter(5, 20, asked=True)) == [counter(5, 20, asked=True)]
    assert told(Since("delta"), counter(5, 20, asked=True))[0].delta
    assert told(since, counter(5, 30))[0].delta


SECOND = 10**9


@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_an_exemplar_is_told_once(temporality: Temporality) -> None:
    since = Since(temporality)
    one, other = Exemplar(1, at=100 * SECOND, trace_id=1, span_id=1), Exemplar(2, at=170 * SECOND, trace_id=2, span_id=2)
    first = Metric(TIME, [Spread(A, (0, 1, 0, 0, 0), 1.0, exemplars=(one,))], 0, 120 * SECOND)
    second = Metric(TIME, [Spread(A, (0, 1, 1, 0, 0), 3.0, exemplars=(one, other))], 0, 180 * SECOND)
    calls = Metric(CALLS, [Point(A, 1, one)], 0, 120 * SECOND), Metric(CALLS, [Point(A, 2, one)], 0, 180 * SECOND)
    assert [point.exemplars for point in points(told(since, first, calls[0]), TIME)] == [(one,)]
    again = told(since, second, calls[1])
    assert [point.exemplars for point in points(again, TIME)] == [(other,)]
    assert [point.exemplar for point in points(again, CALLS)] == [None]
