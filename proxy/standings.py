"""How budgets and limits stand, as rows: for a key's holder, for the operator, for metrics. Reads the ledger, reserves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..call.call import Caller
from ..exporters.metrics.sources import BudgetFigures
from ..policies.bounds import Bound, plain
from ..policies.charge import Books
from ..policies.ledger.ledger import NANO, Claim, Counter, Standing
from ..policies.refusals import scope, when
from ..policies.windows import Calendar, Rolling
from .gateway import Gateway

MOST = 10_000  # rows

Row = dict[str, Any]


async def of_key(gateway: Gateway, caller: Caller) -> tuple[list[Row], list[Row]]:
    """Limits and budgets of whoever holds the key: what is known of them without a call.

    Raises:
        StateUnavailable: nobody knows how they stand.
    """
    known = {"organisation": caller.organisation, "team": caller.team, "key": f"{caller.team}/{caller.key}" if caller.team else caller.key}
    bounds = [bound for bound in gateway.bounds_of(caller.team) if bound.per in known and not bound.shadow]
    found = await _read(gateway, [(bound, bound.place_of(caller.organisation, known[bound.per]).counter) for bound in bounds])
    rows = [(bound.kind, row(bound, standing, gateway.clock.wall())) for bound, standing in found]
    return [told for kind, told in rows if kind == "rate_limit"], [told for kind, told in rows if kind == "budget"]


async def all_budgets(gateway: Gateway) -> list[Row]:
    """Every budget that is configured for an organisation, a team or a key, and every other that anything is counted on.

    Raises:
        StateUnavailable: nobody knows how they stand.
    """
    wanted: dict[Counter, Bound] = {}
    by_name: dict[tuple[str, str], Bound] = {}
    homes: dict[str, None] = {}
    for caller in callers(gateway):
        homes[caller.organisation] = None
        for bound in gateway.bounds_of(caller.team):
            if bound.kind != "budget":
                continue
            by_name.setdefault((caller.organisation, bound.counter_name), bound)
            scopes = {"organisation": caller.organisation, "team": caller.team, "key": f"{caller.team}/{caller.key}"}
            if bound.per in scopes and not (bound.per == "key" and not caller.key):
                wanted.setdefault(Counter(caller.organisation, bound.counter_name, scopes[bound.per], bound.window), bound)
            elif bound.per == "provider":
                for name in gateway.providers:
                    wanted.setdefault(Counter(f"provider:{name}", bound.counter_name, name, bound.window), bound)
    found = await _read(gateway, [(bound, counter) for counter, bound in wanted.items()])
    for home in homes:
        for standing in await gateway.books.ledger.every(home, MOST):
            counter = standing.counter
            bound_there = by_name.get((home, counter.name))
            if bound_there is not None and counter not in wanted and counter.window == bound_there.window:
                found.append((bound_there, standing))
    now = gateway.clock.wall()
    return [{"organisation": standing.counter.home, **row(bound, standing, now)} for bound, standing in found]


def callers(gateway: Gateway) -> Iterable[Caller]:
    """Everybody who has a key, each team once without one, and the one of an open gateway."""
    config = gateway.config
    for team in config.settings.teams:
        yield Caller(config.organisation_of(team), team, "")
    for held in config.keys:
        yield Caller(config.organisation_of(held.team), held.team, held.key.name)
    if not config.settings.teams:
        yield Caller()


async def _read(gateway: Gateway, asked: Sequence[tuple[Bound, Counter]]) -> list[tuple[Bound, Standing]]:
    if not asked:
        return []
    standings = await gateway.books.ledger.read([Claim(counter, 0, bound.limit) for bound, counter in asked])
    return [(bound, standing) for (bound, _), standing in zip(asked, standings, strict=True)]


def row(bound: Bound, standing: Standing, now: int) -> Row:
    """One counter."""
    limit = bound.limit
    return {
        "name": bound.name,
        "scope": scope(bound, standing),
        "unit": bound.unit,
        "window": bound.window.text,
        "limit": plain(limit),
        "used": plain(standing.used),
        "reserved": plain(standing.reserved),
        "remaining": plain(max(0, limit - standing.used - standing.reserved)),
        "resets_at": when(standing.resets_at),
        **({"mode": "shadow"} if bound.shadow else {}),
        **({"forecast": plain(_rounded(bound, forecast(bound, standing, now)))} if bound.kind == "budget" else {}),
    }


def _rounded(bound: Bound, amount: int) -> int:
    """A guess has no use for more digits."""
    digit = NANO // 10**4 if bound.unit == "usd" else NANO
    return round(amount / digit) * digit


def forecast(bound: Bound, standing: Standing, now: int) -> int:
    """What will be used when the window ends, if it goes on like this; of one that never ends, or moves, what is used."""
    window = bound.window
    if isinstance(window, Rolling) or not isinstance(window, Calendar):
        return standing.used
    span = window.span(now)
    if span.end is None or now <= span.start:
        return standing.used
    elapsed, whole = now - span.start, span.end - span.start
    return standing.used * whole // max(elapsed, whole // 1000)


async def figures(gateway: Gateway) -> list[BudgetFigures]:
    """Budgets of what the configuration names, for metrics.

    Raises:
        StateUnavailable: nobody knows how they stand.
    """
    found = []
    for each in await all_budgets(gateway):
        per, _, whose = each["scope"].partition(":")
        if per in ("organisation", "team", "provider") and "mode" not in each:
            known = (each["name"], per, whose, each["window"], each["unit"])
            found.append(BudgetFigures(*known, float(each["limit"]), float(each["used"]), float(each["reserved"])))
    return found


def estimates(books: Books) -> Mapping[tuple[str, str], int]:
    """How good estimates of tokens were so far."""
    errors = {"input": books.tokens.input_errors, "output": books.tokens.output_errors}
    kinds = ("estimated", "used", "beyond")
    return {(type, kind): getattr(each, kind) for type, each in errors.items() if each.calls for kind in kinds}


async def test_webhooks(gateway: Gateway) -> list[Row]:
    """Send one request to each webhook of a budget: what it answers."""
    webhooks, told = gateway.books.webhooks, []
    seen: set[tuple[str, str]] = set()
    for caller in callers(gateway):
        for bound in gateway.bounds_of(caller.team):
            thresholds = bound.thresholds
            if webhooks is None or thresholds is None or not thresholds.webhook or (bound.name, thresholds.webhook) in seen:
                continue
            seen.add((bound.name, thresholds.webhook))
            event = {"event": "budget.test", "organisation": caller.organisation, "name": bound.name, "unit": bound.unit}
            told.append(
                {"name": bound.name, "host": urlsplit(thresholds.webhook).hostname, "answer": await webhooks.test(thresholds, event)}
            )
    return told
