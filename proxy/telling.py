"""What a gateway tells of its calls, and to whom: the console, and a collector where the configuration or OTEL_* name one."""

from __future__ import annotations

from collections.abc import Mapping

from ..exporters.console import Console
from ..exporters.otlp_config import OtlpConfig, read
from ..exporters.record import Fanout, Recorder
from ..exporters.settings import Telemetry


def collector_of(telemetry: Telemetry, environ: Mapping[str, str]) -> OtlpConfig | None:
    """Where traces and log events go; None: nowhere.

    Raises:
        ValueError: an OTEL_* variable can't be used; the words name it.
    """
    config = read(telemetry, environ)
    return config if config.traces or config.logs else None


def recorder_of(console: Console, collector: OtlpConfig | None) -> Recorder:
    """One Recorder for all of them. Without a collector nothing of OpenTelemetry is loaded."""
    if collector is None:
        return console
    from ..exporters.export import Exporting
    from ..exporters.otlp import detected_resource

    return Fanout(console, Exporting(collector, detected_resource()))


def traces_to(collector: OtlpConfig | None) -> str:
    """Where traces go, in words."""
    if collector is None:
        return "off (set OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.otlp.endpoint)"
    target = collector.traces.target or collector.logs.target
    return target.endpoint if target else "the console"
