"""A provider's own limits: what it tells of them (told_limits.py) slows us down before it refuses. A call that would be refused waits for
its turn, in order, if that comes soon; else it is refused here, and the provider isn't asked.

It stands around each attempt and within its time limit. A provider that tells nothing costs a look into an empty mapping.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import ceil
from typing import Any, ClassVar

from msgspec.structs import replace

from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.clock import SYSTEM, Clock
from ..call.errors import shortened
from ..call.events import Event
from .content import after_look, unseen
from .gauges import LONGEST, Amount
from .refusals import TargetRefused, when
from .tokens import Tokens
from .turns import AGAIN, Kept, Line, Lines, Turn

WAIT = 10.0  # seconds that a call waits at the most: clients that try again by themselves may as well do so
_WORDS = {"requests": "requests", "tokens": "tokens", "input_tokens": "input tokens", "output_tokens": "output tokens"}


class ProviderLimits:
    """`provider` is its name in the configuration, `lines` what it has told so far."""

    stage: ClassVar[int] = 85

    def __init__(self, provider: str, lines: Lines, tokens: Tokens, *, clock: Clock = SYSTEM, wait: float = WAIT) -> None:
        self._provider = provider
        self._lines = lines
        self._tokens = tokens
        self._clock = clock
        self._wait = wait

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        line = self._lines.of(call.target.model) if call.target is not None else None
        if line is None:
            return next(call)
        if line.by_tokens and unseen(call):
            return after_look(call, self, next)
        amount = self._amount(call) if line.by_tokens else Amount(1)
        if turn := line.take(amount):
            return next(replace(call, turn=turn))
        return self._in_turn(call, next, line, amount)

    def _amount(self, call: Call) -> Amount:
        """What a provider will most likely count for it: what goes in, and what usually comes out."""
        usual = self._tokens.output(call.caller.team, call.model) if call.op != "embeddings" else 0
        cap = call.head.output_cap
        return Amount(1, self._tokens.input(call).expected, usual * call.head.n if cap is None else min(usual, cap) * call.head.n)

    async def _in_turn(self, call: Call, next: Next, line: Line, amount: Amount) -> AsyncIterator[Event]:
        began = self._clock.mono()
        turn = await line.turn(amount, self._patience(call))
        waited = self._clock.mono() - began
        if waited > 0.001:
            place = {"rule": f"providers.{self._provider}", "scope": f"provider:{self._provider}"}
            call.notes.add("rate_limit.waited", **place, seconds=round(waited, 6), admitted=isinstance(turn, Turn))
        if isinstance(turn, Kept):
            raise self._refused(call, turn)
        async with pulling(next(replace(call, turn=turn))) as events:
            async for event in events:
                yield event

    def _patience(self, call: Call) -> float:
        """As long as the answer may take to begin."""
        now = asyncio.get_running_loop().time()
        return min([self._wait, *(by - now for by in (call.begun, call.deadline) if by is not None)])

    def _refused(self, call: Call, kept: Kept) -> TargetRefused:
        gauge, again = kept.gauge, str(min(max(ceil(kept.seconds), 1), ceil(LONGEST)))
        pause = gauge.name == AGAIN
        resets_at = when(self._clock.wall() + round(kept.seconds * 1e9))
        limit: dict[str, Any] = {
            "name": f"{self._provider}.{AGAIN if pause else gauge.unit}",
            "scope": f"provider:{self._provider}",
            "unit": gauge.unit,
            "limit": gauge.limit,
            "used": None if gauge.limit is None else max(0, gauge.limit - gauge.left),
            "reserved": 0,
            "resets_at": resets_at,
        }
        told = {name: figure for name, figure in limit.items() if figure is not None}
        call.notes.add("rate_limit.refused", rule=f"providers.{self._provider}", **told, retry_after=int(again))
        error = TargetRefused(
            self._words(call, kept, pause=pause), code="rate_limit_exceeded", headers={"retry-after": again}, facts={"limit": limit}
        )
        error.source = "policy"
        return error

    def _words(self, call: Call, kept: Kept, *, pause: bool) -> str:
        model = call.target.model if call.target is not None else ""
        gauge = kept.gauge
        of = "" if gauge.limit is None else f" of {gauge.limit}"
        why = "it asked for a pause" if pause else f"its own limit{of} {_WORDS[gauge.unit]} is used up"
        what = f"The provider {self._provider!r} can't be asked for the model {shortened(model)!r} now"
        return f"{what}: {why}. Wait as long as retry-after says."
