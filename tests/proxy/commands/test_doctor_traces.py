"""Whether a span reaches the collector: over HTTP and gRPC, with one that is well, dead, mute, elsewhere or choosy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer, add_TraceServiceServicer_to_server

from spangate.exporters.settings import Telemetry
from spangate.proxy.commands.doctor_findings import Finding
from spangate.proxy.commands.doctor_traces import traces

from otlp_sink import Mode, Sink
from upstream import Misbehaving, http, play, refusing_port, self_signed


def found(endpoint: str, *, patience: float = 5.0, protocol: str = "http/protobuf", **environ: str) -> Finding:
    telemetry = Telemetry.model_validate({"otlp": {"endpoint": endpoint, "protocol": protocol, "headers": {"x-key": "CANARY-1"}}})
    [finding] = traces(telemetry, environ, patience).findings
    assert "CANARY" not in finding.words
    return finding


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


def test_a_span_arrives(sink: Sink) -> None:
    finding = found(sink.endpoint)
    assert (finding.level, finding.told) == ("ok", f"a test span reached {sink.endpoint}/v1/traces")
    assert [span.name for span in sink.spans] == ["spangate doctor"]


def test_the_collectors_clock_is_read(sink: Sink) -> None:
    probed = traces(Telemetry.model_validate({"otlp": {"endpoint": sink.endpoint}}), {}, 5)
    assert [(each.host, each.ahead) for each in probed.readings] == [("127.0.0.1", 0.0)]


@pytest.mark.parametrize(
    ("mode", "told"),
    [("partial", "threw the test span away"), ("refusing", "status 400"), ("busy", "doesn't take spans just now (status 503)")],
)
def test_one_that_does_not_take_it(sink: Sink, mode: Mode, told: str) -> None:
    sink.mode = mode
    finding = found(sink.endpoint, patience=0.5)
    assert (finding.level, told in finding.told) == ("problem", True), finding


def test_a_mute_one_costs_the_patience_and_no_more(sink: Sink) -> None:
    sink.mode = "mute"
    began = time.monotonic()
    finding = found(sink.endpoint, patience=0.3)
    assert time.monotonic() - began < 3
    assert "gives no answer within 0.3 s" in finding.told
    assert "4318" in finding.mend


def test_a_dead_one_is_told_at_once() -> None:
    began = time.monotonic()
    finding = found(f"http://127.0.0.1:{refusing_port()}", patience=30)
    assert time.monotonic() - began < 3
    assert (finding.level, "connection refused" in finding.told, "start the collector" in finding.mend) == ("problem", True, True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(404), ("knows nothing of traces", "4318")),
        (http(401), ("wants to know who sends", "telemetry.otlp.headers")),
        (http(200, [("Content-Type", "text/html")], b"<html>welcome"), ("answered with text/html", "is that a collector?")),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ("didn't take the test span", "is that a collector?")),
    ],
)
async def test_something_else_answers(answer: bytes, words: tuple[str, str]) -> None:
    async with Misbehaving(play(answer, end="fin")) as up:
        finding = await asyncio.to_thread(found, f"http://127.0.0.1:{up.port}", patience=0.5)
    assert (finding.level, *(word in finding.words for word in words)) == ("problem", True, True), finding


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    async with Misbehaving(play(http(200), end="fin"), tls=self_signed().server) as up:
        finding = await asyncio.to_thread(found, f"https://127.0.0.1:{up.port}", patience=0.5)
        assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in finding.mend
        (tmp_path / "ca.pem").write_text(self_signed().pem)
        trusted = {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.pem")}
        finding = await asyncio.to_thread(found, f"https://127.0.0.1:{up.port}", patience=3, **trusted)
        assert finding.level == "ok"


def test_files_of_tls_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("not at all")
    finding = found("https://127.0.0.1:1", OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "none.pem"))
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE names a file that can't be read (No such file or directory)" in finding.told
    assert "no PEM file" in found("https://127.0.0.1:1", OTEL_EXPORTER_OTLP_CERTIFICATE=str(tmp_path / "no.pem")).told


def test_off_says_how_to_turn_it_on() -> None:
    [finding] = traces(Telemetry(), {}, 1).findings
    assert (finding.level, "OTEL_EXPORTER_OTLP_ENDPOINT" in finding.mend) == ("off", True)
    [finding] = traces(Telemetry(), {"OTEL_TRACES_EXPORTER": "console"}, 1).findings
    assert finding.told == "go to the console"


def test_variables_that_cannot_be_used() -> None:
    [finding] = traces(Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "nowhere at all"}, 1).findings
    assert (finding.level, "OTEL_EXPORTER_OTLP_ENDPOINT" in finding.told) == ("problem", True)
    doubtful, _ = traces(Telemetry(), {"OTEL_BSP_SCHEDULE_DELAY": "soon"}, 1).findings
    assert (doubtful.level, "OTEL_BSP_SCHEDULE_DELAY" in doubtful.told) == ("warning", True)


def test_a_sampler_that_keeps_nothing_is_told(sink: Sink) -> None:
    telemetry = Telemetry.model_validate({"otlp": {"endpoint": sink.endpoint}, "sampling": {"ratio": 0}})
    arrived, sampling = traces(telemetry, {}, 5).findings
    assert (arrived.level, sampling.level) == ("ok", "warning")


# ---- gRPC


class Collector(TraceServiceServicer):
    """Takes spans, some of them, or none."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.status: grpc.StatusCode | None = None
        self.rejects = 0

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.status is not None:
            context.abort(self.status, "no")
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejects
        return answer


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    server = grpc.server(ThreadPoolExecutor(1))
    collector = Collector()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield collector, f"http://127.0.0.1:{port}"
    server.stop(0).wait()


def test_a_span_arrives_over_grpc(collector: tuple[Collector, str]) -> None:
    taken, url = collector
    finding = found(url, protocol="grpc")
    assert (finding.level, len(taken.requests)) == ("ok", 1)


def test_one_that_throws_it_away_over_grpc(collector: tuple[Collector, str]) -> None:
    taken, url = collector
    taken.rejects = 1
    assert "threw the test span away" in found(url, protocol="grpc").told


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "wants to know who sends (UNAUTHENTICATED)"),
        (grpc.StatusCode.UNIMPLEMENTED, "knows nothing of traces (UNIMPLEMENTED)"),
        (grpc.StatusCode.UNAVAILABLE, "doesn't take spans just now (UNAVAILABLE)"),
    ],
)
def test_one_that_refuses_over_grpc(collector: tuple[Collector, str], status: grpc.StatusCode, told: str) -> None:
    taken, url = collector
    taken.status = status
    finding = found(url, protocol="grpc", patience=0.5)
    assert (finding.level, told in finding.told) == ("problem", True), finding


def test_a_dead_one_over_grpc() -> None:
    assert "connection refused" in found(f"http://127.0.0.1:{refusing_port()}", protocol="grpc").told


async def test_an_http_server_where_grpc_is_meant() -> None:
    async with Misbehaving(play(http(404), end="fin")) as up:
        finding = await asyncio.to_thread(found, f"http://127.0.0.1:{up.port}", protocol="grpc", patience=0.5)
    assert finding.level == "problem"
