"""What a gateway tells of its calls, and to whom: the console; a collector where the configuration or OTEL_* name one; metrics where
there is a collector or the file has a section `telemetry`; the database of usage unless the configuration keeps none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ..exporters.console import Console
from ..exporters.metrics.measuring import Measuring, measuring
from ..exporters.metrics.model_names import ModelNames
from ..exporters.metrics.sources import Sources
from ..exporters.otlp.config import OtlpConfig, read
from ..exporters.otlp.export import Exporting
from ..exporters.record import Fanout, Recorder
from ..exporters.usage.costs import Costs
from ..exporters.usage.recorder import SpoolRecorder
from .config import Config

log = logging.getLogger("spangate.proxy")


@dataclass(frozen=True, slots=True)
class Telling:
    """`recorder` tells all of them. `exporting`: who sends spans, `measuring`: who counts, `usage`: who keeps rows, where there is one."""

    recorder: Recorder
    otlp: OtlpConfig
    exporting: Exporting | None = None
    measuring: Measuring | None = None
    usage: SpoolRecorder | None = None

    @property
    def traces(self) -> str:
        """Where traces go, in words."""
        if self.otlp.off:
            return "off (OTEL_SDK_DISABLED is true)"
        if self.exporting is None:
            return "off (set OTEL_EXPORTER_OTLP_ENDPOINT, or telemetry.otlp.endpoint)"
        target = self.otlp.traces.target or self.otlp.logs.target
        return target.endpoint if target else "the console"

    @property
    def rows(self) -> str:
        """Where rows go, in words."""
        return str(self.usage.path) if self.usage else "no rows (usage: {enabled: false} says so)"


def telling_of(config: Config, environ: Mapping[str, str], console: Console) -> Telling:
    """All of it. Without a collector nothing of OpenTelemetry's is loaded, without usage no database. Of variables that can't be used,
    and what is used instead, the log tells, as the SDK's does.

    Raises:
        ValueError: an OTEL_* variable can't be used; the words name it.
    """
    settings = config.settings
    otlp = read(settings.telemetry, environ)
    for wrong in otlp.told:
        log.warning("%s", wrong)
    usage = SpoolRecorder(settings.usage, settings.prices, folder=config.folder) if settings.usage.enabled else None
    exporting = _exporting(otlp)
    counting = _measuring(config, otlp, exporting, usage) if otlp.metrics or exporting or "telemetry" in settings.model_fields_set else None
    parts: list[Recorder] = [console, *(part for part in (exporting, _pushed(otlp, counting, exporting), usage) if part is not None)]
    return Telling(Fanout(*parts) if len(parts) > 1 else console, otlp, exporting, counting, usage)


def _exporting(otlp: OtlpConfig) -> Exporting | None:
    from ..exporters.otlp.export import exporting

    return exporting(otlp)


def _measuring(config: Config, otlp: OtlpConfig, exporting: Exporting | None, usage: SpoolRecorder | None) -> Measuring:
    sources = Sources(
        dropped=(lambda: {(str(name), str(why)): count for (name, why), count in exporting.counts.dropped.items()}) if exporting else None,
        rows=(lambda: {"written": usage.state.moved, "dropped": usage.spooling.lost + usage.state.broken}) if usage else None,
    )
    costs = Costs(config.settings.prices)
    return measuring(models_of(config), otlp.exemplary, names=config.settings.telemetry.genai_metrics, sources=sources, cost=costs)


def _pushed(otlp: OtlpConfig, counting: Measuring | None, exporting: Exporting | None) -> Recorder | None:
    """Who hears of calls to count them: the one that also sends what was counted, where metrics go somewhere."""
    if counting is None or not otlp.metrics:
        return counting
    from ..exporters.otlp.metrics import pushing

    return pushing(otlp, counting, exporting.counts if exporting else None)


def models_of(config: Config) -> ModelNames:
    """The names by which metrics know models: the configuration's, so that a caller can't make new ones."""
    models = config.settings.models
    targets = {target.model for model in models.values() for target in model.targets if target.model}
    return ModelNames({*targets, *(name for name in models if "*" not in name)}, [name for name in models if "*" in name])
