"""rate_limit: how many calls and tokens in a time, how many at once, how far apart; for each key by default.

These are the settings. What is held for a call and when that is settled stands in admission.py, what a refusal says in refusals.py.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from ..call.amounts import Duration, Number, Rate, RateOf, show_seconds
from .bounds import STAGE, Bound, RuleName, Unit, Weights, applies_of, scope_of
from .ledger.ledger import NANO
from .terms import Terms, terms_of
from .windows import InFlight, Window, window


class RateLimit(BaseModel):
    """How many calls and tokens in a time, and how many at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)
    stage: ClassVar[int] = STAGE

    name: RuleName | None = None
    """Its name, unique for a team. By default made of the list it stands in: `{list}.rate_limit.{per}`."""
    requests: RateOf | None = None
    """Calls in a time, such as 600/min: in any time so long, wherever it begins."""
    tokens: RateOf | None = None
    """Tokens of requests and answers, such as 200k/min. What a call will hardly exceed is held for it, and what it has used counts."""
    concurrent: Number | None = None
    """Calls at once."""
    interval: Duration | None = None
    """The time between the begins of two calls, at least 1s."""
    per: Literal["key", "team", "user", "model", "provider"] = "key"
    """Who has one of their own. A call that names no user is not concerned by a limit per user."""
    wait: Duration = 0.0
    """How long a call that is too many waits for its turn before it is refused. First come, first served."""
    on_state_error: Literal["local", "refuse", "allow"] = "local"
    """What happens while the counters that gateways share can't be reached: each counts alone, or calls are refused, or let go."""

    @model_validator(mode="after")
    def _fits_together(self) -> RateLimit:
        if all(each is None for each in (self.requests, self.tokens, self.concurrent, self.interval)):
            raise ValueError("needs one of requests, tokens, concurrent, interval")
        if self.interval is not None and self.interval < 1:
            raise ValueError("an interval is at least 1s")
        return self

    def named(self, origin: str) -> str:
        """Its name in the list `origin`."""
        return self.name or f"{origin}.rate_limit.{self.per}"

    def bounds(self, origin: str) -> tuple[Bound, ...]:
        """What it is to a call: one for each thing that it limits."""
        found: list[tuple[Unit, Window, int]] = []
        if self.requests is not None:
            found.append(("requests", *_in(self.requests)))
        if self.tokens is not None:
            found.append(("tokens", *_in(self.tokens)))
        if self.concurrent is not None:
            found.append(("concurrent", InFlight(), self.concurrent * NANO))
        if self.interval is not None:
            found.append(("interval", window(f"rolling {show_seconds(self.interval)}"), NANO))
        return tuple(self._bound(origin, *each) for each in found)

    def _bound(self, origin: str, unit: Unit, when: Window, limit: int) -> Bound:
        terms: Terms = terms_of(self)
        return Bound(
            kind="rate_limit",
            name=self.named(origin),
            origin=origin,
            unit=unit,
            per=self.per,
            window=when,
            limit=limit,
            scope=scope_of(self.per),
            weights=Weights() if unit == "tokens" else None,
            on_state_error=self.on_state_error,
            shadow=terms.mode == "shadow",
            wait=self.wait,
            applies=applies_of("rate_limit", terms),
            places={},
        )


def _in(rate: Rate) -> tuple[Window, int]:
    return window(f"rolling {show_seconds(rate.seconds)}"), rate.amount * NANO
