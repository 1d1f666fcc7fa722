"""What a gateway tells of its calls, and to whom: the console, a collector where the configuration or OTEL_* name one, and the
database of usage where the configuration has one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..exporters.console import Console
from ..exporters.otlp_config import OtlpConfig, read
from ..exporters.record import Fanout, Recorder
from ..exporters.settings import Telemetry
from ..exporters.spool_recorder import SpoolRecorder
from .config import Config


def collector_of(telemetry: Telemetry, environ: Mapping[str, str]) -> OtlpConfig | None:
    """Where traces and log events go; None: nowhere.

    Raises:
        ValueError: an OTEL_* variable can't be used; the words name it.
    """
    config = read(telemetry, environ)
    return config if config.traces or config.logs else None


def usage_of(config: Config) -> SpoolRecorder | None:
    """Where rows go; None: there are none."""
    settings = config.settings
    return SpoolRecorder(settings.usage, settings.prices, folder=config.folder) if settings.usage else None


def recorder_of(console: Console, collector: OtlpConfig | None, usage: SpoolRecorder | None = None) -> Recorder:
    """One Recorder for all of them. Without a collector nothing of OpenTelemetry is loaded, without usage no database."""
    parts: list[Recorder] = [console]
    if collector is not None:
        from ..exporters.export import Exporting
        from ..exporters.otlp import detected_resource

        parts.append(Exporting(collector, detected_resource()))
    if usage is not None:
        parts.append(usage)
    return Fanout(*parts) if len(parts) > 1 else console


def rows_to(usage: SpoolRecorder | None) -> str:
    """Where rows go, in words."""
    return str(usage.path) if usage else "no rows (usage: {path: spangate.duckdb} keeps one a call)"


def traces_to(collector: OtlpConfig | None) -> str:
    """Where traces go, in words."""
    if collector is None:
        return "off (set OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.otlp.endpoint)"
    target = collector.traces.target or collector.logs.target
    return target.endpoint if target else "the console"
