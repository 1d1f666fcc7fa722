"""The instruments that calls are measured by, and which of their series belong together: those of an attempt of one kind, those of a call
of one kind. Whoever measures looks them up once and keeps them, since a call touches twenty, and tells them of many calls at once.

A series is made when it has something to say: a histogram is sixteen lines on a page. Only the counters of v0.1.0's tokens begin at 0,
since attempts that failed belong there too.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .. import semconv
from ..semconv import GenaiNames
from .batches import Batch, Taking
from .metrics import Buckets, Labels, Metrics, Sum, Table

INFERENCE: Final = frozenset({"chat", "text_completion", "generate_content"})
"""Operations that the names of v0.1.0 are for. Others keep those before it."""
PROTOCOLS: Final = frozenset({"1.0", "1.1", "2", "3"})


class Families:
    """All instruments of calls. `names`: which of the `gen_ai.client` ones are told of."""

    def __init__(self, metrics: Metrics, names: GenaiNames) -> None:
        self.names = names
        self.unsettled = metrics.unsettled
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


class CallSeries(Batch):
    """Of calls of one kind: how long they took, and how much of it no attempt ran."""

    __slots__ = ()

    def __init__(self, all: Families, kind: CallKind) -> None:
        http = all.http_server.series(
            _labels(
                (semconv.HTTP_REQUEST_METHOD, kind.method),
                (semconv.URL_SCHEME, kind.scheme if kind.scheme in semconv.PORTS else semconv.OTHER),
                (semconv.NETWORK_PROTOCOL_VERSION, kind.protocol if kind.protocol in PROTOCOLS else ""),
                (semconv.HTTP_ROUTE, kind.path if kind.op else ""),
                (semconv.HTTP_RESPONSE_STATUS_CODE, kind.status),
                (semconv.ERROR_TYPE, kind.error),
            )
        )
        if not kind.op:
            super().__init__(all.unsettled, ((http,), ()))
            return
        api = (semconv.API, semconv.APIS.get(kind.op, kind.op))
        ended = (semconv.OUTCOME, kind.outcome), (semconv.REFUSAL_REASON, kind.refusal)
        overhead = all.overhead.series((api,))
        requests = all.requests.series(_labels(api, (semconv.TEAM, kind.team), (semconv.ROUTE_NAME, kind.route), *ended))
        super().__init__(all.unsettled, ((http,), (overhead,)), (requests,))


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


class AttemptSeries(Batch):
    """Of attempts of one kind: how long they took, when their first chunk came, and their tokens: of input, of output, cached, written
    to a cache, of reasoning."""

    __slots__ = ("_all", "_answers", "_asked", "_base", "_costs")

    def __init__(self, all: Families, kind: AttemptKind) -> None:
        asked = _labels((semconv.GEN_AI_PROVIDER_NAME, kind.system), (semconv.GEN_AI_REQUEST_MODEL, kind.model))
        answered = _labels((semconv.GEN_AI_RESPONSE_MODEL, kind.answered))
        server = _labels((semconv.SERVER_ADDRESS, kind.address), (semconv.SERVER_PORT, kind.port if kind.address else 0))
        failed = _labels((semconv.ERROR_TYPE, kind.error))
        tried = _labels((semconv.DEPLOYMENT_NAME, kind.provider), (semconv.ATTEMPT_OUTCOME, kind.outcome))
        self._asked: Labels = (*_labels((semconv.TEAM, kind.team)), *asked)
        self._base = base = ((semconv.GEN_AI_OPERATION_NAME, kind.operation), *asked, *answered, *server)
        self._all = all
        self._answers: dict[tuple[str, bool, bool], AnswerSeries] = {}
        self._costs: dict[str, CostSeries] = {}
        told = _Told(all, kind.operation, self._asked, base)
        attempts = all.attempts.series(asked + tried + failed)
        http = (all.http_client.series(_exchange(server, kind.status, kind.error)),) if server else ()
        times = (*told.times(all.old_duration, all.duration, base + failed), *http)
        firsts = told.times(all.old_first, all.first, base) if kind.streamed else ()
        input, output = told.count(all.input), told.count(all.output)
        inputs = (*told.tokens(all.inputs, failed, semconv.TOKEN_INPUT), *input) if kind.input else ()
        outputs = (*told.tokens(all.outputs, failed, semconv.TOKEN_OUTPUT), *output) if kind.output else ()
        cached, cache_write, reasoning = semconv.TOKEN_DETAILS
        details = (
            told.detail(all.cached, cached) if kind.cached else (),
            told.detail(all.cache_write, cache_write) if kind.cache_write else (),
            told.detail(all.reasoning, reasoning) if kind.reasoning else (),
        )
        super().__init__(all.unsettled, (times, firsts, inputs, outputs, *details), (attempts,))

    def answer(self, error: str, first: bool, tokens: bool) -> AnswerSeries:
        """Of the calls that are answered by such attempts. `first` and `tokens`: when those came is known."""
        found = self._answers.get((error, first, tokens))
        if found is None:
            found = self._answers[error, first, tokens] = AnswerSeries(self._all, self._base, error, first=first, tokens=tokens)
        return found

    def cost(self, source: str) -> CostSeries:
        """Of what such attempts cost, as far as it is known in that way."""
        found = self._costs.get(source)
        if found is None:
            found = self._costs[source] = CostSeries(self._all, self._asked, self._base, source)
        return found


class _Told:
    """By which names an operation's attempts are told of."""

    def __init__(self, all: Families, operation: str, asked: Labels, base: Labels) -> None:
        self._all = all
        self._asked = asked
        self._base = base
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

    def tokens(self, new: Table[Buckets], failed: Labels, type: str) -> tuple[Taking, ...]:
        """In or out: how many an attempt used, and how many a team did."""
        old, typed = self._all.old_tokens, (*self._base, (semconv.GEN_AI_TOKEN_TYPE, type))
        older = (old.series(typed),) if self._older else ()
        newer = (new.series(self._base + failed),) if self._newer else ()
        return (*older, *newer, self.by_team(type))

    def count(self, new: Table[Sum]) -> tuple[Sum, ...]:
        return (new.series((*self._base, (semconv.GEN_AI_TOKEN_MODALITY, semconv.MODALITY))),) if self._newer else ()

    def detail(self, new: Table[Sum], type: str) -> tuple[Sum, ...]:
        return (*self.count(new), self.by_team(type))

    def by_team(self, type: str) -> Sum:
        return self._all.tokens.series((*self._asked, (semconv.GEN_AI_TOKEN_TYPE, type)))


class AnswerSeries(Batch):
    """Of calls that providers answered, as their callers saw it: how long that took, until the first content, and for each token more."""

    __slots__ = ()

    def __init__(self, all: Families, base: Labels, error: str, *, first: bool, tokens: bool) -> None:
        duration = all.answers.series(base + _labels((semconv.ERROR_TYPE, error)))
        firsts = (all.first_token.series(base),) if first else ()
        per_token = (all.per_token.series(base),) if tokens else ()
        super().__init__(all.unsettled, ((duration,), firsts, per_token))


class CostSeries(Batch):
    """Of attempts whose cost is known, each in the same way: US dollars."""

    __slots__ = ()

    def __init__(self, all: Families, asked: Labels, base: Labels, source: str) -> None:
        dollars = all.cost.series((*asked, (semconv.COST_SOURCE, source))), all.usage_cost.series(base)
        super().__init__(all.unsettled, (dollars,))


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
