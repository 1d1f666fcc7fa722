"""What a budget or a rate limit says to a caller: refusals, and the headers that tell what is left. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import ceil
from typing import Any

from ..call.errors import Refused, shortened
from .bounds import Bound, plain
from .ledger.ledger import NANO, Standing
from .windows import SECOND, Rolling

SOON = 60  # seconds: a window that ends sooner is worth waiting for
_WORDS = {"weighted_tokens": "weighted tokens", "usd": "US dollars", "concurrent": "calls at once"}


class TargetRefused(Refused):
    """This target can't be had, as no budget has room for it or it is stopped; another may."""


def scope(bound: Bound, standing: Standing) -> str:
    """Whose it is: `team:search`."""
    return f"{bound.per}:{standing.counter.scope}"


def refused(bound: Bound, standing: Standing, now: int, *, target: bool = False, headers: dict[str, str] | None = None) -> Refused:
    """The error for a call that `bound` refuses, at the instant `now`."""
    told = headers or {}
    if bound.kind == "budget":
        left = None if standing.resets_at is None else ceil((standing.resets_at - now) / SECOND)
        if left is not None and left <= SOON:
            told = {**told, "retry-after": str(max(left, 1))}
        error = (TargetRefused if target else Refused)(
            _budget_words(bound, standing), code="budget_exceeded", headers=told, facts={"budget": facts(bound, standing)}
        )
    else:
        told = {**told, "retry-after": str(retry_after(bound, standing))}
        error = (TargetRefused if target else Refused)(
            _limit_words(bound, standing), code="rate_limit_exceeded", headers=told, facts={"limit": facts(bound, standing)}
        )
    error.source = "policy"
    return error


def unpriced(bound: Bound, scope: str, model: str) -> Refused:
    """The error for a call of which nobody knows what it costs."""
    words = (
        f"Nobody knows what the model {shortened(model)!r} costs, so the budget {bound.name!r} in US dollars can't be kept: ask for "
        "another model, or have its price written under `prices`."
    )
    budget = {"name": bound.name, "scope": f"{bound.per}:{scope}", "unit": bound.unit, "limit": plain(bound.limit)}
    error = TargetRefused(words, code="budget_exceeded", facts={"budget": {**budget, "used": None, "reserved": None, "resets_at": None}})
    error.source = "policy"
    return error


def facts(bound: Bound, standing: Standing) -> dict[str, Any]:
    """The object under `budget` or `limit`."""
    told: dict[str, Any] = {
        "name": bound.name,
        "scope": scope(bound, standing),
        "unit": bound.unit,
        "limit": plain(standing.limit),
        "used": plain(standing.used),
        "reserved": plain(standing.reserved),
        "resets_at": when(standing.resets_at),
    }
    return told | ({"window": bound.window.text} if bound.kind == "rate_limit" else {})


@lru_cache(1024)
def when(at: int | None) -> str | None:
    """An instant in UTC, as JSON has it."""
    return None if at is None else datetime.fromtimestamp(-(-at // SECOND), UTC).isoformat().replace("+00:00", "Z")


def retry_after(bound: Bound, standing: Standing) -> int:
    """Whole seconds, between 1 and the length of the window."""
    longest = ceil(bound.window.length / SECOND) if isinstance(bound.window, Rolling) else 1
    if standing.fits_after is None:
        return longest if standing.limit and isinstance(bound.window, Rolling) else max(longest, 1)
    return min(max(ceil(standing.fits_after), 1), longest)


def _budget_words(bound: Bound, standing: Standing) -> str:
    unit = _WORDS.get(bound.unit, bound.unit)
    of = _whose(bound, standing)
    held = f", and {_shown(standing.reserved)} held for calls under way" if standing.reserved else ""
    anew = f" It begins anew at {when(standing.resets_at)}." if standing.resets_at is not None else ""
    how = "is used up" if standing.used >= standing.limit else "has no room for this call"
    return f"The budget {bound.name!r}{of} {how}: {_shown(standing.used)} of {_shown(standing.limit)} {unit} used{held}.{anew}"


def _limit_words(bound: Bound, standing: Standing) -> str:
    if bound.unit == "interval":
        told = f"one call in {bound.window.text.removeprefix('rolling ')}"
    elif bound.unit == "concurrent":
        told = f"{_shown(standing.limit)} calls at once"
    else:
        told = f"{_shown(standing.limit)} {bound.unit} in {bound.window.text.removeprefix('rolling ')}"
    return f"The rate limit {bound.name!r}{_whose(bound, standing)} is reached: {told}. Wait for the time that retry-after says."


def _whose(bound: Bound, standing: Standing) -> str:
    shown = standing.counter.scope
    return f" of {bound.per} {shortened(shown)}" if shown.strip("/") else ""


def _shown(amount: int) -> str:
    value = plain(amount)
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- what is left, as headers


def limit_headers(told: Sequence[tuple[Bound, Standing]], now: int) -> dict[str, str]:
    """Of the limits of requests and of tokens: the tightest as OpenAI tells it, all of them as lists (RFC 9651)."""
    headers: dict[str, str] = {}
    policies = lefts = ""
    shares: dict[str, float] = {}
    for bound, standing in told:
        header = bound.header
        if header is None:
            continue
        limit, left = standing.limit, standing.remaining
        seconds = 0 if standing.resets_at is None else max(0, -((now - standing.resets_at) // SECOND))
        share, whole = left / limit if limit else -1.0, str(left // NANO)
        policies = f"{policies}, {header.policy}" if policies else header.policy
        lefts = f"{lefts}, {header.name};r={whole};t={seconds}" if lefts else f"{header.name};r={whole};t={seconds}"
        if header.limit not in headers or share < shares[header.limit]:
            shares[header.limit] = share
            headers[header.limit], headers[header.remaining], headers[header.reset] = str(limit // NANO), whole, _lasting(seconds)
    if policies:
        headers["ratelimit-policy"], headers["ratelimit"] = policies, lefts
    return headers


@lru_cache(1024)
def _lasting(seconds: int) -> str:
    """Whole seconds, rounded up: by then it is so."""
    return duration(seconds * SECOND)


def duration(nanoseconds: int) -> str:
    """As Go writes it: 6m0s, 1.5s, 120ms."""
    seconds, milli = divmod(nanoseconds // 10**6, 1000)
    if not seconds:
        return f"{milli}ms" if milli else "0s"
    rest = f".{milli:03}".rstrip("0") if milli else ""
    if seconds < 60:
        return f"{seconds}{rest}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds}{rest}s"
    return f"{minutes // 60}h{minutes % 60}m{seconds}{rest}s"
