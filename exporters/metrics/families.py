"""The instruments that calls are measured by, and which of their series belong together: those of an attempt of one kind, those of a call
of one kind. Whoever measures looks them up once and keeps them, since a call touches twenty.

A series is made when it has something to say: a histogram is sixteen lines on a page. Only the counters of v0.1.0's tokens begin at 0,
since attempts that failed belong there too.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from .. import semconv
from .metrics import Buckets, Labels, Metrics, Sum, Table

GenaiNames: TypeAlias = Literal["legacy", "v0_1", "both"]

INFERENCE: Final = frozenset({"chat", "text_completion", "generate_content"})
"""Operations that the names of v0.1.0 are for. Others keep those before it."""
PROTOCOLS: Final = frozenset({"1.0", "1.1", "2", "3"})


class Families:
    """All instruments of calls. `names`: which of the `gen_ai.client` ones are told of."""

    def __init__(self, metrics: Metrics, names: GenaiNames) -> None:
        self.names = names
        self.requests = metrics.counter(semconv.REQUESTS)
        self.overhead = metrics.histogram(semconv.REQUEST_OVERHEAD)
        self.attempts = metrics.counter(semconv.ATTEMPTS)
        self.tokens = metrics.counter(semconv.TEAM_TOKENS)
        self.fallbacks = metrics.counter(semconv.FALLBACK_COUNT)
        self.decisions = metrics.counter(semconv.POLICY_DECISIONS)
        self.malformed = metrics.counter(semconv.STREAM_MALFORMED)
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


class CallKind(msgspec.Struct, frozen=True):
    """What tells calls apart. `route` is the entry of the configuration that one went by; without an `op` it asked for no model, and is
    HTTP alone. `team` is one of the configuration's, or empty."""

    method: str
    scheme: str
    protocol: str
    op: str
    path: str
    status: int
    error: str
    route: str
    outcome: str
    refusal: str
    team: str = ""


class CallSeries:
    """Of calls of one kind."""

    __slots__ = ("http", "overhead", "requests")

    def __init__(self, all: Families, kind: CallKind) -> None:
        self.http = all.http_server.series(
            _labels(
                (semconv.HTTP_REQUEST_METHOD, kind.method),
                (semconv.URL_SCHEME, kind.scheme if kind.scheme in semconv.PORTS else semconv.OTHER),
                (semconv.NETWORK_PROTOCOL_VERSION, kind.protocol if kind.protocol in PROTOCOLS else ""),
                (semconv.HTTP_ROUTE, kind.path if kind.op else ""),
                (semconv.HTTP_RESPONSE_STATUS_CODE, kind.status),
                (semconv.ERROR_TYPE, kind.error),
            )
        )
        self.requests: Sum | None = None
        self.overhead: Buckets | None = None
        if kind.op:
            api = (semconv.API, semconv.APIS.get(kind.op, kind.op))
            ended = (semconv.OUTCOME, kind.outcome), (semconv.REFUSAL_REASON, kind.refusal)
            self.overhead = all.overhead.series((api,))
            self.requests = all.requests.series(_labels(api, (semconv.TEAM, kind.team), (semconv.ROUTE_NAME, kind.route), *ended))


class AttemptKind(msgspec.Struct, frozen=True):
    """What tells attempts apart: who was asked for what, how one ended, and what is known of it: its first chunk (`streamed`), its tokens
    (the rest). `team` is the caller's."""

    operation: str
    system: str
    provider: str
    model: str
    answered: str
    address: str
    port: int
    status: int | None
    error: str
    outcome: str
    streamed: bool
    input: bool = False
    output: bool = False
    cached: bool = False
    cache_write: bool = False
    reasoning: bool = False
    team: str = ""


class AttemptSeries:
    """Of attempts of one kind. `base`: who was asked for what, as `gen_ai` metrics say it."""

    __slots__ = (
        "_all", "_answers", "asked", "attempts", "base", "by_team", "cache_write", "cached", "durations", "firsts", "http", "input",
        "inputs", "output", "outputs", "reasoning",
    )  # fmt: skip

    def __init__(self, all: Families, kind: AttemptKind) -> None:
        asked = _labels((semconv.GEN_AI_PROVIDER_NAME, kind.system), (semconv.GEN_AI_REQUEST_MODEL, kind.model))
        answered = _labels((semconv.GEN_AI_RESPONSE_MODEL, kind.answered))
        server = _labels((semconv.SERVER_ADDRESS, kind.address), (semconv.SERVER_PORT, kind.port if kind.address else 0))
        failed = _labels((semconv.ERROR_TYPE, kind.error))
        tried = _labels((semconv.DEPLOYMENT_NAME, kind.provider), (semconv.ATTEMPT_OUTCOME, kind.outcome))
        self.asked: Labels = (*_labels((semconv.TEAM, kind.team)), *asked)
        self.base: Labels = ((semconv.GEN_AI_OPERATION_NAME, kind.operation), *asked, *answered, *server)
        self._all = all
        self._answers: dict[tuple[str, bool, bool], AnswerSeries] = {}
        self.attempts = all.attempts.series(asked + tried + failed)
        self.http = all.http_client.series(_exchange(server, kind.status, kind.error)) if server else None
        told = _Told(all, kind.operation)
        self.durations = told.times(all.old_duration, all.duration, self.base + failed)
        self.firsts = told.times(all.old_first, all.first, self.base) if kind.streamed else ()
        self.inputs = told.tokens(all.inputs, self.base, failed, semconv.TOKEN_INPUT) if kind.input else ()
        self.outputs = told.tokens(all.outputs, self.base, failed, semconv.TOKEN_OUTPUT) if kind.output else ()
        self.input, self.output = told.count(all.input, self.base), told.count(all.output, self.base)
        self.cached = told.count(all.cached, self.base) if kind.cached else None
        self.cache_write = told.count(all.cache_write, self.base) if kind.cache_write else None
        self.reasoning = told.count(all.reasoning, self.base) if kind.reasoning else None
        known = kind.input, kind.output, kind.cached, kind.cache_write, kind.reasoning
        types = semconv.TOKEN_INPUT, semconv.TOKEN_OUTPUT, *semconv.TOKEN_DETAILS
        self.by_team = tuple(
            all.tokens.series((*self.asked, (semconv.GEN_AI_TOKEN_TYPE, each))) if there else None
            for each, there in zip(types, known, strict=True)
        )

    def answer(self, error: str, *, first: bool, tokens: bool) -> AnswerSeries:
        """Of the calls that are answered by such attempts. `first` and `tokens`: when those came is known."""
        found = self._answers.get((error, first, tokens))
        if found is None:
            found = self._answers[error, first, tokens] = AnswerSeries(self._all, self.base, error, first=first, tokens=tokens)
        return found


class _Told:
    """By which names an operation's attempts are told of."""

    def __init__(self, all: Families, operation: str) -> None:
        self._all = all
        self._older = all.names != "v0_1" or operation not in INFERENCE
        self._newer = all.names != "legacy" and operation in INFERENCE

    def times(self, old: Table[Buckets], new: Table[Buckets], labels: Labels) -> tuple[Buckets, ...]:
        """The two names say the same here, so that one series is enough for both."""
        if not self._newer:
            return (old.series(labels),)
        if not self._older:
            return (new.series(labels),)
        series = old.series(labels)
        return (series,) if new.share(series) else (series, new.series(labels))

    def tokens(self, new: Table[Buckets], base: Labels, failed: Labels, kind: str) -> tuple[Buckets, ...]:
        old = self._all.old_tokens
        typed = (*base, (semconv.GEN_AI_TOKEN_TYPE, kind))
        return (*((old.series(typed),) if self._older else ()), *((new.series(base + failed),) if self._newer else ()))

    def count(self, new: Table[Sum], base: Labels) -> Sum | None:
        return new.series((*base, (semconv.GEN_AI_TOKEN_MODALITY, semconv.MODALITY))) if self._newer else None


class AnswerSeries:
    """Of calls that providers answered, as their callers saw it."""

    __slots__ = ("duration", "first", "per_token")

    def __init__(self, all: Families, base: Labels, error: str, *, first: bool, tokens: bool) -> None:
        self.duration = all.answers.series(base + _labels((semconv.ERROR_TYPE, error)))
        self.first = all.first_token.series(base) if first else None
        self.per_token = all.per_token.series(base) if tokens else None


def _labels(*pairs: tuple[str, str | int | None]) -> Labels:
    """Those that say something."""
    return tuple((name, value) for name, value in pairs if value)


def _exchange(server: Labels, status: int | None, error: str) -> Labels:
    """An attempt as HTTP."""
    wrong = str(status) if status and status >= 400 else error
    return (
        (semconv.HTTP_REQUEST_METHOD, "POST"),
        *server,
        *_labels((semconv.HTTP_RESPONSE_STATUS_CODE, status), (semconv.ERROR_TYPE, wrong)),
    )
