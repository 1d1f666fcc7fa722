"""A finished call → metrics: `gen_ai.*` as its providers' client and as its caller's server, `http.*`, and `spangate.*`.

What stands on a metric is bounded: operations, providers, errors and routes of ours, models by model_names.py. Never a key, a user, an
id, or anything else that a caller may choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ...call.notes import Told
from ...call.seen import Attempt, Seen
from ...call.usage import believed
from .. import semconv
from ..semconv import GenaiNames
from ..traces import decisions, outcomes
from ..traces.attempts import operation_of
from ..traces.spans import ended_at
from .batches import Mark
from .bounds import BoundSeries
from .families import AttemptKind, AttemptSeries, CallKind, CallSeries, Families
from .metrics import Labels, Metrics
from .model_names import ModelNames

Cost: TypeAlias = Callable[[Seen, Attempt], tuple[float, str] | None]
"""What an attempt cost, in US dollars, and how that is known; None: nobody knows."""

KEPT: Final = 4096  # kinds of attempts, and of calls
ENDED_WELL: Final = ("completed", "cut")

_INFINITE: Final = float("inf")


class Measures:
    """`measure` each call once. `models` may be replaced at any time. `exemplars` says whether a call's spans are to be found."""

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
        self._families = Families(metrics, names)
        self._bounds = BoundSeries(metrics)
        self._exemplars = exemplars
        self._cost = cost
        self._attempts: dict[tuple[Any, ...], AttemptSeries] = {}
        self._calls: dict[tuple[Any, ...], CallSeries] = {}

    def measure(self, seen: Seen) -> None:
        route = self.models.route(seen.model) if seen.op else ""
        error = outcomes.call_error(seen)
        at = ended_at(seen) if self._exemplars(seen) else 0
        mark = (seen.trace_id, seen.span_id, at) if at else None
        elapsed = _elapsed(seen.started, seen.ended)
        self._measure_call(seen, route, error, elapsed, mark)
        served: AttemptSeries | None = None
        before: Attempt | None = None
        for attempt in seen.attempts:
            series = self._measure_attempt(seen, attempt, (seen.trace_id, attempt.span_id, at) if at else None)
            if served is None or attempt.outcome == "success":
                served = series
            if before is not None and attempt.reason == "fallback":
                labels = (semconv.ROUTE_NAME, route), (semconv.FALLBACK_REASON, outcomes.fallback(before))
                self._families.fallbacks.series(labels).add(1, mark)
            before = attempt
        if served is not None:
            _measure_answer(seen, served, error, elapsed, mark)
        for note in seen.notes if len(seen.notes) else ():
            if note.name == "stream.malformed":
                self._families.malformed.series(((semconv.DEPLOYMENT_NAME, seen.provider),)).add(note.figures["events"], mark)
            self._bounds.tell(note, mark)
            self._decided(note, mark)

    def _measure_call(self, seen: Seen, route: str, error: str, elapsed: float, mark: Mark | None) -> None:
        op = seen.op
        method = seen.method if seen.method in semconv.METHODS else semconv.OTHER
        refusal, path = outcomes.refusal(seen), seen.path if op else ""
        kind = (method, seen.scheme, seen.http_version, op, path, seen.status, error, route, seen.outcome or "", refusal, seen.team)
        series = self._calls.get(kind)
        if series is None:
            series = CallSeries(self._families, CallKind(*kind))
            _keep(self._calls, kind, series)
        series.tell((elapsed, overhead(seen), mark))

    def _measure_attempt(self, seen: Seen, attempt: Attempt, mark: Mark | None) -> AttemptSeries:
        models, usage, operation = self.models, attempt.usage, operation_of(seen, attempt)
        model, streamed = models.named(attempt.target_model), attempt.stream and attempt.first_content > 0
        input = output = cached = cache_write = reasoning = 0
        knows_input = knows_output = False
        if usage is not None and usage.source != "none":
            input, output = believed(usage.input), believed(usage.output)
            cached, cache_write = usage.cached and believed(usage.cached), usage.cache_write and believed(usage.cache_write)
            reasoning = usage.reasoning and believed(usage.reasoning)
            knows_input = usage.unknown != "input"
            knows_output = usage.unknown != "output" and (output > 0 or operation != "embeddings")
        kind = (
            operation, attempt.system or attempt.provider, attempt.provider, model, models.answered(model, attempt.answered_model),
            attempt.address, attempt.port, attempt.status, outcomes.attempt_error(attempt), attempt.outcome or "cancelled", streamed,
            knows_input, knows_output, cached > 0, cache_write > 0, reasoning > 0, seen.team,
        )  # fmt: skip
        series = self._attempts.get(kind)
        if series is None:
            series = AttemptSeries(self._families, AttemptKind(*kind))
            _keep(self._attempts, kind, series)
        duration, first = _elapsed(attempt.started, attempt.ended or seen.ended), _elapsed(attempt.started, attempt.first_content)
        series.tell((duration, first, input, output, cached, cache_write, reasoning, mark))
        if self._cost is not None:
            found = self._cost(seen, attempt)
            if found is not None and 0 <= found[0] < _INFINITE:
                series.cost(found[1]).tell((found[0], mark))
        return series

    def _decided(self, note: Told, mark: Mark | None) -> None:
        verdict = decisions.verdict_of(note)
        if not verdict:
            return
        labels: Labels = (
            (semconv.POLICY_NAME, note.name.partition(".")[0]),
            (semconv.POLICY_STAGE, _one_of(note.figures.get("stage", semconv.STAGES[0]), semconv.STAGES)),
            (semconv.POLICY_VERDICT, _one_of(verdict, semconv.VERDICTS)),
            (semconv.POLICY_ACTION, _one_of(decisions.action_of(note), semconv.ACTIONS)),
            (semconv.POLICY_MODE, _one_of(note.figures.get("mode", semconv.MODES[0]), semconv.MODES)),
        )
        self._families.decisions.series(labels).add(1, mark)


def overhead(seen: Seen) -> float:
    """Seconds of a call during which no attempt ran."""
    attempts, total, until = seen.attempts, seen.ended - seen.started, seen.started
    for attempt in attempts if len(attempts) < 2 else sorted(attempts, key=lambda each: each.started):
        start, ended = attempt.started, attempt.ended or seen.ended
        if ended > until:
            total -= ended - start if start > until else ended - until
            until = ended
    return total if total > 0 else 0.0


def _measure_answer(seen: Seen, served: AttemptSeries, error: str, elapsed: float, mark: Mark | None) -> None:
    """What the caller saw of its provider, waiting and failed attempts included."""
    if not (seen.stream and seen.first_content > 0 and seen.outcome in ENDED_WELL):
        served.answer(error, False, False).tell((elapsed, 0.0, 0.0, mark))
        return
    first = min(_elapsed(seen.started, seen.first_content), elapsed)
    tokens = believed(seen.usage.output) if seen.usage is not None else 0
    per_token = (elapsed - first) / (tokens - 1) if tokens > 1 else 0.0
    served.answer(error, True, tokens > 1).tell((elapsed, first, per_token, mark))


def _elapsed(start: float, end: float) -> float:
    """Seconds; none where a clock went back."""
    return end - start if end > start else 0.0


def _one_of(said: object, known: tuple[str, ...]) -> str:
    return said if isinstance(said, str) and said in known else semconv.OTHER


def _keep(memo: dict[Any, Any], key: Any, series: object) -> None:
    """The series themselves are bounded by their instruments; what a full memo forgets is looked up again."""
    if len(memo) >= KEPT:
        memo.clear()
    memo[key] = series
