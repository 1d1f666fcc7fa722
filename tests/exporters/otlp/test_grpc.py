"""exporters/otlp/grpc.py: the same requests over gRPC, to a real server of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceServicer, add_LogsServiceServicer_to_server
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceServicer, add_TraceServiceServicer_to_server

from spangate.exporters.otlp.config import Target
from spangate.exporters.otlp.encoding import GATEWAY, Encoder, frame
from spangate.exporters.otlp.grpc import GrpcSender
from spangate.exporters.otlp.http import Result
from spangate.exporters.record import LogRecord, Resource, Span

from upstream import refusing_port

ENCODER = Encoder()
START = ENCODER.resource(Resource({"service.name": "test"})), ENCODER.scope(GATEWAY)


class Collector(TraceServiceServicer, LogsServiceServicer, MetricsServiceServicer):
    """All three services."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[Any] = []
        self.headers: dict[str, Any] = {}
        self.status: grpc.StatusCode | None = None

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.headers = dict(context.invocation_metadata())
        if self.status is not None:
            context.abort(self.status, "no")
        return self.answer()


SERVICES = {
    "traces": (add_TraceServiceServicer_to_server, ExportTraceServiceResponse),
    "logs": (add_LogsServiceServicer_to_server, ExportLogsServiceResponse),
    "metrics": (add_MetricsServiceServicer_to_server, ExportMetricsServiceResponse),
}


@pytest.fixture(params=SERVICES)
def signal(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Collector, str]]:
    add, answer = SERVICES[request.param]
    server = grpc.server(ThreadPoolExecutor(1))
    collector = Collector(answer)
    add(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield request.param, collector, f"http://127.0.0.1:{port}"
    server.stop(0).wait()


def test_it_is_sent(signal: tuple[Any, Collector, str]) -> None:
    name, collector, url = signal
    sender = GrpcSender(Target(url, "grpc", {"x-team": "a"}, timeout=5, compression="gzip"), name)
    message = {"traces": ENCODER.span(Span(1, 2, "s", 2, 3, 4)), "logs": ENCODER.log(LogRecord("e", 5)), "metrics": b"\x03\x0a\x01m"}[name]
    assert sender.send(frame(*START, [message])) == Result()
    sender.close()
    [request] = collector.requests
    assert request.SerializeToString() == type(request).FromString(frame(*START, [message])).SerializeToString()
    assert collector.headers["x-team"] == "a"


def test_a_collector_that_refuses(signal: tuple[Any, Collector, str], caplog: pytest.LogCaptureFixture) -> None:
    name, collector, url = signal
    collector.status = grpc.StatusCode.INVALID_ARGUMENT
    sender = GrpcSender(Target(url, "grpc", timeout=5), name)
    with caplog.at_level(logging.DEBUG):
        assert sender.send(frame(*START, [])) == Result("unavailable", "gRPC call failed")
    sender.close()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_what_it_left_out_is_counted(signal: tuple[Any, Collector, str]) -> None:
    name, collector, url = signal
    answer = collector.answer()
    field = {"traces": "rejected_spans", "logs": "rejected_log_records", "metrics": "rejected_data_points"}[name]
    setattr(answer.partial_success, field, 3)
    collector.answer = lambda: answer
    sender = GrpcSender(Target(url, "grpc", timeout=5), name)
    assert (sender.send(frame(*START, [])), sender.status) == (Result(rejected=3), "OK")
    sender.close()


def test_what_it_says_of_less_than_nothing_is_nothing(signal: tuple[Any, Collector, str]) -> None:
    name, collector, url = signal
    answer = collector.answer()
    field = {"traces": "rejected_spans", "logs": "rejected_log_records", "metrics": "rejected_data_points"}[name]
    setattr(answer.partial_success, field, -1)
    collector.answer = lambda: answer
    sender = GrpcSender(Target(url, "grpc", timeout=5), name)
    assert sender.send(frame(*START, [])) == Result()
    sender.close()


def test_the_environment_is_not_read_again(
    signal: tuple[Any, Collector, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was, with care; the SDK would write what it can't read into the log."""
    name, collector, url = signal
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a,authorization: Bearer SECRETX")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name.upper()}_HEADERS", "x-team=b,authorization: Bearer SECRETX")
    sender = GrpcSender(Target(url, "grpc", timeout=5), name)
    assert sender.send(frame(*START, [])) == Result()
    sender.close()
    assert "x-team" not in collector.headers
    assert "SECRETX" not in caplog.text


def test_the_status_is_kept_when_the_sdk_makes_another_channel() -> None:
    sender = GrpcSender(Target(f"http://127.0.0.1:{refusing_port()}", "grpc", timeout=0.5), "traces")
    assert sender.send(frame(*START, [])).reason == "unavailable"
    assert sender.status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    sender.close()


def test_a_dead_collector() -> None:
    sender = GrpcSender(Target(f"http://127.0.0.1:{refusing_port()}", "grpc", timeout=0.5), "traces")
    assert sender.send(frame(*START, [])) == Result("unavailable", "gRPC call failed")
    sender.close()
