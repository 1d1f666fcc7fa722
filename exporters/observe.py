"""The observing layers. `Around` is outermost and sees a call's answer as the caller gets it; `Attempt` is innermost and sees one
request to a provider. They write into the call's Seen; no policy knows of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..call import seen as record
from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.errors import ProviderFault, SpangateError, UpstreamError
from ..call.events import Closed, Event, Opened


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
    """One request sent upstream, however it ends: an attempt of the call's Seen."""

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        seen, target = call.seen, call.target
        assert target is not None
        attempt = seen.attempt(target.provider, target.model)
        seen.provider, seen.target_model = target.provider, target.model
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    if isinstance(event, Opened):
                        attempt.status, attempt.upstream_request_id = 200, event.request_id
                    elif isinstance(event, Closed):
                        attempt.usage, attempt.outcome = event.usage, "success"
                    yield event
        except ProviderFault as fault:
            failed(attempt, fault)
            raise
        except asyncio.CancelledError as cancelled:
            for reason in cancelled.args:  # a time limit of ours says why; a caller who left says nothing
                if isinstance(reason, ProviderFault):
                    failed(attempt, reason)
            raise
        finally:
            attempt.ended = seen.clock.mono()
            if attempt.outcome is None:
                attempt.outcome = "cancelled"


def failed(attempt: record.Attempt, fault: SpangateError) -> None:
    """The attempt ended with `fault`."""
    attempt.outcome = "error"
    attempt.error_type = fault.code
    if isinstance(fault, UpstreamError) and fault.status is not None:
        attempt.status, attempt.error_type = fault.status, str(fault.status)
