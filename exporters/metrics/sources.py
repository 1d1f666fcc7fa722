"""Figures that are kept elsewhere, and that metrics only ask for: how many streams run, what was lost, whether a reload failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .. import semconv
from .metrics import Labels, Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Each is called in a thread whenever somebody looks, and says nothing where it is None.

    `streams`: those under way, by op. `resends`: requests sent again, ever. `rows`: calls by what became of their row of usage,
    `written` or `dropped`. `dropped`: items of telemetry that were lost, by signal and reason. `reload_failed`: the file on disk is not
    the one in use, which was loaded at `loaded`, in Unix time.
    """

    streams: Callable[[], Mapping[str, int]] | None = None
    resends: Callable[[], int] | None = None
    rows: Callable[[], Mapping[str, int]] | None = None
    dropped: Callable[[], Mapping[tuple[str, str], int]] | None = None
    reload_failed: Callable[[], bool] | None = None
    loaded: Callable[[], float] | None = None


def observe(metrics: Metrics, sources: Sources) -> None:
    """Make their instruments."""
    if (streams := sources.streams) is not None:
        metrics.observed(semconv.STREAMS_ACTIVE, lambda: _by(semconv.API, {semconv.APIS.get(op, op): n for op, n in streams().items()}))
    if (resends := sources.resends) is not None:
        metrics.observed(semconv.UPSTREAM_RESENDS, lambda: [((), resends())])
    if (rows := sources.rows) is not None:
        metrics.observed(semconv.USAGE_RECORDS, lambda: _by(semconv.RECORD_OUTCOME, rows()))
    if (dropped := sources.dropped) is not None:
        metrics.observed(semconv.TELEMETRY_DROPPED, lambda: _lost(dropped()))
    if (failed := sources.reload_failed) is not None:
        metrics.observed(semconv.CONFIG_RELOAD_FAILED, lambda: [((), int(failed()))])
    if (loaded := sources.loaded) is not None:
        metrics.observed(semconv.CONFIG_LOADED, lambda: [((), loaded())])


def _by(name: str, counts: Mapping[str, int]) -> Iterable[tuple[Labels, int]]:
    return [(((name, each),), count) for each, count in list(counts.items())]


def _lost(counts: Mapping[tuple[str, str], int]) -> Iterable[tuple[Labels, int]]:
    return [(((semconv.SIGNAL, signal), (semconv.REASON, reason)), count) for (signal, reason), count in list(counts.items())]
