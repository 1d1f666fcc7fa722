"""The observing layers. `Around` is outermost and sees a call's answer as the caller gets it; `Attempt` is innermost and sees one
request to a provider. They write into the call's Seen; no policy knows of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..call import seen as record
from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.errors import ProviderFault, SpangateError, UpstreamError, may_have_worked
from ..call.events import Closed, Delta, Event, Opened
from ..call.seen import Place
from ..call.spoken import Sample, tokens_of
from ..call.usage import billed
from . import semconv
from .said import Said

# The parameters of a request that telemetry has names for. None of them is content.
PARAMETERS = frozenset(
    {
        "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "max_tokens", "max_completion_tokens", "n", "seed",
        "reasoning_effort", "service_tier", "encoding_format", "dimensions", "response_format",
    }
)  # fmt: skip
NOWHERE = Place()
SMALL = 256  # bytes of one: longer is a schema, not a parameter


class Counting(Protocol):
    """Whoever counts tokens of which a provider doesn't tell. What ends may not wait for it, so that it answers at once."""

    async def prepare(self, call: Call) -> None:
        """An answer has ended so, and may wait a moment until this can be counted."""

    def asked(self, call: Call) -> int:
        """Tokens of a request."""

    def said(self, model: str, samples: Sequence[Sample]) -> int | None:
        """Tokens of an answer; None: by rule of thumb."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the caller was answered: by whom, from when on, with which usage and end."""

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        seen = call.seen
        async with pulling(next(call)) as events:
            async for event in events:
                if isinstance(event, Opened):
                    seen.first_content = seen.clock.mono()
                    seen.answered_model = event.model
                elif isinstance(event, Closed):
                    seen.usage, seen.finish = event.usage, event.finish
                yield event


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request sent upstream, however it ends: an attempt of the call's Seen. `place` is the provider's; `detailed`: the request's
    parameters are kept too, for those who tell of them. `opening` hears of the call, and of what it holds, before its first request goes
    out. `counting` counts what isn't told, of calls under budgets or limits; of others it is estimated by rule of thumb, which takes no
    vocabulary into memory. A call's meter hears what each attempt is billed.
    """

    place: Place = NOWHERE
    detailed: bool = False
    opening: Callable[[record.Seen, Mapping[str, Any] | None], None] | None = None
    counting: Counting | None = None

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        seen, target = call.seen, call.target
        assert target is not None
        attempt = seen.attempt(target.provider, target.model)
        seen.provider, seen.target_model = target.provider, target.model
        self._describe(attempt, call)
        said = Said(several=call.head.n > 1)
        counting = self.counting if call.meter is not None else None
        worked = True
        if self.opening is not None and attempt.number == 1:
            self.opening(seen, None if call.meter is None else call.meter.holds)
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    if isinstance(event, Delta):
                        attempt.deltas += 1
                        said.hear(event.raw, sse=event.sse)
                    elif isinstance(event, Opened):
                        answered(attempt, event, seen)
                    else:
                        attempt.usage, attempt.finish, attempt.outcome = event.usage, event.finish, "success"
                        if counting is not None and (event.usage is None or event.usage.unknown):
                            await counting.prepare(call)
                    yield event
        except ProviderFault as fault:
            failed(attempt, fault)
            worked = may_have_worked(fault)
            raise
        except asyncio.CancelledError as cancelled:
            for reason in cancelled.args:  # a time limit of ours says why; a caller who left says nothing
                if isinstance(reason, ProviderFault):
                    failed(attempt, reason)
                    worked = may_have_worked(reason)
            raise
        finally:
            attempt.ended = seen.clock.mono()
            if attempt.outcome is None:
                attempt.outcome = "cancelled"
            _bill(attempt, call, said, counting, worked=worked or attempt.deltas > 0)
            if call.meter is not None:
                call.meter.after(call, attempt.billed, cut=attempt.finish == "length")

    def _describe(self, attempt: record.Attempt, call: Call) -> None:
        place = self.place
        attempt.op, attempt.stream = call.op, call.head.stream
        attempt.system, attempt.address, attempt.port = place.system, place.address, place.port
        attempt.url = place.urls.get(call.op, "")
        if self.detailed:
            body = call.body
            attempt.request = {name: body.get(name) for name in body.fields if name in PARAMETERS and body.size(name) <= SMALL}


def answered(attempt: record.Attempt, opened: Opened, seen: record.Seen) -> None:
    """The provider has begun to answer."""
    attempt.status, attempt.upstream_request_id = 200, opened.request_id
    attempt.first_content = seen.clock.mono()
    attempt.answered_model = opened.model
    if opened.envelope is not None:
        attempt.response_id = opened.envelope.id


def failed(attempt: record.Attempt, fault: SpangateError) -> None:
    """The attempt ended with `fault`."""
    attempt.outcome = "error"
    attempt.error_type = fault.code
    if isinstance(fault, UpstreamError):
        if fault.status is not None:
            attempt.status, attempt.error_type = fault.status, str(fault.status)
        if fault.own_code in semconv.PROVIDER_CODES:  # says more than a status; any other word is the provider's own
            attempt.error_type = str(fault.own_code)


def _bill(attempt: record.Attempt, call: Call, said: Said, counting: Counting | None, *, worked: bool) -> None:
    """What counts, of spend and of rows alike."""
    if attempt.usage is None or attempt.usage.unknown:
        attempt.answer_bytes, attempt.content_deltas = said.total()

    def asked() -> int:
        return tokens_of(call.seen.request_bytes) if counting is None else counting.asked(call)

    def answered() -> int:
        counted = counting.said(attempt.target_model, said.samples) if counting is not None else None
        return tokens_of(attempt.answer_bytes, attempt.content_deltas) if counted is None else max(counted, attempt.content_deltas)

    attempt.billed = billed(attempt.usage, asked, answered, worked=worked, vectors=call.op == "embeddings")
