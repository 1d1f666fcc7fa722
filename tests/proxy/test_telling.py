"""Whom a gateway tells of its calls."""

from __future__ import annotations

import io

import pytest

from spangate.exporters.console import Console
from spangate.exporters.export import Exporting
from spangate.exporters.record import Fanout
from spangate.exporters.settings import Otlp, Telemetry
from spangate.proxy.telling import collector_of, recorder_of, traces_to

CONSOLE = Console(io.StringIO())
COLLECTOR = "http://127.0.0.1:4318"


def test_without_a_collector_the_console_is_told_and_nobody_else() -> None:
    collector = collector_of(Telemetry(), {})
    assert collector is None
    assert recorder_of(CONSOLE, collector) is CONSOLE
    assert traces_to(collector).startswith("off")


@pytest.mark.parametrize(
    ("telemetry", "environ"),
    [(Telemetry(otlp=Otlp(endpoint=COLLECTOR)), {}), (Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR})],
)
def test_a_collector_is_told_too(telemetry: Telemetry, environ: dict[str, str]) -> None:
    collector = collector_of(telemetry, environ)
    recorder = recorder_of(CONSOLE, collector)
    assert isinstance(recorder, Fanout)
    console, exporting = recorder.parts
    assert console is CONSOLE
    assert isinstance(exporting, Exporting)
    assert traces_to(collector) == f"{COLLECTOR}/v1/traces"


def test_the_console_may_be_told_of_traces() -> None:
    assert traces_to(collector_of(Telemetry(), {"OTEL_TRACES_EXPORTER": "console"})) == "the console"


def test_a_variable_that_cannot_be_used_is_named() -> None:
    with pytest.raises(ValueError, match="OTEL_EXPORTER_OTLP_PROTOCOL"):
        collector_of(Telemetry(), {"OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"})
