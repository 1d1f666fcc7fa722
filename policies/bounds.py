"""What budgets and rate limits are to a call: bounds. A bound has a counter for each of those whom it concerns, a limit on it, and says
how much of it a call may take and has taken. Pure: nothing here asks a ledger.

Amounts are billionths, as the ledger's (ledger/ledger.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
from pydantic import BaseModel, ConfigDict, StringConstraints

from ..call.call import Call, Target
from ..call.events import Usage
from ..call.rules import fits_glob
from .ledger.ledger import MOST, NANO, Claim, Counter, Full, Standing
from .terms import Applies, Terms
from .windows import SECOND, Rolling, Window

Kind = Literal["budget", "rate_limit"]
Unit = Literal["weighted_tokens", "usd", "requests", "tokens", "concurrent", "interval"]
Exceeded = Literal["refuse", "wrap_up", "downgrade", "warn"]
StateError = Literal["refuse", "allow", "local"]

SHADOW = "shadow"
STAGE = 20
MOST_SCOPES = 4096  # whose counters a bound knows by heart
PROBE = 10**6  # tokens by which a price of one is told
RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$")]


class Part(BaseModel):
    """A mapping of a rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)


class Price(Protocol):
    """What tokens of a model cost, in billionths of a dollar. `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""

    def __call__(self, input: int, output: int, cached: int = 0, cache_write: int = 0, reasoning: int = 0, /) -> int: ...


Pricing = Callable[[Target], Price | None]
"""The price of a target; None: nobody knows it."""


class Need(NamedTuple):
    """What a call may take at the most: tokens in and out, and the price of its target."""

    input: int
    output: int
    price: Price | None = None


class Weights(NamedTuple):
    """What a token counts, in billionths."""

    input: int = NANO
    cached: int = NANO
    cache_write: int = NANO
    output: int = NANO
    reasoning: int = NANO


class LimitHeader(NamedTuple):
    """What is always the same in the headers that tell of a limit: its name and its policy, as items of lists, and the names of OpenAI's
    headers for it."""

    name: str
    policy: str
    limit: str
    remaining: str
    reset: str


class Place:
    """A counter of a bound, and what is known of it: how it stood when somebody looked last, and how much less than they held was used by
    calls that have ended since: `back`, or who comes after a large hold would take the counter for full. `claim`: what every call asks of
    it, where that is the same for all. `beyond`: more was used than its limit. `told`: what notes say of it."""

    __slots__ = ("back", "beyond", "claim", "counter", "standing", "told")

    def __init__(self, counter: Counter, limit: int, told: dict[str, Any], claim: Claim | None) -> None:
        self.counter = counter
        self.claim = claim
        self.told = told
        self.standing = Standing(counter, limit, 0, 0)
        self.back = 0
        self.beyond = False

    @property
    def room(self) -> int:
        """What should be left on it."""
        standing = self.standing
        return max(0, min(standing.limit - standing.used - standing.reserved + self.back, standing.limit))


class Bound(msgspec.Struct, kw_only=True, eq=False):
    """One limit of a rule. `name` is the rule's, `origin` the list it stands in, `rule` the place in the file, or the name where there is
    none. `grace` is what may be had above the limit, `whole` both; `shadow`: it counts on a counter of its own, and stops nobody.
    `capping`: the answers of calls are capped at what is held for them; `by_tokens`: tokens matter to it; `settles`: what was used is known
    at a call's end, and else when it is admitted; `by_caller`: who calls says all
    about whether and where a call counts."""

    kind: Kind
    name: str
    origin: str
    rule: str = ""
    unit: Unit
    per: str
    window: Window
    limit: int
    scope: Callable[[Call], str | None]
    grace: int = 0
    whole: int = 0
    weights: Weights | None = None
    exceeded: Exceeded = "refuse"
    on_state_error: StateError = "refuse"
    shadow: bool = False
    capping: bool = False
    unpriced: Literal["refuse", "warn"] = "refuse"
    models: tuple[str, ...] = ("*",)
    downgrade_to: str = ""
    wait: float = 0.0
    thresholds: Any = None
    applies: Applies | None = None
    counter_name: str = ""
    most: tuple[int, int] = (0, 0)
    full: Literal["refuse", "count", "skip"] = "refuse"
    lowers: bool = False
    places: dict[tuple[str, str], Place] = {}
    header: LimitHeader | None = None
    by_tokens: bool = False
    settles: bool = False
    by_caller: bool = False

    def __post_init__(self) -> None:
        self.counter_name = counter_name(self.name, self.unit, self.per, shadow=self.shadow)
        self.rule = self.rule or self.name
        if self.applies is not None:
            self.applies.rule = self.rule
        if (weights := self.weights) is not None:
            self.most = (max(weights[:3]), max(weights[3:]))
        self.full = "skip" if self.shadow else "count" if self.exceeded == "warn" else "refuse"
        self.lowers = self.full == "refuse" and self.kind == "budget"
        self.grace = 0 if self.shadow else self.grace
        self.whole = min(self.limit + self.grace, MOST)
        alone = self.models == ("*",) and self.applies is None
        self.by_caller = alone and self.per in ("organisation", "team", "key", "user")
        self.by_tokens = self.weights is not None or self.unit == "usd"
        self.settles = self.by_tokens or self.kind == "budget"
        if self.kind == "rate_limit" and self.unit in ("requests", "tokens") and isinstance(self.window, Rolling):
            name = f'"{self.name}.{self.unit}"'
            policy = f"{name};q={self.limit // NANO};w={-(-self.window.length // SECOND)}"
            self.header = LimitHeader(name, policy, *[f"x-ratelimit-{what}-{self.unit}" for what in ("limit", "remaining", "reset")])

    def place(self, call: Call) -> Place | None:
        """Where a call counts; None: it doesn't concern this bound."""
        if self.models != ("*",) and not any(fits_glob(each, call.model) for each in self.models):
            return None
        if self.applies is not None and not self.applies(call):
            return None
        scope = self.scope(call)
        if scope is None:
            return None
        return self.place_of(f"provider:{scope}" if self.per == "provider" else call.caller.organisation, scope)

    def place_of(self, home: str, scope: str) -> Place:
        found = self.places.get((home, scope))
        if found is None:
            if len(self.places) >= MOST_SCOPES:
                self.places.clear()
            counter = Counter(home, self.counter_name, scope, self.window)
            told = {
                "rule": self.rule,
                "name": self.name,
                "scope": f"{self.per}:{scope}",
                "unit": self.unit,
                "window": self.window.text,
            }
            told |= {"mode": SHADOW} if self.shadow else {}
            found = self.places[home, scope] = Place(counter, self.limit, told, None if self.by_tokens else self.claim(counter, NANO))
        return found

    def amount(self, need: Need) -> int:
        """What is claimed for a call."""
        if self.weights is not None:
            into, out = self.most
            return need.input * into + need.output * out
        if self.unit == "usd":
            return 0 if need.price is None else dearest(need.price, need.input, need.output)
        return NANO

    def asked(self, counter: Counter, need: Need, n: int, spare: int) -> Claim:
        """What is claimed for a call of whose `n` choices `spare` tokens each may be left out: they are where this is lowered, or another
        claim of the call. A price is rounded: no less is held than the answer costs."""
        step = 0
        if self.weights is not None:
            into, out = self.most
            amount, step = need.input * into + need.output * out, n * out if spare else 0
        else:
            amount = self.amount(need)
            if spare:
                step = max(0, amount - self.amount(need._replace(output=need.output - spare * n))) // spare
        full: Full = "lower" if spare and self.lowers and amount <= self.whole else self.full
        return Claim(counter, min(amount, MOST), self.limit, self.grace, full, step)

    def used(self, usage: Usage, price: Price | None) -> int:
        """What an attempt has used."""
        if (weights := self.weights) is not None:
            input, cached, cache_write, output, reasoning = weights
            if not (usage.cached or usage.cache_write or usage.reasoning):
                return input * usage.input + output * usage.output
            return (
                input * (usage.input - usage.cached - usage.cache_write)
                + cached * usage.cached
                + cache_write * usage.cache_write
                + output * (usage.output - usage.reasoning)
                + reasoning * usage.reasoning
            )
        if self.unit == "usd":
            return 0 if price is None else price(usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning)
        return NANO

    def fits(self, need: Need, room: int) -> int:
        """How many tokens of output a call may have within `room`; below 0: not even its input fits."""
        if self.weights is not None:
            left = room - need.input * self.most[0]
            return left // self.most[1] if self.most[1] else need.output if left >= 0 else -1
        if self.unit != "usd" or need.price is None:
            return need.output
        bare = dearest(need.price, need.input, 0)
        each = dearest(need.price, need.input, PROBE) - bare
        if each <= 0:
            return need.output if bare <= room else -1
        found = (room - bare) * PROBE // each
        while found >= 0 and dearest(need.price, need.input, found) > room:  # a price is rounded
            found -= 1
        return found

    def claim(self, counter: Counter, amount: int) -> Claim:
        return Claim(counter, min(amount, MOST), self.limit, self.grace, self.full)

    def room(self, standing: Standing) -> int:
        """What may still be had."""
        return self.limit + self.grace - standing.used - standing.reserved


def dearest(price: Price, input: int, output: int) -> int:
    """What so many tokens cost at the most, however they are made up."""
    bare = price(input, output)
    written, thought = price(input, output, 0, input, 0) - bare, price(input, output, 0, 0, output) - bare
    return bare + max(0, written) + max(0, thought)


def counter_name(name: str, unit: str, per: str, *, shadow: bool) -> str:
    """What the ledger calls the counters of a bound: another unit, or other scopes, make another one."""
    return " ".join([name, unit, per, *([SHADOW] if shadow else ())])


# ---- whose usage it is

_TAG = re.compile(r"tag:([a-z0-9_.-]{1,32})")
_SCOPES: Mapping[str, Callable[[Call], str | None]] = {
    "organisation": lambda call: call.caller.organisation,
    "team": lambda call: call.caller.team,
    "key": lambda call: _within(call, call.caller.key),
    "user": lambda call: _within(call, call.caller.user) if call.caller.user else None,
    "model": lambda call: call.model,
    "provider": lambda call: call.target.provider if call.target else None,
    "thread": lambda call: _within(call, call.labels.thread) if call.labels.thread else None,
    "reply": lambda call: _within(call, call.labels.reply) if call.labels.reply else None,
}


def _within(call: Call, what: str) -> str:
    """What callers say of themselves counts within their team, so that nobody can use up another team's."""
    return f"{call.caller.team}/{what}" if call.caller.team else what


def scope_of(per: str) -> Callable[[Call], str | None]:
    """How it is told whose usage a call is: a scope, or None where the call belongs to none.

    Raises:
        ValueError: there is no such thing to count by.
    """
    if found := _SCOPES.get(per):
        return found
    tag = _TAG.fullmatch(per)
    if tag is None:
        raise ValueError(f"must be one of {', '.join(_SCOPES)}, or tag:NAME")
    name = tag[1]
    return lambda call: _within(call, call.labels.tags[name]) if name in call.labels.tags else None


def applies_of(kind: Kind, terms: Terms) -> Applies | None:
    """Whether the rule's `when` holds of a call; None: it has none."""
    return Applies(kind, terms.when, STAGE, mode=terms.mode) if terms.when is not None else None


def plain(amount: int) -> int | float:
    """An amount as JSON tells it."""
    return amount / NANO if amount % NANO else amount // NANO
