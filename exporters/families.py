"""The instruments that calls are measured by, and which of their series belong together: those of an attempt of one kind, those of a call
of one kind. Whoever measures looks them up once and keeps them, since a call touches twenty.

A series is made when it has something to say: a histogram is sixteen lines on a page. Only the counters of v0.1.0's tokens begin at 0,
since attempts that failed belong there too.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from . import semconv
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
    """Of a call. `route` is the entry of the configuration that it went by; without an `op` it asked for no model, and is HTTP alone."""

    __slots__ = ("http", "overhead", "requests")

    def __init__(
        self,
        all: Families,
        method: str,
        scheme: str,
        protocol: str,
        op: str,
        path: str,
        status: int,
        error: str,
        route: str,
        outcome: str,
        refusal: str,
    ) -> None:
        self.http = all.http_server.series(
            _labels(
                (semconv.HTTP_REQUEST_METHOD, method),
                (semconv.URL_SCHEME, scheme if scheme in semconv.PORTS else semconv.OTHER),
                (semconv.NETWORK_PROTOCOL_VERSION, protocol if protocol in PROTOCOLS else ""),
                (semconv.HTTP_ROUTE, path if op else ""),
                (semconv.HTTP_RESPONSE_STATUS_CODE, status),
                (semconv.ERROR_TYPE, error),
            )
        )
        self.requests: Sum | None = None
        self.overhead: Buckets | None = None
        if op:
            api = (semconv.API, semconv.APIS.get(op, op))
            self.overhead = all.overhead.series((api,))
            self.requests = all.requests.series(
                _labels(api, (semconv.ROUTE_NAME, route), (semconv.OUTCOME, outcome), (semconv.REFUSAL_REASON, refusal))
            )


class AttemptSeries:
    """Of an attempt: who was asked for what, how it ended, and what is known of it: its first chunk (`streamed`), its tokens (the rest)."""

    __slots__ = (
        "_answers", "_base", "attempts", "cache_write", "cached", "durations", "firsts", "http", "input", "inputs", "output", "outputs",
        "reasoning",
    )  # fmt: skip

    def __init__(
        self,
        all: Families,
        operation: str,
        system: str,
        provider: str,
        model: str,
        answered: str,
        address: str,
        port: int,
        status: int | None,
        error: str,
        outcome: str,
        streamed: bool,
        input: bool,
        output: bool,
        cached: bool,
        cache_write: bool,
        reasoning: bool,
    ) -> None:
        asked = _labels((semconv.GEN_AI_PROVIDER_NAME, system), (semconv.GEN_AI_REQUEST_MODEL, model))
        server = _labels((semconv.SERVER_ADDRESS, address), (semconv.SERVER_PORT, port if address else 0))
        base = ((semconv.GEN_AI_OPERATION_NAME, operation), *asked, *_labels((semconv.GEN_AI_RESPONSE_MODEL, answered)), *server)
        failed = _labels((semconv.ERROR_TYPE, error))
        self._base = base
        self._answers: dict[tuple[str, bool], AnswerSeries] = {}
        self.attempts = all.attempts.series(
            asked + _labels((semconv.DEPLOYMENT_NAME, provider), (semconv.ATTEMPT_OUTCOME, outcome)) + failed
        )
        self.http = all.http_client.series(_exchange(server, status, error)) if server else None

        newer = all.names != "legacy" and operation in INFERENCE
        older = all.names != "v0_1" or operation not in INFERENCE
        counted = (*base, (semconv.GEN_AI_TOKEN_MODALITY, semconv.MODALITY))

        def both(old: Table[Buckets], new: Table[Buckets], labels: Labels, kind: Labels = ()) -> tuple[Buckets, ...]:
            return (*((old.series(base + (kind or labels)),) if older else ()), *((new.series(base + labels),) if newer else ()))

        def count(table: Table[Sum], known: bool) -> Sum | None:
            return table.series(counted) if known and newer else None

        self.durations = both(all.old_duration, all.duration, failed)
        self.firsts = both(all.old_first, all.first, ()) if streamed else ()
        self.inputs = both(all.old_tokens, all.inputs, failed, _token(semconv.TOKEN_INPUT)) if input else ()
        self.outputs = both(all.old_tokens, all.outputs, failed, _token(semconv.TOKEN_OUTPUT)) if output else ()
        self.input, self.output = count(all.input, True), count(all.output, True)
        self.cached, self.cache_write = count(all.cached, cached), count(all.cache_write, cache_write)
        self.reasoning = count(all.reasoning, reasoning)

    @property
    def base(self) -> Labels:
        """Who was asked for what, as `gen_ai` metrics say it."""
        return self._base

    def answer(self, all: Families, error: str, *, streamed: bool) -> AnswerSeries:
        """Of the calls that are answered by such an attempt. `streamed`: well, and the times of their tokens are known."""
        found = self._answers.get((error, streamed))
        if found is None:
            found = self._answers[error, streamed] = AnswerSeries(all, self._base, error, streamed=streamed)
        return found


class AnswerSeries:
    """Of a call that a provider answered, as its caller saw it."""

    __slots__ = ("duration", "first", "per_token")

    def __init__(self, all: Families, base: Labels, error: str, *, streamed: bool) -> None:
        self.duration = all.answers.series(base + _labels((semconv.ERROR_TYPE, error)))
        self.first = all.first_token.series(base) if streamed else None
        self.per_token = all.per_token.series(base) if streamed else None


def _labels(*pairs: tuple[str, str | int | None]) -> Labels:
    """Those that say something."""
    return tuple((name, value) for name, value in pairs if value)


def _token(kind: str) -> Labels:
    return ((semconv.GEN_AI_TOKEN_TYPE, kind),)


def _exchange(server: Labels, status: int | None, error: str) -> Labels:
    """An attempt as HTTP."""
    wrong = str(status) if status and status >= 400 else error
    return (
        (semconv.HTTP_REQUEST_METHOD, "POST"),
        *server,
        *_labels((semconv.HTTP_RESPONSE_STATUS_CODE, status), (semconv.ERROR_TYPE, wrong)),
    )
