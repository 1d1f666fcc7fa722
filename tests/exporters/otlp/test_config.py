"""exporters/otlp/config.py: OTEL_* variables and spangate.yaml, put together as the SDK's exporters would read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.common.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanLimits

from spangate.exporters.otlp.config import OtlpConfig, Target, read
from spangate.exporters.otlp.encoding import Limits
from spangate.exporters.otlp.sampling import Sampling
from spangate.exporters.settings import Telemetry

BASE = "OTEL_EXPORTER_OTLP_"


def config(environ: dict[str, str] | None = None, **telemetry: Any) -> OtlpConfig:
    return read(Telemetry.model_validate(telemetry), environ or {})


def traces(environ: dict[str, str] | None = None, **telemetry: Any) -> Target:
    target = config(environ, **telemetry).traces.target
    assert target is not None
    return target


def test_without_an_endpoint_there_is_nothing() -> None:
    nothing = config()
    assert [bool(signal) for signal in (nothing.traces, nothing.logs, nothing.metrics)] == [False] * 3
    assert nothing.told == ()


def test_an_endpoint_in_the_file_is_for_all_signals() -> None:
    found = config(otlp={"endpoint": "http://collector:4318/", "headers": {"X-Team": "a"}})
    assert [signal.target and signal.target.endpoint for signal in (found.traces, found.logs, found.metrics)] == [
        "http://collector:4318/v1/traces",
        "http://collector:4318/v1/logs",
        "http://collector:4318/v1/metrics",
    ]
    assert found.traces.target is not None
    assert found.traces.target.headers == {"x-team": "a"}


def test_a_variable_wins_over_the_file() -> None:
    environ = {f"{BASE}ENDPOINT": "http://env:4318", f"{BASE}HEADERS": "x-team=b,x-more=c%20d"}
    target = traces(environ, otlp={"endpoint": "http://file:4318", "headers": {"x-team": "a", "x-file": "f"}})
    assert target.endpoint == "http://env:4318/v1/traces"
    assert target.headers == {"x-team": "b", "x-file": "f", "x-more": "c d"}


def test_a_signals_own_variable_wins_over_the_one_of_all() -> None:
    environ = {
        f"{BASE}ENDPOINT": "http://env:4318",
        f"{BASE}TRACES_ENDPOINT": "http://own:9/custom",
        f"{BASE}TIMEOUT": "3",
        f"{BASE}LOGS_TIMEOUT": "4",
    }
    found = config(environ)
    assert found.traces.target is not None
    assert found.logs.target is not None
    assert (found.traces.target.endpoint, found.logs.target.endpoint) == ("http://own:9/custom", "http://env:4318/v1/logs")
    assert (found.traces.target.timeout, found.logs.target.timeout) == (3.0, 4.0)


def test_a_whole_address_may_have_a_query() -> None:
    assert traces({f"{BASE}TRACES_ENDPOINT": "https://c/otlp?key=1"}).endpoint == "https://c/otlp?key=1"


def test_one_signals_endpoint_sends_that_signal_alone() -> None:
    found = config({f"{BASE}TRACES_ENDPOINT": "http://own:4318/v1/traces"})
    assert (bool(found.traces), bool(found.logs), bool(found.metrics)) == (True, False, False)


@pytest.mark.parametrize(
    ("exporter", "target", "console"),
    [("otlp", True, False), ("console", False, True), ("none", False, False), ("otlp,console", True, True), ("zipkin", False, False)],
)
def test_exporters_by_name(exporter: str, target: bool, console: bool) -> None:
    found = config({"OTEL_TRACES_EXPORTER": exporter, f"{BASE}ENDPOINT": "http://env:4318"})
    assert (found.traces.target is not None, found.traces.console) == (target, console)
    assert found.logs.target is not None
    assert bool(found.told) == (exporter == "zipkin")


def test_who_asks_for_otlp_gets_the_default_endpoint() -> None:
    assert traces({"OTEL_TRACES_EXPORTER": "otlp"}).endpoint == "http://localhost:4318/v1/traces"
    assert traces({"OTEL_TRACES_EXPORTER": "otlp", f"{BASE}PROTOCOL": "grpc"}).endpoint == "http://localhost:4317"


def test_the_sdk_switched_off() -> None:
    found = config({"OTEL_SDK_DISABLED": "TRUE", f"{BASE}ENDPOINT": "http://env:4318"})
    assert [bool(signal) for signal in (found.traces, found.logs, found.metrics)] == [False] * 3
    assert found.off
    assert not config({"OTEL_SDK_DISABLED": "no"}).off


def test_grpc_takes_its_address_as_it_is() -> None:
    target = traces({f"{BASE}ENDPOINT": "collector:4317", f"{BASE}INSECURE": "true"}, otlp={"protocol": "grpc"})
    assert (target.protocol, target.endpoint, target.insecure) == ("grpc", "collector:4317", True)


def test_certificates() -> None:
    names = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    target = traces(
        {f"{BASE}ENDPOINT": "https://c", f"{BASE}TRACES_CERTIFICATE": "own.pem"} | {f"{BASE}{name}": f"{name}.pem" for name in names}
    )
    assert (target.certificate, target.client_certificate, target.client_key) == ("own.pem", "CLIENT_CERTIFICATE.pem", "CLIENT_KEY.pem")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf or grpc"),
        ("ENDPOINT", "collector", "OTEL_EXPORTER_OTLP_ENDPOINT: must be an address such as http://127.0.0.1:4318"),
        ("TRACES_ENDPOINT", "nowhere", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must be an address such as http://127.0.0.1:4318"),
    ],
)
def test_what_cant_be_used_at_all(name: str, value: str, told: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        config({f"{BASE}ENDPOINT": "http://c:4318", f"{BASE}{name}": value})
    assert str(caught.value) == told


def test_what_is_wrong_is_told_and_takes_its_default() -> None:
    environ = {f"{BASE}ENDPOINT": "http://c", f"{BASE}TIMEOUT": "soon", f"{BASE}COMPRESSION": "br", "OTEL_PROPAGATORS": "tracecontext,b3"}
    found = config(environ | {"OTEL_TRACES_SAMPLER": "magic", "OTEL_BSP_SCHEDULE_DELAY": "x", "OTEL_METRIC_EXPORT_INTERVAL": "1m"})
    assert found.traces.target is not None
    assert (found.traces.target.timeout, found.traces.target.compression, found.delay) == (10.0, "none", 1.0)
    assert found.propagators == {"tracecontext"}
    told = "\n".join(found.told)
    for name in ("TIMEOUT", "COMPRESSION", "PROPAGATORS", "SAMPLER", "SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL can't be used: 60 s"):
        assert name in told


def test_what_is_wrong_for_all_signals_is_told_once() -> None:
    told = config({f"{BASE}ENDPOINT": "http://c", f"{BASE}TIMEOUT": "x"}).told
    assert told == ("OTEL_EXPORTER_OTLP_TIMEOUT can't be used: 10 s it is",)


def test_an_argument_without_a_sampler_is_told() -> None:
    found = config({"OTEL_TRACES_SAMPLER_ARG": "0.1"})
    assert found.told == ("OTEL_TRACES_SAMPLER_ARG means nothing without OTEL_TRACES_SAMPLER=traceidratio: 1 it is",)
    assert found.sampling.bound == 2**64


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("name", ["HEADERS", "TRACES_HEADERS"])
@pytest.mark.parametrize(
    "text",
    ["authorization: Bearer SECRETX", "a=b,SECRETX", "a=SECRETX;b", "a=b%0d%0aSECRETX", "x%20SECRETX=b", "=SECRETX", "a=SECRETX\u00e9"],
)
def test_headers_that_are_none_are_refused_without_a_word_of_them(
    protocol: str, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        config({f"{BASE}ENDPOINT": "http://c:4318", f"{BASE}PROTOCOL": protocol, f"{BASE}{name}": text})
    assert str(caught.value) == f"{BASE}{name}: must be headers such as authorization=Bearer%20key,x-team=search"
    assert (caught.value.__cause__, caplog.records) == (None, [])


def test_secrets_are_not_shown() -> None:
    found = config({f"{BASE}ENDPOINT": "http://c", f"{BASE}HEADERS": "authorization=secret"})
    assert found.traces.target is not None
    assert found.traces.target.headers == {"authorization": "secret"}
    assert "secret" not in repr(found)


# ---- the same as the SDK's


variables = st.fixed_dictionaries(
    {},
    optional={
        f"{BASE}ENDPOINT": st.sampled_from(["http://a:4318", "http://a:4318/", "http://a/base/", ""]),
        f"{BASE}TRACES_ENDPOINT": st.sampled_from(["http://b:4318/v1/traces", "http://b:4318", ""]),
        f"{BASE}HEADERS": st.sampled_from(["a=1,b=2", "A=%20x", "a=b c%20", " a = b ,, c=", "a=b=c", ","]),
        f"{BASE}TRACES_HEADERS": st.sampled_from(["a=3", ""]),
        f"{BASE}TIMEOUT": st.sampled_from(["5", "1.5", "x", ""]),
        f"{BASE}TRACES_TIMEOUT": st.sampled_from(["7", ""]),
        f"{BASE}COMPRESSION": st.sampled_from(["gzip", "deflate", "none", "GZIP", "br", ""]),
        f"{BASE}TRACES_COMPRESSION": st.sampled_from(["none", "gzip", ""]),
    },
)


@given(variables)
def test_a_target_is_the_sdks(environ: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environ.items():
            patched.setenv(name, value)
        theirs = OTLPSpanExporter()
    ours = traces(environ | {"OTEL_TRACES_EXPORTER": "otlp"})
    assert ours.endpoint.rstrip("/") == theirs._endpoint.rstrip("/")
    assert ours.timeout == theirs._client._timeout
    assert Compression.from_str(ours.compression) == theirs._compression
    fixed = {"content-type", "user-agent", "Content-Encoding", "content-encoding"}
    assert dict(ours.headers) == {name: value for name, value in theirs._client._headers.items() if name not in fixed}
    theirs.shutdown()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.sampled_from(["5", "0", "1000"])
            for name in (
                "OTEL_ATTRIBUTE_COUNT_LIMIT",
                "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
                "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
                "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
                "OTEL_SPAN_EVENT_COUNT_LIMIT",
                "OTEL_SPAN_LINK_COUNT_LIMIT",
                "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
                "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            )
        },
    )
)
def test_limits_are_the_sdks(environ: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environ.items():
            patched.setenv(name, value)
        theirs = SpanLimits()
    said = any(name.endswith("VALUE_LENGTH_LIMIT") for name in environ)
    assert config(environ).limits == Limits(
        attributes=theirs.max_span_attributes,
        length=theirs.max_span_attribute_length if said else 65536,
        events=theirs.max_events,
        event_attributes=theirs.max_event_attributes,
        links=theirs.max_links,
        link_attributes=theirs.max_link_attributes,
    )


# ---- sampling and batches


def test_the_files_ratio_is_parent_based() -> None:
    found = config(sampling={"ratio": 0.5, "keep": ["refused", {"slower": "10s"}, {"slower": "2s"}]}).sampling
    assert found == Sampling(parents=True, bound=2**63, refused=True, slower=2.0)


def test_a_named_sampler_wins_and_keeps_the_files_tail() -> None:
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert config(environ, sampling={"ratio": 1, "keep": ["failed"]}).sampling == Sampling(parents=False, bound=2**62, failed=True)


def test_batches() -> None:
    found = config({"OTEL_BSP_MAX_QUEUE_SIZE": "1000", "OTEL_BSP_SCHEDULE_DELAY": "250", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "512"})
    assert (found.queue, found.delay, found.batch) == (500, 0.25, 256)
    assert (config().queue, config().delay, config().batch) == (8192, 1.0, 256)


def test_metrics() -> None:
    environ = {
        "OTEL_METRIC_EXPORT_INTERVAL": "5000",
        f"{BASE}METRICS_TEMPORALITY_PREFERENCE": "DELTA",
        "OTEL_METRICS_EXEMPLAR_FILTER": "always_off",
    }
    found = config(environ, http_spans=True)
    assert (found.interval, found.temporality, found.exemplars, found.http_spans) == (5.0, "delta", "always_off", True)
