"""`RateLimitMiddleware`: no more model calls, or tokens, than so many in a time. Who comes too early waits for its turn, or is refused."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from ...call.clock import SYSTEM
from ...call.errors import SpangateError
from ...exporters import semconv
from ...policies.told_limits import told_by
from ...policies.turns import headers_of
from ..errors import LimitReached
from ..hooks import MiddlewareBase
from ..messages.msg import ChatUsage
from ..models.response import ChatResponse
from .given import number, said_by
from .portable import estimated_tokens
from .watched import watched

Key = Literal["instance", "model", "provider", "agent", "tenant"] | Callable[..., Any]
KEYS = ("instance", "model", "provider", "agent", "tenant")
MOST_LINES = 1000  # keys, before those that nobody waits for are forgotten
OUTPUT = 1000  # tokens that an answer is taken to have until it is here


class RateLimitExceeded(LimitReached):
    """The wait would be longer than `max_wait`; `retry_after` says how many seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, headers={"retry-after": str(math.ceil(retry_after))})
        self.retry_after = retry_after


class RateLimitMiddleware(MiddlewareBase):
    """Lets model calls begin `min_interval` seconds apart (1, unless another limit is given), or `rate` a second with `burst` at once,
    and at most `tokens_per_minute`, all of which may be combined.

    `key`: whose calls are counted together: all that pass this instance, those of one `model`, `provider`, `agent` or `tenant`, or what a
    function of the agent says. `max_wait`: how many seconds a call may wait; above it, or at once with `on_exceed="reject"`, it is refused
    with `RateLimitExceeded`. A provider's `retry-after` holds up those who come next. Put it behind retries and fallbacks in the list, so
    that each try waits for its turn.
    """

    def __init__(
        self,
        min_interval: float | None = None,
        *,
        rate: float | None = None,
        burst: int = 1,
        tokens_per_minute: float | None = None,
        key: Key = "instance",
        max_wait: float | None = None,
        on_exceed: Literal["wait", "reject"] = "wait",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        if not callable(key) and key not in KEYS:
            raise ValueError(f"key must be one of {', '.join(KEYS)} or a function, not {key!r}")
        if on_exceed not in ("wait", "reject"):
            raise ValueError(f"on_exceed must be 'wait' or 'reject', not {on_exceed!r}")
        if min_interval is None and rate is None and tokens_per_minute is None:
            min_interval = 1.0
        self._interval = None if min_interval is None else number("min_interval", min_interval)
        self._rate = None if rate is None else number("rate", rate, above=True)
        self._burst = number("burst", burst, least=1)
        self._tokens = None if tokens_per_minute is None else number("tokens_per_minute", tokens_per_minute, above=True)
        self._key = key
        self._max_wait = 0.0 if on_exceed == "reject" else None if max_wait is None else number("max_wait", max_wait)
        self._clock = clock
        self._lines: dict[Any, Line] = {}
        self._room = MOST_LINES

    async def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        line = self._line(await self._key_of(agent, input_kwargs["current_model"]))
        tokens = estimated_tokens(input_kwargs["messages"], input_kwargs["tools"]) + OUTPUT if self._tokens is not None else 0
        waited = await line.turn(tokens, self._max_wait)
        if waited > 0:
            _tell(waited)
        return await watched(agent, next_handler, _Settle(line, tokens))

    async def _key_of(self, agent: Any, model: Any) -> Any:
        if callable(self._key):
            return await said_by(self._key, agent)
        return {"instance": "", "model": model.model, "provider": model.provider, "agent": agent.name, "tenant": agent.tenant}[self._key]

    def _line(self, key: Any) -> Line:
        if key not in self._lines:
            if len(self._lines) >= self._room:
                self._lines = {known: line for known, line in self._lines.items() if not line.is_idle}
                self._room = max(MOST_LINES, 2 * len(self._lines))  # who is not idle stays; looking at all for each new one would cost
            gates = [Gate(self._interval)] if self._interval is not None else []
            gates += [Gate(1 / self._rate, self._burst)] if self._rate is not None else []
            tokens = Gate(60 / self._tokens, self._tokens) if self._tokens is not None else None
            self._lines[key] = Line(gates, tokens, self._clock)
        return self._lines[key]


def _tell(waited: float) -> None:
    """An event on the span that is current, and a metric, if this process traces."""
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace import get_current_span

        from .traced_metrics import measures_now

        measures = measures_now()
        if measures is not None:
            measures.waited(waited)
        get_current_span().add_event(semconv.EVENT_RATE_LIMIT_WAIT, {semconv.RATE_LIMIT_WAITED: waited})


class Gate:
    """One limit: `interval` seconds for each unit, and `burst` units at once. Pure; it is told the time."""

    def __init__(self, interval: float, burst: float = 1) -> None:
        self._interval = interval
        self._room = interval * burst
        self.full_at = -math.inf
        """When nothing of what was taken counts any more."""

    def opens(self, units: float) -> float:
        """When so many may pass, as things stand."""
        return self.full_at + min(units * self._interval, self._room) - self._room

    def take(self, units: float, now: float) -> None:
        """`units` below 0 give back."""
        self.full_at = max(self.full_at, now) + units * self._interval


class Line:
    """Those who wait for the same limit, in the order in which they came. Who leaves makes room for the next."""

    def __init__(self, gates: list[Gate], tokens: Gate | None, clock: Callable[[], float]) -> None:
        self._gates = gates
        self._tokens = tokens
        self._clock = clock
        self._held_until = -math.inf
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._news: asyncio.Future[None] | None = None
        """What the first of them waits for, beside time."""

    @property
    def is_idle(self) -> bool:
        """Nobody waits, and nothing that was taken counts any more."""
        gates = [*self._gates, self._tokens] if self._tokens is not None else self._gates
        return not self._waiting and max(self._held_until, *(gate.full_at for gate in gates)) <= self._clock()

    async def turn(self, tokens: float, max_wait: float | None) -> float:
        """Wait for the turn of a call of about so many tokens; gives how many seconds it took.

        Raises:
            RateLimitExceeded: that would take too long.
        """
        if max_wait is not None and (wait := self._wait(tokens)) > max_wait:
            raise RateLimitExceeded(f"The rate limit lets the next call begin in {wait:.1f} seconds.", wait)
        waited = 0.0
        if self._waiting or self._opens(tokens) > self._clock():
            came = self._clock()
            await self._queue(tokens)
            waited = self._clock() - came
        self._take(tokens)
        return waited

    async def _queue(self, tokens: float) -> None:
        place = (asyncio.get_running_loop().create_future(), tokens)
        self._waiting.append(place)
        try:
            if self._waiting[0] is not place:
                await place[0]
            while (left := self._opens(tokens) - self._clock()) > 0:
                await self._news_within(left)
        finally:
            first = self._waiting[0] is place
            self._waiting.remove(place)
            if first and self._waiting and not self._waiting[0][0].done():
                self._waiting[0][0].set_result(None)

    async def _news_within(self, seconds: float) -> None:
        """Until so much time has passed, or something was given back."""
        self._news = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._news
        except TimeoutError:
            pass
        finally:
            self._news = None

    def _opens(self, tokens: float) -> float:
        times = [gate.opens(1) for gate in self._gates]
        if self._tokens is not None:
            times.append(self._tokens.opens(tokens))
        return max(self._held_until, *times)

    def _wait(self, tokens: float) -> float:
        """How long one that comes now would wait behind those who are here."""
        now = at = self._clock()
        ahead = Line([_copy(gate) for gate in self._gates], _copy(self._tokens) if self._tokens else None, lambda: at)
        ahead._held_until = self._held_until
        for each in (*(each for _, each in self._waiting), tokens):
            at = max(at, ahead._opens(each))
            ahead._take(each)
        return at - now

    def _take(self, tokens: float) -> None:
        now = self._clock()
        for gate in self._gates:
            gate.take(1, now)
        if self._tokens is not None:
            self._tokens.take(tokens, now)

    def settle(self, tokens: float) -> None:
        """The difference between what was taken and what it was."""
        if self._tokens is not None:
            self._tokens.take(tokens, self._clock())
            if self._news is not None and not self._news.done():
                self._news.set_result(None)

    def hold(self, seconds: float) -> None:
        self._held_until = max(self._held_until, self._clock() + seconds)


def _copy(gate: Gate) -> Gate:
    copied = Gate(gate._interval)
    copied.__dict__.update(gate.__dict__)
    return copied


class _Settle:
    def __init__(self, line: Line, tokens: float) -> None:
        self._line, self._tokens = line, tokens
        self._usage: ChatUsage | None = None

    def piece(self, piece: ChatResponse) -> None:
        self._usage = piece.usage or self._usage

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        if self._usage is not None and self._tokens:
            self._line.settle(self._usage.total_tokens - self._tokens)
        if isinstance(error, SpangateError):
            told = told_by(headers_of(error.headers), SYSTEM.wall())
            if told is not None and told.retry_after:
                self._line.hold(told.retry_after)
