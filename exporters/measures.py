"""A finished call → metrics: `gen_ai.*` as its providers' client and as its caller's server, `http.*`, and `spangate.*`.

What stands on a metric is bounded: operations, providers, errors and routes of ours, models by model_names.py. Never a key, a user, an
id, or anything else that a caller may choose.

The series of an attempt and of a call are looked up once and kept together, by what tells them apart, since a call touches twenty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from ..call.events import Usage
from ..call.seen import Attempt, Seen
from . import decisions, outcomes, semconv
from .attempts import operation_of
from .metrics import Buckets, Labels, Mark, Metrics, Sum, Table
from .model_names import ModelNames
from .spans import ended_at

GenaiNames: TypeAlias = Literal["legacy", "v0_1", "both"]
Cost: TypeAlias = Callable[[Seen, Attempt], tuple[float, str] | None]
"""What an attempt cost, in US dollars, and how that is known; None: nobody knows."""

KEPT: Final = 4096  # attempts and calls of different kinds
MOST_TOKENS: Final = 2**31  # of one answer: no figure beyond is believed
VERSIONS: Final = frozenset({"1.0", "1.1", "2", "3"})
ENDED_WELL: Final = ("completed", "cut")


class _Call:
    """The series of a call of one kind."""

    __slots__ = ("http", "overhead", "requests")
    http: Buckets
    requests: Sum | None
    overhead: Buckets | None


class _Server:
    """The series of a call that its providers answered, as its caller saw it."""

    __slots__ = ("duration", "first", "per_token")
    duration: Buckets
    first: Buckets | None
    per_token: Buckets | None


class _Attempt:
    """The series of an attempt of one kind. `inputs` and `outputs` count tokens of one request, the others all of them."""

    __slots__ = ("attempts", "base", "durations", "error", "firsts", "http", "input", "inputs", "legacy", "newer", "output", "outputs", "served")
    base: Labels
    error: str
    legacy: bool
    newer: bool
    attempts: Sum
    durations: list[Buckets]
    firsts: list[Buckets] | None
    http: Buckets | None
    input: Sum | None
    output: Sum | None
    inputs: list[Buckets] | None
    outputs: list[Buckets] | None
    served: dict[str, _Server]


class Measures:
    """`measure` each call once. `models` may be another at any time. `exemplars` says whether a call's spans are to be found."""

    def __init__(
        self,
        metrics: Metrics,
        models: ModelNames,
        *,
        names: GenaiNames = "both",
        exemplars: Callable[[Seen], bool] = lambda seen: seen.sampled,
        cost: Cost | None = None,
    ) -> None:
        self.models = models
        self._names = names
        self._exemplars = exemplars
        self._cost = cost
        self._instruments = _instruments(metrics)
        self._attempts: dict[Any, _Attempt] = {}
        self._calls: dict[Any, _Call] = {}

    def measure(self, seen: Seen) -> None:
        route = self.models.route(seen.model) if seen.op else ""
        at = ended_at(seen) if self._exemplars(seen) else 0
        mark = (seen.trace_id, seen.span_id, at) if at else None
        self._measure_call(seen, route, mark)
        served: _Attempt | None = None
        for attempt in seen.attempts:
            series = self._measure_attempt(seen, attempt, (seen.trace_id, attempt.span_id, at) if at else None)
            if attempt.reason == "fallback":
                self._fallback(seen, attempt, route)
            if served is None or attempt.outcome == "success":
                served = series
        if served is not None:
            self._measure_answer(seen, served, mark)
        if len(seen.notes):
            self._decisions(seen)

    # ---- the call

    def _measure_call(self, seen: Seen, route: str, mark: Mark | None) -> None:
        method = seen.method if seen.method in semconv.METHODS else semconv.OTHER
        error, reason = outcomes.call_error(seen), outcomes.refusal(seen)
        key = (method, seen.scheme, seen.http_version, seen.op, seen.status, seen.outcome, error, reason, route)
        series = self._calls.get(key)
        if series is None:
            series = self._new_call(seen, method, error, reason, route)
            _keep(self._calls, key, series)
        series.http.record(max(seen.duration, 0.0), mark)
        if series.requests is not None:
            series.requests.add(1, mark)
        if series.overhead is not None:
            series.overhead.record(overhead(seen), mark)
