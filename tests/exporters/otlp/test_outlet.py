"""exporters/otlp/outlet.py: requests of a size that collectors take, and an account of what became of them."""

from __future__ import annotations

import threading

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spangate.exporters.otlp.config import Target
from spangate.exporters.otlp.encoding import GATEWAY, Encoder
from spangate.exporters.otlp.grpc import GrpcSender
from spangate.exporters.otlp.http import HttpSender, Result
from spangate.exporters.otlp.outlet import HEAVY, Counts, Outlet, sender_of
from spangate.exporters.record import Resource, Span

ENCODER = Encoder()
START = ENCODER.resource(Resource({"service.name": "test"})), ENCODER.scope(GATEWAY)


class Taking:
    """A sender that keeps what it is given, and answers as it is told."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.result = Result()

    def send(self, body: bytes) -> Result:
        self.bodies.append(body)
        return self.result

    def close(self) -> None:
        """Nothing to close."""


class Failing(Taking):
    def send(self, body: bytes) -> Result:
        raise ZeroDivisionError


def outlet(sender: Taking, batch: int = 3) -> Outlet:
    return Outlet("traces", sender, START, batch, Counts())


def spans(number: int, size: int = 1) -> list[bytes]:
    return [ENCODER.span(Span(1, 2 + each, "s", 2, 3, 4, {"k": "x" * size})) for each in range(number)]


def sizes(sender: Taking) -> list[int]:
    return [len(ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans) for body in sender.bodies]


def test_requests_of_one_size() -> None:
    sender = Taking()
    out = outlet(sender)
    out.add(spans(2))
    assert sizes(sender) == []
    out.add(spans(6))
    assert sizes(sender) == [3, 3]
    out.send()
    out.send()
    assert sizes(sender) == [3, 3, 2]
    assert out.counts.sent == {"traces": 8}


def test_heavy_spans_go_sooner() -> None:
    sender = Taking()
    out = outlet(sender, batch=256)
    for _ in range(100):
        out.add(spans(1, 60_000))
    out.send()
    assert sum(sizes(sender)) == 100
    assert max(map(len, sender.bodies)) < HEAVY + 70_000


def test_what_is_lost_is_counted_by_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    sender = Taking()
    out = outlet(sender)
    for result in (Result("timeout", "no answer in time"), Result("timeout"), Result("rejected", "status 400"), Result(rejected=1)):
        sender.result = result
        out.add(spans(3))
    assert out.counts.dropped == {("traces", "timeout"): 6, ("traces", "rejected"): 4}
    assert (out.counts.sent, out.counts.lost) == ({"traces": 2}, 10)
    assert out.counts.last_error == "traces: rejected (the collector took the others)"
    assert [record.getMessage() for record in caplog.records] == ["telemetry is lost: traces: timeout (no answer in time); 3 items by now"]


def test_a_sender_that_breaks_costs_its_items() -> None:
    out = outlet(Failing())
    out.add(spans(4))
    assert out.counts.dropped == {("traces", "failed"): 3}
    assert "ZeroDivisionError" in out.counts.last_error


def test_a_collector_that_says_it_left_out_more_than_it_got() -> None:
    sender = Taking()
    out = outlet(sender)
    sender.result = Result(rejected=2**63 - 1)
    out.add(spans(3))
    assert (out.counts.sent, out.counts.dropped) == ({"traces": 0}, {("traces", "rejected"): 3})


def test_the_sum_is_told_when_asked_for_once(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts()
    counts.tell()
    for _ in range(3):
        counts.lose("logs", 2, "timeout")
    counts.tell()
    counts.tell()
    assert [message[-14:] for message in caplog.messages] == ["2 items by now", "6 items by now"]


class Hanging(Taking):
    """Sends until it is let go, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.over = threading.Event(), threading.Event()

    def send(self, body: bytes) -> Result:
        self.begun.set()
        self.over.wait(10)
        return super().send(body)


def test_what_is_given_up_is_counted_once_even_under_way() -> None:
    sender = Hanging()
    out = outlet(sender)
    thread = threading.Thread(target=out.add, args=(spans(4),))
    thread.start()
    assert sender.begun.wait(5)
    out.give_up()
    out.give_up()
    assert out.counts.dropped == {("traces", "failed"): 4}
    sender.over.set()
    thread.join()
    out.send()
    assert out.counts.dropped == {("traces", "failed"): 4}
    assert out.counts.sent == {"traces": 0}


def test_senders_by_protocol() -> None:
    assert isinstance(sender_of(Target("http://127.0.0.1:4318/v1/logs"), "logs"), HttpSender)
    sender = sender_of(Target("http://127.0.0.1:4317", "grpc"), "logs")
    assert isinstance(sender, GrpcSender)
    sender.close()
