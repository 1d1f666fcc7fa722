"""Figures that are kept elsewhere, and that metrics only ask for: how many streams run, what was lost, whether a reload failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .. import semconv
from ..semconv import Instrument
from .metrics import Labels, Metrics


class BudgetFigures(NamedTuple):
    """How a budget stands. `scope`: what it is per; `whose`: a name of the configuration."""

    name: str
    scope: str
    whose: str
    window: str
    unit: str
    limit: float
    used: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Each is called in a thread whenever somebody looks, and says nothing where it is None.

    `streams`: those under way, by op. `resends`: requests sent again, ever. `rows`: calls by what became of their row of usage,
    `written` or `dropped`. `dropped`: items of telemetry that were lost, by signal and reason. `reload_failed`: the file on disk is not
    the one in use, which was loaded at `loaded`, in Unix time. `budgets`: those of organisations, teams, models and providers.
    `estimates`: tokens by what they are, `input` or `output`, and what they were: `estimated`, `used`, or `beyond` the estimate.
    `state_unavailable`: the shared counters can't be used, or some of them. `state_lost`: calls of whose end they don't know. `refused`:
    connections that were shut as no files were left.
    """

    streams: Callable[[], Mapping[str, int]] | None = None
    resends: Callable[[], int] | None = None
    rows: Callable[[], Mapping[str, int]] | None = None
    dropped: Callable[[], Mapping[tuple[str, str], int]] | None = None
    reload_failed: Callable[[], bool] | None = None
    loaded: Callable[[], float] | None = None
    budgets: Callable[[], Iterable[BudgetFigures]] | None = None
    estimates: Callable[[], Mapping[tuple[str, str], int]] | None = None
    state_unavailable: Callable[[], bool] | None = None
    state_lost: Callable[[], int] | None = None
    refused: Callable[[], int] | None = None


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
    if (unavailable := sources.state_unavailable) is not None:
        metrics.observed(semconv.STATE_UNAVAILABLE, lambda: [((), int(unavailable()))])
    if (lost := sources.state_lost) is not None:
        metrics.observed(semconv.STATE_LOST, lambda: [((), lost())])
    if (refused := sources.refused) is not None:
        metrics.observed(semconv.CONNECTIONS_REFUSED, lambda: [((), refused())])
    if (estimates := sources.estimates) is not None:
        metrics.observed(semconv.ESTIMATED_TOKENS, lambda: _estimated(estimates()))
    if (budgets := sources.budgets) is not None:
        read: Mapping[Instrument, Callable[[BudgetFigures], float]] = {
            semconv.BUDGET_LIMIT: lambda each: each.limit,
            semconv.BUDGET_USED: lambda each: each.used,
            semconv.BUDGET_RESERVED: lambda each: each.reserved,
            semconv.BUDGET_UTILIZATION: lambda each: (each.used + each.reserved) / each.limit if each.limit else 1.0,
        }
        for instrument, value in read.items():
            metrics.observed(instrument, partial(_budgets, budgets, value))


def _budgets(budgets: Callable[[], Iterable[BudgetFigures]], value: Callable[[BudgetFigures], float]) -> Iterable[tuple[Labels, float]]:
    return [(_budget_labels(each), value(each)) for each in budgets()]


def _budget_labels(each: BudgetFigures) -> Labels:
    labels = (semconv.BUDGET_NAME, each.name), (semconv.BUDGET_SCOPE, each.scope), (semconv.BUDGET_WINDOW, each.window)
    whose = {"team": semconv.TEAM, "model": semconv.ROUTE_NAME, "provider": semconv.DEPLOYMENT_NAME}.get(each.scope)
    return (*labels, (semconv.BUDGET_UNIT, each.unit), *(((whose, each.whose),) if whose and each.whose else ()))


def _estimated(tokens: Mapping[tuple[str, str], int]) -> Iterable[tuple[Labels, int]]:
    return [(((semconv.GEN_AI_TOKEN_TYPE, type), (semconv.ESTIMATE_KIND, kind)), count) for (type, kind), count in tokens.items()]


def _by(name: str, counts: Mapping[str, int]) -> Iterable[tuple[Labels, int]]:
    return [(((name, each),), count) for each, count in list(counts.items())]


def _lost(counts: Mapping[tuple[str, str], int]) -> Iterable[tuple[Labels, int]]:
    return [(((semconv.SIGNAL, signal), (semconv.REASON, reason)), count) for (signal, reason), count in list(counts.items())]
