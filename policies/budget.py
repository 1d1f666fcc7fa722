"""budget: how much may be used in a window, by whom, in which unit; and what happens to a call that would go beyond.

These are the settings. What is held for a call and when that is settled stands in admission.py, what a refusal says in refusals.py.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from ..call.amounts import Quantity, Share
from .bounds import STAGE, Bound, Exceeded, Part, RuleName, Weights, applies_of, scope_of
from .ledger.ledger import MOST, NANO, nano, nano_up
from .terms import Terms, terms_of
from .thresholds import Thresholds
from .windows import Window, window, zone

PER = ("organisation", "team", "user", "key", "model", "provider", "thread", "reply")
BUDGET_UNITS = ("weighted_tokens", "usd", "requests")


def _known_window(value: str) -> str:
    window(value)
    return value


def _known_zone(value: str) -> str:
    zone(value)
    return value


def _known_per(value: str) -> str:
    scope_of(value)
    return value


Per = Annotated[
    str, AfterValidator(_known_per), WithJsonSchema({"type": "string", "pattern": f"^({'|'.join(PER)}|tag:[a-z0-9_.-]{{1,32}})$"})
]


class TokenWeights(Part):
    """What a token counts, by what it was. Details are parts of their totals: a cached token is no input token as well."""

    input: Quantity = Decimal(1)
    """Tokens of the request."""
    cached: Quantity | None = None
    """The part of the request that was read from the provider's cache; `input` by default."""
    cache_write: Quantity | None = None
    """The part of the request that was written to the provider's cache; `input` by default."""
    output: Quantity = Decimal(1)
    """Tokens of the answer."""
    reasoning: Quantity | None = None
    """The part of the answer that was reasoning; `output` by default."""

    @model_validator(mode="after")
    def _countable(self) -> TokenWeights:
        if max(self.nano()) > 10**6 * NANO:
            raise ValueError("a weight is at most 1000000")
        return self

    def nano(self) -> Weights:
        """In billionths."""
        input, output = nano(self.input), nano(self.output)
        return Weights(
            input,
            input if self.cached is None else nano(self.cached),
            input if self.cache_write is None else nano(self.cache_write),
            output,
            output if self.reasoning is None else nano(self.reasoning),
        )


class Budget(BaseModel):
    """How much may be used in a window of time."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)
    stage: ClassVar[int] = STAGE

    name: RuleName | None = None
    """Its name, unique for a team. By default made of the list it stands in: `{list}.budget.{unit}.{window}.{per}`. Usage belongs to name,
    scope and window: whoever changes the limit or the weights keeps it."""
    limit: Quantity
    """How much: a number such as 5M, or US dollars. 0 admits nothing."""
    unit: Literal["weighted_tokens", "usd", "requests"] = "weighted_tokens"
    """What is counted: tokens by their weights, US dollars, or calls that were sent to a provider."""
    per: Per = "team"
    """Who has one of their own: each organisation, team, user, key, model, provider, thread, reply, or value of a tag (`tag:NAME`). A call
    that names no user, thread, reply or such tag is not concerned."""
    window: Annotated[str, AfterValidator(_known_window)] | None = None
    """When it begins anew: `minute`, `hour`, `day`, `week` (from Monday), `month`, `quarter`, never (`total`), or steadily, as `rolling
    24h`. By default `month`, and `total` for threads and replies."""
    timezone: Annotated[str, AfterValidator(_known_zone)] = "UTC"
    """Whose days those are, such as Europe/Rome."""
    weights: TokenWeights = TokenWeights()
    """What a token counts, by what it was. All 1 by default."""
    on_exceeded: Exceeded = "refuse"
    """What happens to a call that would go beyond: it is refused; `wrap_up` tells the model to come to an end, and forbids tools;
    `downgrade` sends it to another model; `warn` lets it go, and says so."""
    grace: Share = Decimal("0.1")
    """How far above the limit `wrap_up` and `downgrade` go before they refuse, as a share of it."""
    cap_output: bool = True
    """Whether answers are capped at what is held for them, so that nobody spends more. Without it a stream is ended when no more can be
    had, and a whole answer may overshoot."""
    unpriced: Literal["refuse", "warn"] = "refuse"
    """In US dollars: what happens where nobody knows the price of a model. `warn` lets the call go, and counts nothing."""
    on_state_error: Literal["refuse", "allow"] = "refuse"
    """What happens while the counters can't be reached: calls are refused, or let go, and what they use is counted afterwards."""
    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    """The models that it is about, as they are asked for: exact names, or with `*`."""
    downgrade_to: str | None = None
    """The model of `downgrade`, by a name under `models`."""
    thresholds: Thresholds | None = None
    """When somebody wants to hear of it."""

    @model_validator(mode="after")
    def _fits_together(self) -> Budget:
        self.span()
        if nano(self.limit) > MOST // 2 or self.grace > 10:
            raise ValueError("is more than can be counted")
        if self.unit == "requests" and self.limit != int(self.limit):
            raise ValueError("a limit of requests is a whole number")
        if (self.on_exceeded == "downgrade") != (self.downgrade_to is not None):
            raise ValueError("`on_exceeded: downgrade` and `downgrade_to` belong together")
        return self

    def span(self) -> Window:
        """
        Raises:
            ValueError: no such window, or no such timezone.
        """
        return window(self.window or ("total" if self.per in ("thread", "reply") else "month"), self.timezone)

    def named(self, origin: str) -> str:
        """Its name in the list `origin`."""
        return self.name or ".".join([origin, "budget", self.unit, self.span().text.replace(" ", "-").replace("/", "-"), self.per])

    def bounds(self, origin: str) -> tuple[Bound, ...]:
        """What it is to a call."""
        terms: Terms = terms_of(self)
        limit = nano(self.limit)
        return (
            Bound(
                kind="budget",
                name=self.named(origin),
                origin=origin,
                unit=self.unit,
                per=self.per,
                window=self.span(),
                limit=limit,
                scope=scope_of(self.per),
                grace=nano_up(self.limit * self.grace) if self.on_exceeded in ("wrap_up", "downgrade") else 0,
                weights=self.weights.nano() if self.unit == "weighted_tokens" else None,
                exceeded=self.on_exceeded,
                on_state_error=self.on_state_error,
                shadow=terms.mode == "shadow",
                capping=self.cap_output and self.unit != "requests" and self.on_exceeded != "warn" and terms.mode == "enforce",
                unpriced=self.unpriced,
                models=self.models,
                downgrade_to=self.downgrade_to or "",
                thresholds=self.thresholds,
                applies=applies_of("budget", terms),
                places={},
            ),
        )
