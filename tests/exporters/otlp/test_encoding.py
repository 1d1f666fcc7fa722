"""exporters/otlp/encoding.py: what it encodes is what OpenTelemetry's SDK makes of the same, attribute for attribute; and bad values cost
only themselves.
"""

from __future__ import annotations

import math
import string
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from opentelemetry._logs import LogRecord as ApiLogRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource as SdkResource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link as ApiLink
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from spangate.exporters.otlp.encoding import GATEWAY, Encoder, Limits, detected_resource, frame
from spangate.exporters.record import ERROR, Link, LogRecord, Resource, Scope, Span, SpanEvent

from otlp_sink import attributes, plain

UNLIMITED = Limits(length=None)
ENCODER = Encoder(UNLIMITED)  # one for all examples, so that what it remembers of one is met by the next

KINDS = {1: SpanKind.INTERNAL, 2: SpanKind.SERVER, 3: SpanKind.CLIENT}
CODES = {0: StatusCode.UNSET, 1: StatusCode.OK, 2: StatusCode.ERROR}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
keys = st.sampled_from(["a", "http.route", "gen_ai.usage.input_tokens", "é"]) | texts.filter(bool)
scalars = st.one_of(
    texts,
    st.booleans(),
    st.sampled_from([0, 1, -1, 200, 9_999, 10_000]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.0]),
    st.binary(max_size=20),
)
values = scalars | st.lists(scalars, max_size=4) | st.lists(texts, min_size=1, max_size=1)
sets = st.dictionaries(keys, values, max_size=12)
times = st.integers(0, 2**63 - 1)
ids = st.integers(1, 2**64 - 1)
traces = st.integers(1, 2**128 - 1)
state_keys = st.text(string.ascii_lowercase, min_size=1, max_size=8)
states = st.dictionaries(state_keys, st.text(string.ascii_letters + string.digits, min_size=1, max_size=8), max_size=3)

spans = st.builds(
    Span,
    trace_id=traces,
    span_id=ids,
    name=texts,
    kind=st.sampled_from(list(KINDS)),
    start=times,
    end=times,
    attributes=sets,
    parent_id=ids | st.just(0),
    remote=st.booleans(),
    trace_state=states.map(lambda pairs: ",".join(f"{key}={value}" for key, value in pairs.items())),
    events=st.lists(st.builds(SpanEvent, name=texts, at=times, attributes=sets), max_size=3),
    links=st.lists(st.builds(Link, trace_id=traces, span_id=ids, attributes=sets, remote=st.booleans()), max_size=3),
    status=st.sampled_from(list(CODES)),
    message=texts,
)


class Fixed(IdGenerator):
    def __init__(self, trace_id: int, span_id: int) -> None:
        self.trace_id, self.span_id = trace_id, span_id

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


def by_the_sdk(span: Span, resource: Resource, scope: Scope, limits: Limits = UNLIMITED) -> ExportTraceServiceRequest:
    """The same span, made, ended and encoded by the SDK."""
    unset = SpanLimits.UNSET
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=SdkResource(resource.attributes, resource.schema_url),
        id_generator=Fixed(span.trace_id, span.span_id),
        span_limits=SpanLimits(
            max_events=limits.events,
            max_links=limits.links,
            max_span_attributes=limits.attributes,
            max_event_attributes=limits.event_attributes,
            max_link_attributes=limits.link_attributes,
            max_attribute_length=unset if limits.length is None else limits.length,
            max_span_attribute_length=unset if limits.length is None else limits.length,
        ),
        shutdown_on_exit=False,
    )
    state = TraceState.from_header([span.trace_state]) if span.trace_state else TraceState()
    parent = SpanContext(span.trace_id, span.parent_id, is_remote=span.remote, trace_flags=TraceFlags(1), trace_state=state)
    made = provider.get_tracer(scope.name, scope.version).start_span(
        span.name,
        context=set_span_in_context(NonRecordingSpan(parent)) if span.parent_id else None,
        kind=KINDS[span.kind],
        attributes=span.attributes,
        links=[ApiLink(SpanContext(each.trace_id, each.span_id, is_remote=each.remote), each.attributes) for each in span.links],
        start_time=span.start,
    )
    for event in span.events:
        made.add_event(event.name, event.attributes, event.at)
    made.set_status(Status(CODES[span.status], (span.message or None) if span.status == ERROR else None))
    made.end(span.end)
    return encode_spans([made])  # type: ignore[list-item]


def by_us(span: Span, resource: Resource, scope: Scope, encoder: Encoder = ENCODER) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(frame(encoder.resource(resource), encoder.scope(scope), [encoder.span(span)]))


def rooted(span: Span) -> Span:
    """What only a parent brings, the SDK leaves out without one; and a status without an error has no message."""
    changes: dict[str, Any] = {"message": span.message if span.status == ERROR else ""}
    return replace(span, **changes | ({} if span.parent_id else {"remote": False, "trace_state": ""}))


@given(spans, sets, texts, texts)
def test_a_span_is_the_sdks(span: Span, who: dict[str, Any], name: str, version: str) -> None:
    span, resource, scope = rooted(span), Resource(who, "https://example.com/schema"), Scope(name or "s", version)
    assert by_us(span, resource, scope) == by_the_sdk(span, resource, scope)


@given(spans, st.integers(0, 4), st.integers(0, 6))
def test_limits_are_the_sdks(span: Span, count: int, length: int) -> None:
    limits = Limits(attributes=count, length=length, events=2, event_attributes=1, links=2, link_attributes=1)
    span = without_bytes(rooted(span))
    assert by_us(span, Resource({}), GATEWAY, Encoder(limits)) == by_the_sdk(span, Resource({}), GATEWAY, limits)


def without_bytes(span: Span) -> Span:
    """Bytes are cut by us and not by the SDK."""

    def plainly(attributes: Any) -> dict[str, Any]:
        return {key: [text_of(each) for each in value] if isinstance(value, list) else text_of(value) for key, value in attributes.items()}

    def text_of(value: Any) -> Any:
        return "bytes" if isinstance(value, bytes) else value

    return replace(
        span,
        attributes=plainly(span.attributes),
        events=[replace(each, attributes=plainly(each.attributes)) for each in span.events],
        links=[replace(each, attributes=plainly(each.attributes)) for each in span.links],
    )


logs = st.builds(
    LogRecord,
    event=texts,
    at=times,
    attributes=sets,
    severity=st.sampled_from([5, 9, 13, 17]),
    trace_id=traces | st.just(0),
    span_id=ids | st.just(0),
    sampled=st.booleans(),
)


@given(logs, sets)
def test_a_log_event_is_the_sdks(log: LogRecord, who: dict[str, Any]) -> None:
    ours = frame(ENCODER.resource(Resource(who)), ENCODER.scope(GATEWAY), [ENCODER.log(log)])
    record = ApiLogRecord(
        timestamp=log.at,
        observed_timestamp=log.at,
        trace_id=log.trace_id,
        span_id=log.span_id,
        trace_flags=TraceFlags(int(log.sampled)),
        severity_number=SeverityNumber(log.severity),
        severity_text=SeverityNumber(log.severity).name,
        attributes=BoundedAttributes(attributes=dict(log.attributes)),
        event_name=log.event,
    )
    record.trace_id, record.span_id = log.trace_id, log.span_id  # 0 had asked for the current span's
    theirs = ReadableLogRecord(record, SdkResource(who), InstrumentationScope(GATEWAY.name, GATEWAY.version))
    assert ExportLogsServiceRequest.FromString(ours) == encode_logs([theirs])


# ---- TEL-09: bad values


def encoded(said: dict[str, Any], limits: Limits | None = None, **fields: Any) -> Any:
    encoder = Encoder(limits)
    span = Span(1, 2, "s", 2, 3, 4, said, **fields)
    return by_us(span, Resource({}), GATEWAY, encoder).resource_spans[0].scope_spans[0].spans[0]


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("\ud800", "\ufffd"),
        ("a\ud83d\ude42b", "a🙂b"),  # two halves that came apart
        ("x\0y", "x\ufffdy"),
        (2**63, "9223372036854775808"),
        (-(2**63) - 1, "-9223372036854775809"),
        (10**5000, "an integer of 16610 bits"),
        (["a", math.nan, "\udc00"], ["a", "\ufffd"]),
        (True, True),
        (b"\xff\0", b"\xff\0"),
    ],
    ids=["surrogate", "pair", "nul", "large", "small", "huge", "list", "true", "bytes"],
)
def test_a_bad_value_is_made_good(bad: Any, good: Any) -> None:
    assert attributes(encoded({"before": 1, "bad": bad, "after": 2})) == {"before": 1, "bad": good, "after": 2}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, object(), {"a": 1}])
def test_what_is_no_value_is_left_out_and_counted(bad: Any) -> None:
    span = encoded({"before": 1, "bad": bad, "after": 2})
    assert attributes(span) == {"before": 1, "after": 2}
    assert span.dropped_attributes_count == 1


def test_long_text_is_cut() -> None:
    long = "é" * (2 << 20)
    assert attributes(encoded({"long": long, "list": [long]})) == {"long": "é" * 65536, "list": ["é" * 65536]}
    assert attributes(encoded({"long": long}, Limits(length=10))) == {"long": "é" * 10}


def test_bad_names_are_made_good() -> None:
    span = encoded({}, events=[SpanEvent("\ud800", 1, {"\udc00": "\0"})], status=ERROR, message="\ud800" * 1000, trace_state="\ud800")
    assert span.events[0].name == "\ufffd"
    assert attributes(span.events[0]) == {"\ufffd": "\ufffd"}
    assert span.status.message == "\ufffd" * 256


def test_a_clock_gone_wrong_is_brought_to_an_edge() -> None:
    encoder = Encoder()
    span = by_us(Span(1, 2, "s", 2, -5, 2**70), Resource({}), GATEWAY, encoder).resource_spans[0].scope_spans[0].spans[0]
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (0, 2**64 - 1)


@given(
    st.dictionaries(
        st.text(max_size=5), st.recursive(st.none() | st.text() | st.integers() | st.floats() | st.binary(), st.lists), max_size=9
    )
)
def test_whatever_it_is_given_it_makes_a_message(said: dict[str, Any]) -> None:
    span = encoded(said, Limits(attributes=5, length=20))
    assert len(span.attributes) + span.dropped_attributes_count == len(said)
    assert all("\0" not in str(plain(pair.value)) for pair in span.attributes if pair.value.HasField("string_value"))


def test_what_it_remembers_is_bounded() -> None:
    encoder = Encoder()
    for number in range(20_000):
        encoder.span(Span(1, 2, f"chat {number}", 3, 3, 4, {f"key{number}": "v", "k": f"v{number}", "n": number, "w": [f"w{number}"]}))
    memos = [*vars(encoder.pairs).values(), encoder._names]
    assert all(len(memo) <= 4096 for memo in memos if isinstance(memo, dict))


# ---- the SDK's part


def test_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging,service.version=9")
    said = detected_resource().attributes
    assert (said["service.name"], said["service.version"], said["deployment.environment.name"]) == ("spangate", "9", "staging")
    assert said["telemetry.sdk.language"] == "python"
    assert said["service.instance.id"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge")
    assert detected_resource().attributes["service.name"] == "edge"


def test_importing_it_loads_no_sdk() -> None:
    program = "import sys, spangate.exporters.otlp.export; print(*(name for name in sys.modules if name.startswith(SDK)))"
    program = program.replace("SDK", "('opentelemetry.sdk', 'grpc')")
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
