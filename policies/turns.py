"""Whose turn it is to be sent: what providers tell of their limits, kept for each credential and model, and the lines of those who wait.

    lines = heard.of("https://api.openai.com/v1 …", clock)     # a provider's, by its credential
    turn = await lines.of(model).turn(Amount(1), patience=10)    # before a request goes out, if anything is known of the model
    lines.heard(model, 200, headers, turn)                       # when the head of its answer is here

First come, first served: who comes to a line that has somebody in it stands behind them, and who leaves it gives up nothing but the place.
All of it is bounded, and known to this process alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ..call.clock import SYSTEM, Clock
from .gauges import Amount, Gauge
from .told_limits import NOTHING, Headers, Left, Told, told_by

TOO_MANY = 429
HOLDING = frozenset({TOO_MANY, 503, 529})
"""Statuses that mean: not now. What another error says of limits nobody needs, and anybody may ask for a model that isn't there."""

MOST_GAUGES = 8  # of a model
MOST_MODELS = 256  # of a credential
MOST_CREDENTIALS = 256
LONGEST_NAME = 256  # characters of a model's name
LONGEST_LINE = 1000  # of those who wait for a model
SOON = 0.001  # seconds
ON_ITS_WAY = 1.0  # seconds in which a provider has surely counted a call
AGAIN = "retry_after"  # the gauge of a provider that asked for a pause
NONE = Amount()


class Kept(NamedTuple):
    """What keeps a call from being sent, and for how many seconds."""

    gauge: Gauge
    seconds: float


class Turn:
    """A call that was let go: the time, and how much had been sent with it. It goes with the call as `call.turn`, so that what the answer
    tells can be set against what was sent since."""

    __slots__ = ("at", "sent")

    def __init__(self, sent: Amount, at: float) -> None:
        self.sent = sent
        self.at = at


class Waiter:
    """One who waits, until a time of the loop's at the most."""

    __slots__ = ("amount", "come", "turn", "until")

    def __init__(self, amount: Amount, until: float, come: asyncio.Future[None]) -> None:
        self.amount = amount
        self.until = until
        self.come = come
        self.turn: Turn | None = None


class Line:
    """One model of one credential. `sent` is all that was let go by now, `gauges` what the provider told, by its name for it."""

    __slots__ = ("_ahead", "_clock", "_out", "_timer", "_waiting", "gauges", "sent")

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self.gauges: dict[str, Gauge] = {}
        self.sent = NONE
        self._ahead = NONE
        self._out: dict[Turn, None] = {}  # not heard of, of the last moments, in order
        self._waiting: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def by_tokens(self) -> bool:
        """Whether it matters how large a call is."""
        return any(gauge.unit != "requests" for gauge in self.gauges.values())

    def take(self, amount: Amount) -> Turn | None:
        """A turn at once, if there is one; then the call counts as sent."""
        return None if self._waiting or self.kept(amount) is not None else self._go(amount)

    def kept(self, amount: Amount, ahead: Amount = NONE) -> Kept | None:
        """What keeps such a call the longest, behind `ahead`; None: nothing does."""
        now, sent = self._clock.mono(), self.sent
        found: Kept | None = None
        for gauge in self.gauges.values():
            unit = gauge.unit
            seconds = gauge.wait(amount.of(unit), ahead.of(unit), sent.of(unit), now)
            if seconds > (found.seconds if found else 0.0):
                found = Kept(gauge, seconds)
        return found

    async def turn(self, amount: Amount, patience: float) -> Turn | Kept:
        """Wait for a turn, in order, if it comes within so many seconds. Else what keeps the call, at once where that is known."""
        kept = self.kept(amount, self._ahead)
        if kept is not None and (kept.seconds > patience or len(self._waiting) >= LONGEST_LINE):
            return kept
        loop = asyncio.get_running_loop()
        waiter = Waiter(amount, loop.time() + patience, loop.create_future())
        self._waiting[waiter] = None
        self._ahead = self._ahead.plus(amount)
        self._serve()
        try:
            async with asyncio.timeout_at(waiter.until):
                await waiter.come
        except TimeoutError:
            pass
        except BaseException:
            if waiter.turn is not None:
                self._out.pop(waiter.turn, None)
                self.sent = self.sent.minus(amount)
            raise
        finally:
            self._part(waiter)
            self._serve()
        # Where nothing keeps it, it was somebody before it who had to wait.
        return waiter.turn or self.kept(amount, self._ahead) or self._go(amount)

    def hear(self, status: int, told: Told, turn: Turn | None) -> None:
        """What an answer's head told to a call; None: it went before anything was known."""
        now = self._clock.mono()
        alone = self._alone(turn, now)
        sent = NONE if turn is None else turn.sent
        told_of = {f"{left.unit} {left.name}": left for left in told.limits}
        for name, left in told_of.items():
            all_sent = self.sent.of(left.unit)
            at = min(sent.of(left.unit), all_sent)
            if gauge := self.gauges.get(name):
                gauge.hear(left, at, all_sent, now, alone=alone)
            elif len(self.gauges) < MOST_GAUGES:
                self.gauges[name] = Gauge(left, at, now)
        if status in HOLDING:
            self._refused(status, told.retry_after, now)
        else:  # what was tried and answered, without a word of it, is over
            tried = [name for name, gauge in self.gauges.items() if gauge.guessed and sent.of(gauge.unit) > gauge.sent]
            for name in tried:
                if name not in told_of:
                    del self.gauges[name]
        self._serve()

    def _go(self, amount: Amount) -> Turn:
        self.sent = self.sent.plus(amount)
        turn = Turn(self.sent, self._clock.mono())
        self._out[turn] = None
        self._forget(turn.at)
        return turn

    def _alone(self, turn: Turn | None, now: float) -> bool:
        """Whether no other call is on its way of which the provider may not know yet."""
        self._forget(now)
        if turn is None:
            return False
        self._out.pop(turn, None)
        return not self._out

    def _forget(self, now: float) -> None:
        """Those that are certainly counted by now."""
        while self._out and (first := next(iter(self._out))).at < now - ON_ITS_WAY:
            del self._out[first]

    def _refused(self, status: int, retry_after: float, now: float) -> None:
        if status == TOO_MANY and not retry_after:
            for gauge in self.gauges.values():
                gauge.fills = False
        again = self.gauges.get(AGAIN)
        if retry_after and (again is None or again.guessed or now + retry_after > again.until):
            self.gauges[AGAIN] = Gauge(Left("requests", 0, None, retry_after, AGAIN), self.sent.requests, now)

    def _serve(self) -> None:
        """Let go whose turn it is, tell those who wait in vain, and look again when the first of the others may go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            first = next(iter(self._waiting))
            kept = self.kept(first.amount)
            loop = first.come.get_loop()
            if kept is not None and kept.seconds <= first.until - loop.time():
                self._timer = loop.call_later(max(kept.seconds, SOON), self._serve)
                return
            self._part(first)
            if kept is None:
                first.turn = self._go(first.amount)
            if not first.come.done():
                first.come.set_result(None)

    def _part(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            del self._waiting[waiter]
            self._ahead = self._ahead.minus(waiter.amount)


class Lines:
    """All models of one credential of which a provider told anything."""

    def __init__(self, clock: Clock = SYSTEM, *, most: int = MOST_MODELS) -> None:
        self._clock = clock
        self._most = most
        self._lines: dict[str, Line] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """Who is known, the one that was heard of last at the end."""
        return tuple(self._lines)

    def of(self, model: str) -> Line | None:
        """None: nothing is known of it, so that nothing keeps anybody."""
        return self._lines.get(model)

    def heard(self, model: str, status: int, headers: Headers, turn: Turn | None) -> None:
        """The head of an answer is here, to a call with this `turn`."""
        holding = status in HOLDING
        told = told_by(headers, self._clock.wall()) if holding or status == 200 else None
        line = self._lines.get(model)
        if line is not None:
            line.hear(status, told or NOTHING, turn)
            if told is not None:
                self._lines[model] = self._lines.pop(model)
        elif told is not None and (told.limits or (holding and told.retry_after)) and len(model) <= LONGEST_NAME:
            line = self._lines[model] = Line(self._clock)
            line.hear(status, told, turn)
            if len(self._lines) > self._most:
                self._forget()

    def _forget(self) -> None:
        """The one of which nothing was heard for longest, if nobody waits there."""
        idle = (model for model, line in self._lines.items() if not line.waiting)
        del self._lines[next(idle)]


class Heard:
    """What all providers of a process have told, by their credentials: it outlives a configuration."""

    def __init__(self) -> None:
        self._lines: dict[str, Lines] = {}

    def of(self, credential: str, clock: Clock = SYSTEM) -> Lines:
        """`credential` says where a provider lives and with which key it is called, in a text without that key."""
        found = self._lines.pop(credential, None) or Lines(clock)
        self._lines[credential] = found
        if len(self._lines) > MOST_CREDENTIALS:
            del self._lines[next(iter(self._lines))]
        return found


def headers_of(fields: Mapping[str, str]) -> Headers:
    """Header lines of a mapping, such as a script has."""
    return [(name.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in fields.items()]
