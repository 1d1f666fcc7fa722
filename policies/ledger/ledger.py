"""The ledger: what was used and what is held, counter by counter, so that nobody spends what another was promised.

    hold = ledger.hold(call.id)
    answer = await hold.reserve([
        Claim(Counter("acme", "month", "search", window("month")), amount=nano(1200), limit=nano(5_000_000)),
        Claim(Counter("acme", "rpm", "search/ci", window("rolling 60s")), amount=nano(1), limit=nano(600)),
        Claim(Counter("acme", "concurrent", "search/ci", InFlight()), amount=nano(1), limit=nano(32)),
    ])                                          # all or none, in one step
    if not answer.admitted:
        …                                       # answer.refused names who said no, and when it would not
    answer = await hold.extend([…])             # more of the same, or of another counter, all or none again
    hold.settle({"month": nano(873)})           # what it really was, once; what isn't named was what was held
    hold.release()                              # or: nothing of it happened

What a call asks for may be more than it needs: `reserve(claims, spare=984)` leaves out up to so many steps (a token of the answer, say)
where a claim that can be lowered doesn't fit, as few as make it fit, in the same step of the ledger.

A **counter** is a name (the rule's), a scope (whose usage), a window, and a home: all counters of a hold have one home, which is an
organisation, or `provider:NAME`. Change a limit and the counter stays; change its name or window and another one begins.
A **claim** is admitted while used + reserved + amount ≤ limit; a limit of 0 admits nothing. It belongs to the window (of a rolling
one: to the slot) in which it was admitted, however long the call takes, and is settled there.
A **hold** is known by an id of its maker's, so that it can be given back even when the answer to `reserve` was lost.

Amounts are whole billionths: of a token, a dollar, a request. Integers add up exactly in any order and in any language, which floats
don't; weights and prices have no more than nine decimals, so nothing is rounded; and adding them costs a tenth of what Decimal costs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal, localcontext
from operator import attrgetter
from typing import Literal, Protocol
from urllib.parse import quote, unquote

import msgspec

from ...call.errors import OurFault
from ..windows import Window, window

NANO = 10**9
MOST = 2**53 * NANO  # a server's script counts whole units in floats, which are exact up to here: nine thousand million million


class Counter(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Whose usage of what, in which window. `key` names it in one text, `Counter.of` reads that; none of it is a secret."""

    home: str
    name: str
    scope: str
    window: Window

    @property
    def key(self) -> str:
        return "|".join(quote(part, safe=" :/@,;=+") for part in (self.home, self.name, self.scope, self.window.text))

    @classmethod
    def of(cls, key: str) -> Counter:
        """
        Raises:
            ValueError: it isn't the key of a counter.
        """
        home, name, scope, when = (unquote(part) for part in key.split("|"))
        return cls(home, name, scope, window(when))


Full = Literal["refuse", "lower", "count", "skip"]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a call asks of a counter, in billionths.

    `grace` is what may be had above the limit (then the standing says `over`). `full`, where even that doesn't suffice: `refuse` the
    whole hold; `lower` it and all others by as many steps as it takes, or refuse where too few can be spared; `count` it all the same,
    for a rule that only warns; `skip` this claim alone, for a rule in shadow mode, whose counter then tells what it would have if it were
    in force. `step` is what one step left out takes off the amount.
    """

    counter: Counter
    amount: int
    limit: int
    grace: int = 0
    full: Full = "refuse"
    step: int = 0

    def without(self, steps: int) -> int:
        """The amount, with so many steps left out."""
        return max(0, self.amount - steps * self.step)


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How a counter stands, in billionths, with the hold's own part in it (without, if that was refused or skipped).

    `over`: the claim went, or would have gone, over its limit. `resets_at`: when all of this is forgotten, UTC nanoseconds (None:
    never, or with the calls). `fits_after`: of a claim that didn't fit, seconds until it would if nobody else came (None: nobody
    knows, as calls in flight end when they end; or never, as it asks for more than the limit).
    """

    counter: Counter
    limit: int
    used: int
    reserved: int
    over: bool = False
    resets_at: int | None = None
    fits_after: float | None = None

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used - self.reserved)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came of asking: how each claim's counter stands, in their order, and those that refused (then nothing was reserved).
    `left_out`: so many steps less than was asked for are held; `over`: one of these stands over its limit."""

    standings: tuple[Standing, ...]
    refused: tuple[Standing, ...] = ()
    left_out: int = 0
    over: bool = False

    @property
    def admitted(self) -> bool:
        return not self.refused


class Spent(msgspec.Struct, frozen=True, gc=False):
    """An amount on a counter at an instant (UTC nanoseconds), which decides the window: what is journaled and restored."""

    counter: Counter
    at: int
    amount: int


Watch = Callable[[Iterable[Counter]], None]


class Hold(Protocol):
    """One call's part in its counters. Names are unique in a hold: it has one counter of each."""

    @property
    def id(self) -> str: ...

    @property
    def held(self) -> tuple[Spent, ...]:
        """What is reserved for it now: what a crash would cost."""

    def reserve(self, claims: Sequence[Claim], spare: int = 0) -> Awaitable[Answer]:
        """Once a hold, or again after it was refused. Up to `spare` steps may be left out of the claims.

        Raises:
            StateUnavailable: nobody knows whether it is held; `release` it.
            ValueError: it is held or settled already, or the claims don't have one home and a name each.
        """

    def extend(self, claims: Sequence[Claim]) -> Awaitable[Answer]:
        """More, on top of what is held. A refusal leaves that as it was.

        Raises:
            StateUnavailable: nobody knows whether that came on top; settling puts it right.
            ValueError: it isn't held.
        """

    def settle(self, actual: Mapping[str, int]) -> None:
        """Put what was used, by the counter's name, in place of what was held; where nothing is said, that was right. Only the first
        `settle` or `release` counts. Doesn't wait: where that takes time, the ledger's own task does it."""

    def release(self) -> None:
        """Settle at nothing."""


class Ledger(Protocol):
    """Where the counters are kept. `watch`, if somebody sets it, is called with counters on which a call that ended left room."""

    watch: Watch | None

    @property
    def problem(self) -> str:
        """Why it can't be used just now, for /readyz and the log; empty: it can."""

    def start(self) -> None:
        """Look from now on whether it can be used, also while nobody does."""

    def hold(self, id: str) -> Hold:
        """A hold that nothing is reserved for yet. In one home an id is used once."""

    def read(self, claims: Sequence[Claim]) -> Awaitable[tuple[Standing, ...]]:
        """How these counters stand, and whether such a claim would fit; nothing is reserved. Any homes.

        Raises:
            StateUnavailable:
        """

    def every(self, home: str, most: int = 10_000) -> Awaitable[tuple[Standing, ...]]:
        """All counters of a home that anything is counted on, with the limit that was last asked with.

        Raises:
            StateUnavailable:
        """

    def first(self, counter: Counter, level: Decimal, until: int | None) -> Awaitable[bool]:
        """Whether nobody has told yet that so much of the counter's limit is used, or more, in a window that ends then (None: never). From
        now on somebody has.

        Raises:
            StateUnavailable:
        """

    def drain(self, patience: float) -> Awaitable[int]:
        """Wait until all that was settled is written, so many seconds at most. Returns how many holds are not."""

    def close(self) -> Awaitable[None]:
        """Let go of connections and tasks."""


_name, _home = attrgetter("counter.name"), attrgetter("counter.home")


def check(claims: Sequence[Claim], *others: Counter) -> None:
    """
    Raises:
        ValueError: the claims, or the counters that the hold has already, don't have one home; or one name is two counters'.
    """
    if not others and len(set(map(_name, claims))) == len(claims) and len(set(map(_home, claims))) <= 1:
        return  # as nearly always
    known = {counter.name: counter for counter in others}
    home = others[0].home if others else claims[0].counter.home if claims else ""
    for claim in claims:
        counter = claim.counter
        other = known.get(counter.name)
        if other is None:
            known[counter.name] = counter
        elif other is not counter and other != counter:
            raise ValueError(f"one hold can't have two counters called {counter.name!r}")
        if counter.home != home:
            raise ValueError("all counters of a hold have one home")


class StateUnavailable(OurFault):
    """The counters can't be reached, or not in time. Rules do then what their `on_state_error` says."""

    code = "state_unavailable"

    def __init__(self, detail: str = "") -> None:
        super().__init__(
            "The shared counters can't be reached just now; try again in a moment.", headers={"retry-after": "1"}, detail=detail
        )


def nano(value: Decimal | int | str) -> int:
    """The amount in billionths, exactly.

    Raises:
        ValueError: it is negative, not finite, too large to be counted, or has more than nine decimals.
    """
    exact = value if isinstance(value, int) else Decimal(value)
    if isinstance(exact, Decimal) and not exact.is_finite():
        raise ValueError("must be a finite number")
    if not 0 <= exact <= MOST // NANO:
        raise ValueError(f"must be between 0 and {MOST // NANO}")
    whole = nano_up(exact)
    if isinstance(exact, Decimal) and Decimal(whole).scaleb(-9) != exact:
        raise ValueError("must have at most nine decimals")
    return whole


def nano_up(value: Decimal | int) -> int:
    """The amount in billionths, a finer rest rounded up: for estimates, which may be high and not low."""
    if isinstance(value, int):
        return value * NANO
    with localcontext(prec=60):
        return int((value * NANO).to_integral_value(ROUND_CEILING))


def units(amount: int) -> Decimal:
    """Billionths as people read them."""
    with localcontext(prec=60):
        return (Decimal(amount) / NANO).normalize() + 0
