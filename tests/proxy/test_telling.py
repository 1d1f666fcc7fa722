"""Whom a gateway tells of its calls."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from spangate.exporters.console import Console
from spangate.exporters.record import Fanout, close
from spangate.proxy.config import Config, Kinds, parse
from spangate.proxy.telling import Telling, models_of, telling_of

from finished import call
from gateway import KINDS
from otlp_sink import Sink

CONSOLE = Console(io.StringIO())
COLLECTOR = "http://127.0.0.1:4318"
SPINE = """
providers: {s: {kind: scripted}}
models: {fast: {targets: [{provider: s, model: small-1}]}, "echo-*": {targets: [{provider: s}]}, "*": {targets: [{provider: s}]}}
"""


def config(more: str = "", kinds: Kinds = KINDS) -> Config:
    return parse((SPINE + more).encode(), "spangate.yaml", environ={}, kinds=kinds)


def told(more: str = "", **environ: str) -> Telling:
    return telling_of(config(more), environ, CONSOLE)


def parts(telling: Telling) -> list[str]:
    recorder = telling.recorder
    return [type(part).__name__ for part in (recorder.parts if isinstance(recorder, Fanout) else [recorder])]


NO_ROWS = "usage: {enabled: false}\n"


def test_without_a_word_rows_are_kept() -> None:
    telling = told()
    assert parts(telling) == ["Console", "SpoolRecorder"]
    assert telling.rows == "spangate.duckdb"


def test_alone_the_console_is_told() -> None:
    telling = told(NO_ROWS)
    assert telling.recorder is CONSOLE
    assert (telling.exporting, telling.measuring, telling.usage) == (None, None, None)
    assert telling.traces.startswith("off")
    assert telling.rows.startswith("no rows")


def test_a_section_of_telemetry_is_enough_to_count() -> None:
    assert parts(told(f"{NO_ROWS}telemetry: {{}}")) == ["Console", "Measuring"]


def test_a_collector_in_the_file_is_told_everything() -> None:
    telling = told(f"{NO_ROWS}telemetry: {{otlp: {{endpoint: '{COLLECTOR}'}}}}")
    assert parts(telling) == ["Console", "Exporting", "Pushing"]
    assert telling.traces == f"{COLLECTOR}/v1/traces"


def test_a_collector_in_the_environment_too() -> None:
    assert told(OTEL_EXPORTER_OTLP_ENDPOINT=COLLECTOR).traces == f"{COLLECTOR}/v1/traces"
    assert parts(told(NO_ROWS, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{COLLECTOR}/v1/metrics")) == ["Console", "Pushing"]


def test_a_mute_collector_of_all_signals_is_waited_for_once() -> None:
    with Sink(mode="mute") as sink:
        telling = told(NO_ROWS, OTEL_EXPORTER_OTLP_ENDPOINT=sink.endpoint)
        telling.recorder.record(call())
        began = time.monotonic()
        close(telling.recorder)
        assert time.monotonic() - began < 6.0, "five seconds for all of it"
    assert telling.exporting is not None
    assert {name for name, _ in telling.exporting.counts.dropped} == {"traces", "metrics"}


def test_what_is_switched_off_says_by_what() -> None:
    assert told(OTEL_SDK_DISABLED="true", OTEL_EXPORTER_OTLP_ENDPOINT=COLLECTOR).traces == "off (OTEL_SDK_DISABLED is true)"


def test_the_console_may_be_told_of_traces() -> None:
    assert told(OTEL_TRACES_EXPORTER="console").traces == "the console"


def test_rows_are_kept_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "u.duckdb"
    telling = told(f"usage: {{path: '{path}'}}")
    assert parts(telling) == ["Console", "SpoolRecorder"]
    assert telling.rows == str(path)
    assert not path.exists(), "nothing is opened before the gateway starts"


def test_a_variable_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL"):
        told(OTEL_EXPORTER_OTLP_ENDPOINT=COLLECTOR, OTEL_EXPORTER_OTLP_PROTOCOL="http/json")


@pytest.mark.parametrize(("model", "name"), [("fast", "fast"), ("small-1", "small-1"), ("echo-7", "echo-*"), ("made-up", "_other")])
def test_metrics_know_models_by_the_names_of_the_configuration(model: str, name: str) -> None:
    assert models_of(config()).named(model) == name


def test_what_cannot_be_used_of_the_environment_is_logged_once_and_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    key = "sk-CANARY-0123456789"
    names = ("OTEL_TRACES_SAMPLER", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL")
    told(NO_ROWS, **dict.fromkeys(names, key))
    assert [[name for name in names if name in message] for message in caplog.messages] == [[name] for name in names]
    assert all(message.rpartition(": ")[2].endswith(" it is") for message in caplog.messages)
    assert key not in caplog.text
    caplog.clear()
    told(NO_ROWS, OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.5", OTEL_METRIC_EXPORT_INTERVAL="")
    assert caplog.messages == []
