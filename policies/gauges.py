"""How one limit of a provider stands, between two words of the provider's about it: what is left less what was sent since, until it is full
again. Pure: the time is given, in seconds of a clock that only goes forward.

A provider may mean two things by a reset: a window that ends, before which nothing comes back; or a bucket that fills all the time and will
be full then. The end of a window stays where it is while calls are made, a bucket's moves away. Until one was seen to move it is taken for
a window's, and so it is again once a call was refused and nobody said for how long.

Nothing that a provider says is believed for longer than LONGEST. What was used up then, and has no end that is known, is tried: one call,
after a STEP two, then four, and so on until the provider has answered one. So a crowd that waited doesn't all come at once.
"""

from __future__ import annotations

from typing import NamedTuple

from .told_limits import Left, Unit

LONGEST = 60.0  # seconds: limits are told of minutes, and one of a day is worth a look each minute
PAUSE = 1.0  # seconds for which nothing is had where nothing is left and no reset is told
STEP = 0.1  # seconds
MOST_TRIED = 1024  # calls in a step
SLACK = 1.5  # seconds by which the end of a window may seem to move: it comes in whole seconds, and at times late


class Amount(NamedTuple):
    """Of one call, or of many: what a provider's limits may count."""

    requests: int = 0
    input: int = 0
    output: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(self.requests + other.requests, self.input + other.input, self.output + other.output)

    def minus(self, other: Amount) -> Amount:
        return Amount(self.requests - other.requests, self.input - other.input, self.output - other.output)

    def of(self, unit: Unit) -> int:
        if unit == "requests":
            return self.requests
        if unit == "tokens":
            return self.input + self.output
        return self.input if unit == "input_tokens" else self.output


class Gauge:
    """`left` is what there was when `sent` had been sent, at the time `since`; nothing more is had before `until`, unless it `fills`.
    `full`: when all of it is there again by the provider's word. `span`: how long a window is, as far as was seen; 0: nobody knows.
    `guessed`: the provider's time is over, and it said nothing new; then `tried` calls at once are let go."""

    __slots__ = ("fills", "full", "guessed", "left", "limit", "name", "sent", "since", "span", "tried", "unit", "until")

    def __init__(self, told: Left, sent: int, now: float) -> None:
        self.unit = told.unit
        self.name = told.name
        self.fills = False
        self.full = self.until = now
        self.span = 0.0
        self.tried = 0
        self._tell(told, told.remaining, sent, now)

    def hear(self, told: Left, at: int, sent: int, now: float, *, alone: bool) -> None:
        """What an answer tells to a call that was the last of `at`, now that so much is `sent`. If one told us last that was sent later,
        it is old news. And unless the call went `alone`, the provider may have counted it before others that went before it: then there
        is no more left in a window than by our own count."""
        if at < self.sent:
            return
        full = now + (told.reset or 0.0)
        if self.full > now + SLACK and full > self.full + SLACK:
            self.fills = True
        left = told.remaining
        if not (alone or self.fills or now >= self.until):
            left = min(left, self.left - (sent - self.sent) + (sent - at))
        self._tell(told, left, at, now)

    def _tell(self, told: Left, left: int, sent: int, now: float) -> None:
        reset = PAUSE if told.reset is None else told.reset
        self.limit, self.left, self.sent, self.since = told.limit, left, sent, now
        self.full, self.until = now + reset, now + min(reset, LONGEST)
        self.guessed, self.tried = False, 0
        known = told.reset is not None and told.limit is not None and reset <= LONGEST
        self.span = max(self.span, reset) if known else 0.0

    def wait(self, amount: int, ahead: int, sent: int, now: float) -> float:
        """Seconds until `amount` fits, with `ahead` before it and `sent` gone: 0.0 now. A call that is larger than the limit fits when all
        of that is there, or all that was told of: it is the provider's to say what becomes of it."""
        if now >= self.until:
            self._begin(amount, sent, now)
        rate = self._rate()
        missing = ahead + min(amount, self._most) - (self._filled(rate, now) - (sent - self.sent))
        if missing <= 0:
            return 0.0
        if rate:
            return min(missing / rate, self.until - now)
        windows = (missing - 1) // self.limit if self.limit and self.span else 0
        return self.until - now + float(windows) * self.span

    @property
    def _most(self) -> int:
        """What a call counts at the most."""
        return self.limit if self.limit is not None and not self.tried else max(1, self.left)

    def _rate(self) -> float:
        """What comes back in a second."""
        if not self.fills or self.limit is None or self.full <= self.since:
            return 0.0
        return max(0, self.limit - self.left) / (self.full - self.since)

    def _filled(self, rate: float, now: float) -> float:
        return min(self.left + rate * (now - self.since), max(self.left, self.limit or 0)) if rate else self.left

    def _begin(self, amount: int, sent: int, now: float) -> None:
        """Nothing was heard until its time was over: another window begins; or, where none is known, some calls are tried."""
        if self.span and self.limit is not None:
            self.left, self.sent = self.limit, sent
        elif self.left - (sent - self.sent) < min(amount, self._most):
            self.tried = min(2 * self.tried or 1, MOST_TRIED)
            self.left, self.sent = self.tried, sent
        self.since, self.guessed = now, True
        self.full = self.until = now + (self.span or STEP)
