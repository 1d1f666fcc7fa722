"""The instruments that calls are measured by, and which series of them belong together: those of an attempt of one kind, and those of a
call of one kind. They are looked up once and kept by whoever measures, since a call touches twenty.

A series is made when it has something to say: a histogram is sixteen lines on a page. Only tokens of the conventions v0.1.0 are counted
from 0 on, also where an attempt failed, as those want it.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from . import semconv
from .metrics import Buckets, Labels, Metrics, Sum

GenaiNames: TypeAlias = Literal["legacy", "v0_1", "both"]

INFERENCE: Final = frozenset({"chat", "text_completion", "generate_content"})
"""Operations that the names of v0.1.0 are for. Others keep the old ones."""
VERSIONS: Final = frozenset({"1.0", "1.1", "2", "3"})


class Families:
    """All instruments of calls. `names`: which of the `gen_ai.client` ones are told."""

    def __init__(self, metrics: Metrics, names: GenaiNames) -> None:
        self.names = names
        self.requests = metrics.counter(semconv.REQUESTS)
        self.overhead = metrics.histogram(semconv.REQUEST_OVERHEAD)
        self.attempts = metrics.counter(semconv.ATTEMPTS)
        self.fallbacks = metrics.counter(semconv.FALLBACK_COUNT)
        self.decisions = metrics.counter(semconv.POLICY_DECISIONS)
        self.cost = metrics.counter(semconv.COST)
        self.old_duration = metrics.histogram(semconv.CLIENT_OPERATION_DURATION)
        self.old_first = metrics.histogram(semconv.CLIENT_OPERATION_FIRST_CHUNK)
        self.old_tokens = metrics.histogram(semconv.CLIENT_TOKEN_USAGE)
        self.duration = metrics.histogram(semconv.INFERENCE_DURATION)
        self.first = metrics.histogram(semconv.INFERENCE_FIRST_CHUNK)
        self.inputs = metrics.histogram(semconv.INFERENCE_OPERATION_INPUT)
        self.outputs = metrics.histogram(semconv.INFERENCE_OPERATION_OUTPUT)
        self.input = metrics.counter(semconv.INFERENCE_INPUT)
        self.output = metrics.counter(semconv.INFERENCE_OUTPUT)
        self.cached = metrics.counter(semconv.INFERENCE_CACHE_READ)
        self.cache_write = metrics.counter(semconv.INFERENCE_CACHE_WRITE)
        self.reasoning = metrics.counter(semconv.INFERENCE_REASONING)
        self.usage_cost = metrics.histogram(semconv.USAGE_COST)
        self.answers = metrics.histogram(semconv.SERVER_REQUEST_DURATION)
        self.first_token = metrics.histogram(semconv.SERVER_FIRST_TOKEN)
        self.per_token = metrics.histogram(semconv.SERVER_PER_TOKEN)
        self.http_server = metrics.histogram(semconv.HTTP_SERVER_DURATION)
        self.http_client = metrics.histogram(semconv.HTTP_CLIENT_DURATION)


class CallSeries:
    """Of a call: `http` always, the others if it is one of a model's."""

    __slots__ = ("http", "overhead", "requests")

    def __init__(self, all: Families, http: Labels, call: Labels) -> None:
        self.http = all.http_server.series(http)
        self.requests = all.requests.series(call) if call else None
        self.overhead = all.overhead.series(call[:1]) if call else None


class AttemptSeries:
    """Of an attempt. `base`: who was asked for what; `error`: how it failed; `http`: of its HTTP exchange, empty where none is known."""

    __slots__ = ("_all", "_answers", "_base", "_durations", "_error", "_firsts", "_input", "_newer", "_old", "_output", "attempts", "http")

    def __init__(self, all: Families, base: Labels, error: str, attempt: Labels, http: Labels) -> None:
        self._all = all
        self._base = base
        self._error = _failed(error)
        inference = base[0][1] in INFERENCE
        self._old = all.names != "v0_1" or not inference
        self._newer = all.names != "legacy" and inference
        self.attempts = all.attempts.series(attempt)
        self.http = all.http_client.series(http) if http else None
        self._durations = self._both(all.old_duration, all.duration, base + self._error)
        self._firsts: list[Buckets] | None = None
        self._input = Tokens(self, self._counter(all.input), semconv.TOKEN_INPUT)
        self._output = Tokens(self, self._counter(all.output), semconv.TOKEN_OUTPUT)
        self._answers: dict[str, AnswerSeries] = {}
