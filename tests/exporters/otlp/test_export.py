"""exporters/otlp/export.py: calls on their way to a collector, in a thread, whatever the collector does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spangate.call.seen import Seen
from spangate.exporters.otlp.config import OtlpConfig, Signal, Target, read
from spangate.exporters.otlp.export import Exporting, exporting, probe
from spangate.exporters.otlp.http import Result
from spangate.exporters.otlp.sampling import Sampling
from spangate.exporters.record import Recorder, Resource
from spangate.exporters.settings import Telemetry

from finished import CALLER, TRACE, attempt, call, whole_call
from otlp_sink import Sink, attributes
from upstream import refusing_port

Made = Callable[..., Exporting]


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


@pytest.fixture
def made() -> Iterator[Made]:
    """Makes recorders, and closes them at the end."""
    all_made: list[Exporting] = []

    def make(endpoint: str, **changes: Any) -> Exporting:
        target = Target(f"{endpoint}/v1/traces", timeout=changes.pop("timeout", 3.0))
        config = OtlpConfig(traces=Signal(target), logs=Signal(replace(target, endpoint=f"{endpoint}/v1/logs")), delay=0.02)
        all_made.append(Exporting(replace(config, **changes), Resource({"service.name": "spangate"})))
        return all_made[-1]

    yield make
    for each in all_made:
        each.close(0.2)


def fails(number: int) -> Seen:
    seen = call(id=f"req_{number}", trace_id=number + 1, outcome="failed", status=502, error_code="upstream_unreachable")
    attempt(seen, outcome="error", error_type="upstream_unreachable")
    return seen


def test_a_call_arrives(sink: Sink, made: Made) -> None:
    recorder: Recorder = made(sink.endpoint)
    recorder.record(whole_call())
    recorder.flush()
    server, first, second = sink.wait_for_spans(3)
    assert {span.trace_id for span in sink.spans} == {TRACE.to_bytes(16, "big")}
    assert [span.name for span in sink.spans] == ["POST /v1/chat/completions", "chat m-big", "chat m-big"]
    assert first.parent_span_id == second.parent_span_id == server.span_id
    assert server.parent_span_id == CALLER.to_bytes(8, "big")
    assert sink.resource == {"service.name": "spangate"}
    [log] = sink.logs
    assert (log.event_name, log.span_id, log.trace_id) == ("gen_ai.client.inference.exception", first.span_id, first.trace_id)
    assert attributes(log)["exception.type"] == "429"


def test_all_of_many_arrive_once(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint)
    for number in range(2000):
        recorder.record(fails(number))
    assert recorder.wait()
    assert len(sink.spans) == len({span.span_id + span.trace_id for span in sink.spans}) == 4000
    assert recorder.counts.sent == {"traces": 4000, "logs": 2000}
    assert recorder.counts.dropped == {}
    assert max(len(each.message.resource_spans[0].scope_spans[0].spans) for each in sink.taken if each.path == "/v1/traces") == 256


def test_without_a_flush_they_go_soon(sink: Sink, made: Made) -> None:
    made(sink.endpoint).record(call())
    assert len(sink.wait_for_spans(1, seconds=2.0)) == 1


def test_nothing_to_flush(sink: Sink, made: Made) -> None:
    before = set(threading.enumerate())
    recorder = made(sink.endpoint)
    assert recorder.wait()
    assert recorder.close()
    assert set(threading.enumerate()) <= before, "a thread for nothing"
    assert sink.requests == []


def test_what_is_not_sampled_is_not_sent_but_its_decisions_are(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint, sampling=Sampling(bound=0))
    refused = call(outcome="refused", status=404, error_code="model_not_found")
    refused.notes.add("access.refused", model="gpt-9")
    for seen in (refused, whole_call(), fails(1), call()):
        seen.sampled = False
        recorder.record(seen)
    assert recorder.wait()
    assert [log.event_name for log in sink.logs] == ["spangate.policy.decision"]
    assert sink.spans == []
    assert sink.logs[0].flags == 0


def test_the_tail_rule_brings_them_back(sink: Sink, made: Made) -> None:
    recorder = made(sink.endpoint, sampling=Sampling(bound=0, failed=True))
    recorder.record(fails(1))
    recorder.record(call())
    assert recorder.wait()
    assert len(sink.spans) == 2


# ---- TEL-09: one bad call among good ones


def test_a_call_that_cant_be_told_costs_itself_alone(sink: Sink, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    recorder = made(sink.endpoint)
    broken = whole_call()
    broken.trace_id = -1
    for seen in (call(span_id=1), broken, call(span_id=2)):
        recorder.record(seen)
    assert recorder.wait()
    assert [int.from_bytes(span.span_id, "big") for span in sink.spans] == [1, 2]
    assert recorder.counts.dropped == {("traces", "invalid"): 3}
    assert len(caplog.records) == 1


# ---- TEL-01: a collector that is dead, slow, mute


def test_a_full_queue_drops_its_oldest(sink: Sink, made: Made) -> None:
    sink.mode, sink.delay = "slow", 0.5
    recorder = made(sink.endpoint, queue=10)
    recorder.record(call(span_id=999))
    sink.wait(lambda: bool(sink.requests))
    for number in range(50):
        recorder.record(call(span_id=number + 1))
    assert recorder.waiting == 10
    assert recorder.counts.dropped == {("traces", "queue_full"): 40}
    assert recorder.wait()
    assert [int.from_bytes(span.span_id, "big") for span in sink.spans] == [999, *range(41, 51)]
    assert recorder.counts.sent == {"traces": 11}


def test_calls_that_are_encoded_by_then_are_dropped_whole(sink: Sink, made: Made) -> None:
    sink.mode, sink.delay = "slow", 0.5
    recorder = made(sink.endpoint, queue=100)
    recorder.record(whole_call())
    sink.wait(lambda: bool(sink.requests))
    for _ in range(300):
        recorder.record(whole_call())
    assert recorder.waiting == 100
    assert recorder.counts.dropped == {("traces", "queue_full"): 600, ("logs", "queue_full"): 200}
    assert recorder.wait()
    assert recorder.counts.sent == {"traces": 303, "logs": 101}


def test_a_dead_collector_costs_telemetry_alone(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    recorder = made(f"http://127.0.0.1:{refusing_port()}", timeout=0.2, queue=100)
    longest = 0.0
    for number in range(3000):
        began = time.perf_counter()
        recorder.record(fails(number))
        longest = max(longest, time.perf_counter() - began)
    recorder.wait(5)
    counts = recorder.counts
    assert recorder.waiting <= 100
    assert counts.sent == {}
    assert counts.dropped["traces", "queue_full"] + counts.dropped["traces", "unreachable"] == 6000
    assert [record.levelno for record in caplog.records] == [logging.WARNING], "one line in ten seconds"


def test_a_mute_collector_delays_a_drain_by_its_limit_alone(sink: Sink, made: Made) -> None:
    sink.mode = "mute"
    recorder = made(sink.endpoint, timeout=30.0)
    recorder.record(call())
    began = time.monotonic()
    assert not recorder.wait(0.2)
    assert not recorder.close(0.2)
    assert time.monotonic() - began < 2.0


def test_what_is_left_at_the_end_is_counted(sink: Sink, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """One request of 256 spans is under way, the rest waits; all of it is lost when patience is over, and what comes later too."""
    sink.mode = "mute"
    recorder = made(sink.endpoint, timeout=30.0)
    for number in range(1000):
        recorder.record(fails(number))
    began = time.monotonic()
    assert not recorder.close(0.5)
    assert time.monotonic() - began < 1.5
    assert caplog.messages[-1].endswith("; 3000 items by now"), "the sum is told, whenever the last line was"
    recorder.record(fails(1000))
    lost = recorder.counts.dropped
    assert sum(count for (name, _), count in lost.items() if name == "traces") == 2002
    assert sum(count for (name, _), count in lost.items() if name == "logs") == 1001
    assert recorder.waiting == 0
    assert recorder.counts.sent == {}


def test_a_collector_that_comes_back(sink: Sink, made: Made) -> None:
    sink.mode, sink.busy_for = "busy", 3
    recorder = made(sink.endpoint)
    for number in range(10):
        recorder.record(fails(number))
    assert recorder.wait()
    assert len(sink.spans) == 20
    assert recorder.counts.dropped == {}


def test_what_a_collector_rejects_is_counted(sink: Sink, made: Made) -> None:
    sink.mode, sink.rejects = "partial", 1
    recorder = made(sink.endpoint)
    recorder.record(whole_call())
    assert recorder.wait()
    assert recorder.counts.dropped == {("traces", "rejected"): 1, ("logs", "rejected"): 1}
    assert recorder.counts.sent == {"traces": 2, "logs": 0}


# ---- what it costs the loop


def test_recording_holds_nobody_for_long(sink: Sink, made: Made) -> None:
    """Calls are told of a third of a millisecond at a time, whoever comes last."""
    recorder = made(sink.endpoint, queue=100_000)
    took = []
    for _ in range(3000):
        seen = whole_call()
        began = time.thread_time()
        recorder.record(seen)
        took.append(time.thread_time() - began)
    longest = sorted(took)[-3]
    print(f"the loop was held for {longest * 1000:.3f} ms")
    assert longest < 0.001
    assert recorder.wait(10)
    assert recorder.counts.sent["traces"] == 9000


# ---- how it comes about


def test_from_a_configuration(sink: Sink) -> None:
    config = read(Telemetry.model_validate({"otlp": {"endpoint": sink.endpoint}}), {"OTEL_BSP_SCHEDULE_DELAY": "20"})
    recorder = exporting(config)
    assert recorder is not None
    recorder.record(call())
    assert recorder.close()
    assert sink.resource["telemetry.sdk.language"] == "python"
    assert len(sink.spans) == 1


def test_without_anywhere_to_send_to_there_is_none() -> None:
    def never() -> Resource:
        raise AssertionError("nobody needs to know")

    assert exporting(read(Telemetry(), {}), never) is None


def test_a_probe_says_whether_it_arrived(sink: Sink) -> None:
    config = read(Telemetry.model_validate({"otlp": {"endpoint": sink.endpoint}}), {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"})
    assert probe(config) == Result()
    [span] = sink.spans
    assert (span.name, span.parent_span_id) == ("spangate doctor", b"")
    sink.mode = "mute"
    assert probe(config) == Result("timeout", "no answer in time")
    assert probe(read(Telemetry(), {})) is None


def test_on_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = exporting(read(Telemetry(), {"OTEL_TRACES_EXPORTER": "console", "OTEL_LOGS_EXPORTER": "console"}))
    assert recorder is not None
    recorder.record(fails(1))
    assert recorder.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert '"name":"POST /v1/chat/completions"' in lines[0]
