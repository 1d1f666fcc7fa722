"""exporters/metrics/openmetrics.py: the text of /metrics, as the parsers of Prometheus's own client read it."""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from spangate.exporters import semconv
from spangate.exporters.metrics.measuring import measuring
from spangate.exporters.metrics.metrics import OVERFLOW, Labels, Metric, Metrics
from spangate.exporters.metrics.model_names import ModelNames
from spangate.exporters.metrics.openmetrics import OPENMETRICS, PIECE, PLAIN, name_of, page, pieces_of, render, text_of, wants_openmetrics
from spangate.exporters.metrics.sources import Sources
from spangate.exporters.otlp.config import OtlpConfig
from spangate.exporters.semconv import Instrument

from finished import STARTED, call, whole_call

CALLS = Instrument("a.calls", "counter", "{call}", "Calls.")
TIME = Instrument("a.time", "histogram", "s", "Time.", (1, 2.5))
SIZE = Instrument("a.size", "gauge", "By", "Size.")
LABELS: Labels = (("who.is", "a"), ("port", 80), ("on", True))

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def everything() -> list[Metric]:
    """Metrics of every kind, from real calls."""
    sources = Sources(
        streams=lambda: {"chat": 2},
        resends=lambda: 1,
        rows=lambda: {"written": 3, "dropped": 0},
        dropped=lambda: {("traces", "timeout"): 4},
        reload_failed=lambda: True,
        loaded=lambda: 1.7e9,
    )
    recorder = measuring(ModelNames(["fast", "m-big"]), OtlpConfig().exemplary, sources=sources, cost=lambda *_: (0.00651, "catalog"))
    refused = call(outcome="refused", status=404, error_code="model_not_found", model="gpt-9")
    refused.notes.add("access.refused", model="gpt-9")
    for seen in (whole_call(), refused, call()):
        recorder.record(seen)
    return recorder.collect()


def written(metrics: Sequence[Metric], *, openmetrics: bool = True) -> str:
    return text_of(metrics, openmetrics=openmetrics).decode()


def samples(text: str, *, openmetrics: bool = True) -> dict[tuple[str, frozenset[tuple[str, str]]], Any]:
    """What a parser reads: each sample once, by name and labels."""
    families = list((read_openmetrics if openmetrics else read_plain)(text))
    found = [sample for family in families for sample in family.samples]
    by = {(sample.name, frozenset(sample.labels.items())): sample for sample in found}
    assert len(by) == len(found)
    return by


def counted(spec: Instrument, amount: float = 1, labels: Labels = LABELS, mark: Any = None) -> list[Metric]:
    metrics = Metrics()
    if spec.kind == "histogram":
        metrics.histogram(spec).series(labels).record(amount, mark)
    else:
        metrics.counter(spec).series(labels).add(amount, mark)
    return metrics.collect()


@pytest.mark.parametrize("openmetrics", [True, False])
def test_all_metrics_are_read(openmetrics: bool) -> None:
    metrics = everything()
    found = samples(written(metrics, openmetrics=openmetrics), openmetrics=openmetrics)
    lines = sum(len(metric.points) * (len(metric.spec.buckets) + 3 if metric.spec.kind == "histogram" else 1) for metric in metrics)
    assert len(found) == lines
    assert {metric.spec.kind for metric in metrics} == {"counter", "histogram", "gauge", "updown"}


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (semconv.CLIENT_OPERATION_DURATION, "gen_ai_client_operation_duration_seconds"),
        (semconv.CLIENT_TOKEN_USAGE, "gen_ai_client_token_usage"),
        (semconv.INFERENCE_INPUT, "gen_ai_client_inference_usage_input_tokens_total"),
        (semconv.COST, "spangate_cost_total"),
        (semconv.POLICY_DECISIONS, "spangate_policy_decisions_total"),
        (semconv.USAGE_COST, "gen_ai_usage_cost_USD"),
        (semconv.HTTP_SERVER_DURATION, "http_server_request_duration_seconds"),
        (semconv.STREAMS_ACTIVE, "spangate_streams_active"),
        (semconv.BUDGET_UTILIZATION, "spangate_budget_utilization"),
        (semconv.CONFIG_RELOAD_FAILED, "spangate_config_reload_failed"),
        (semconv.CONFIG_LOADED, "spangate_config_loaded_seconds"),
    ],
)
def test_names_are_those_of_opentelemetrys_exporter(spec: Instrument, name: str) -> None:
    assert name_of(spec) == name


def test_openmetrics() -> None:
    assert written(counted(CALLS)) == (
        '# TYPE a_calls counter\n# HELP a_calls Calls.\na_calls_total{who_is="a",port="80",on="true"} 1\n# EOF\n'
    )
    assert written(counted(TIME, 2.5, ())) == (
        "# TYPE a_time_seconds histogram\n# UNIT a_time_seconds seconds\n# HELP a_time_seconds Time.\n"
        'a_time_seconds_bucket{le="1.0"} 0\na_time_seconds_bucket{le="2.5"} 1\na_time_seconds_bucket{le="+Inf"} 1\n'
        "a_time_seconds_sum 2.5\na_time_seconds_count 1\n# EOF\n"
    )


def test_the_text_before_it() -> None:
    assert written(counted(CALLS), openmetrics=False) == (
        '# TYPE a_calls_total counter\n# HELP a_calls_total Calls.\na_calls_total{who_is="a",port="80",on="true"} 1\n'
    )
    assert "# UNIT" not in written(counted(TIME), openmetrics=False)


def test_nothing_is_a_text_too() -> None:
    assert written([]) == "# EOF\n"
    assert written([], openmetrics=False) == ""


def test_buckets_add_up() -> None:
    metrics = Metrics()
    times = metrics.histogram(TIME).series(LABELS)
    for value in (0.5, 1, 2, 9):
        times.record(value)
    found = samples(written(metrics.collect()))
    buckets = {dict(labels)["le"]: sample.value for (name, labels), sample in found.items() if name.endswith("_bucket")}
    assert buckets == {"1.0": 2, "2.5": 3, "+Inf": 4}
    assert {name: sample.value for (name, _), sample in found.items() if not name.endswith("_bucket")} == {
        "a_time_seconds_sum": 12.5,
        "a_time_seconds_count": 4,
    }


@pytest.mark.parametrize("spec", [CALLS, TIME], ids=["counter", "histogram"])
def test_exemplars_for_those_who_want_them(spec: Instrument) -> None:
    metrics = counted(spec, 2, mark=(0xABC, 0xDEF, STARTED + 250_000_000))
    [sample] = [sample for sample in samples(written(metrics)).values() if sample.exemplar]
    assert sample.exemplar.labels == {"trace_id": "00000000000000000000000000000abc", "span_id": "0000000000000def"}
    assert (sample.exemplar.value, float(sample.exemplar.timestamp)) == (2, STARTED / 1e9 + 0.25)
    assert dict(sample.labels).get("le", "2.5") == "2.5"
    assert "trace_id" not in written(metrics, openmetrics=False)


def test_a_gauge_has_no_exemplar() -> None:
    up = Instrument("a.up", "updown", "{up}", "Up.")
    assert "#" not in written(counted(up, -3, mark=(1, 2, 3))).splitlines()[2]


texts = st.text(max_size=20) | st.text('"\\\n{},= #', max_size=10)


@given(texts, texts, st.booleans())
def test_any_value_of_a_label_is_read_again(one: str, other: str, openmetrics: bool) -> None:
    found = samples(written(counted(CALLS, labels=(("one", one), ("other", other))), openmetrics=openmetrics), openmetrics=openmetrics)
    [(_, labels)] = found
    assert dict(labels) == {"one": one.replace("\0", "\ufffd"), "other": other.replace("\0", "\ufffd")}


def test_what_is_no_text_does_no_harm() -> None:
    [(_, labels)] = samples(written(counted(CALLS, labels=(("who", "a\ud800b"),))))
    assert dict(labels) == {"who": "a\ufffdb"}


@given(st.floats(allow_nan=False) | st.integers(-(10**30), 10**30))
def test_any_number_is_read_again(number: float) -> None:
    metrics = Metrics()
    metrics.observed(SIZE, lambda: [(LABELS, number)])
    [sample] = samples(written(metrics.collect())).values()
    assert float(sample.value) == float(number)


def test_a_gauge_of_nothing() -> None:
    metrics = Metrics()
    metrics.observed(SIZE, lambda: [(LABELS, math.nan)])
    [sample] = samples(written(metrics.collect())).values()
    assert math.isnan(sample.value)


def test_words_about_a_metric_may_hold_anything() -> None:
    spec = Instrument("a.b", "counter", "", 'back\\slash, "quote" and\nline')
    for openmetrics in (True, False):
        [family] = (read_openmetrics if openmetrics else read_plain)(written(counted(spec), openmetrics=openmetrics))
        assert family.documentation == spec.about


def test_one_and_true_are_two() -> None:
    assert 'n="1"' in written(counted(CALLS, labels=(("n", 1),)))
    assert 'n="true"' in written(counted(CALLS, labels=(("n", True),)))
    assert 'otel_metric_overflow="true"' in written(counted(CALLS, labels=OVERFLOW))


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;q=0,text/plain", False),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", False),
        ("application/openmetrics-text;q=nonsense", False),
        (";;,q=,,", False),
    ],
)
def test_who_wants_what(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) == wanted
    found = page(lambda: counted(CALLS), accept)
    assert found.content_type == (OPENMETRICS if wanted else PLAIN)
    assert found.body.endswith(b"# EOF\n") == wanted
    assert found.encoding == ""


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip", "gzip"), ("deflate, gzip;q=0.5", "gzip"), ("gzip;q=0", ""), ("br", "")])
def test_short_where_short_is_welcome(accepted: str, encoding: str) -> None:
    found = page(everything, PROMETHEUS_3, accepted)
    assert found.encoding == encoding
    plain = gzip.decompress(found.body) if encoding else found.body
    assert len(samples(plain.decode())) > 100
    assert not encoding or len(found.body) < len(plain) / 5


def test_a_long_text_is_made_piece_by_piece() -> None:
    metrics = Metrics()
    times = metrics.histogram(TIME)
    for number in range(1000):
        times.series((("n", number), ("long", "é" * 100))).record(1)
    found = metrics.collect()
    pieces = list(pieces_of(found, openmetrics=True))
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 2 * PIECE + 2000  # bytes
    assert b"".join(pieces) == text_of(found, openmetrics=True)
    assert len(samples(b"".join(pieces).decode())) == 5000
    assert gzip.decompress(page(lambda: found, PROMETHEUS_3, "gzip").body) == b"".join(pieces)


async def test_it_is_made_beside_the_loop() -> None:
    threads: list[int] = []

    def collect() -> list[Metric]:
        threads.append(threading.get_ident())
        return counted(CALLS)

    assert (await render(collect)).body == text_of(counted(CALLS), openmetrics=False)
    assert threads != [threading.get_ident()]
