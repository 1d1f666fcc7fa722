"""policies/meter.py: before an attempt it is held, after it it is counted, and a provider has limits of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import pytest

from spangate.call.call import Call, Target
from spangate.call.chain import Next, Policy, pulling
from spangate.call.errors import Refused, UpstreamError
from spangate.call.events import Closed, Event, Opened
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, StateUnavailable
from spangate.policies.rate_limit import RateLimit
from spangate.policies.refusals import TargetRefused

from admitting import Gate, notes
from ledgers import Gone, claim

USES_30 = [{"usage": {"input": 10, "output": 20}}]


@pytest.mark.fault("USE-14")
async def test_what_it_costs_is_the_price_of_the_target_that_answered() -> None:
    asked: list[Target] = []

    def pricing(target: Target) -> Any:
        asked.append(target)
        return lambda i, o, *_: (i + o) * 10**9 if target.model == "m-big" else None

    budget = Budget.model_validate({"name": "b", "limit": 1000, "unit": "usd", "window": "total"})
    gate = Gate(budget, script=USES_30, pricing=pricing, to=lambda call: Target("script", "m-big"))
    await gate.ask(model="chat-smart", max_tokens=100)
    assert await gate.figures("b") == (30, 0)
    assert set(asked) == {Target("script", "m-big")}


PRICES = {"dear": 100, "cheap": 1}
SAID = [{"when": {"model": "dear"}, "usage": {"input": 1, "output": 2}}, *USES_30]


async def retried(call: Call, next: Next) -> AsyncIterator[Event]:
    """The dear target, and when that fails the cheap one."""
    with suppress(UpstreamError):
        async with pulling(next(call.to(Target("script", "dear")))) as events:
            async for event in events:
                yield event
    async with pulling(next(call.to(Target("script", "cheap")))) as events:
        async for event in events:
            yield event


async def given_up(call: Call, next: Next) -> AsyncIterator[Event]:
    """One attempt is made ready, and another one sent."""
    await cast("Any", next(call.to(Target("script", "dear")))).aclose()
    async with pulling(next(call.to(Target("script", "cheap")))) as events:
        async for event in events:
            yield event


async def swapped(call: Call, next: Next) -> AsyncIterator[Event]:
    """Two attempts, of which the second is made ready last and sent first."""
    dear, cheap = next(call.to(Target("script", "dear"))), next(call.to(Target("script", "cheap")))
    async with pulling(cheap) as events:
        async for _ in events:
            pass
    async with pulling(dear) as events:
        async for event in events:
            yield event


async def never(call: Call, next: Next) -> AsyncIterator[Event]:
    """An attempt is made ready, and nothing is sent."""
    await cast("Any", next(call.to(Target("script", "dear")))).aclose()
    yield Opened(stream=False)
    yield Closed(None, "stop")


async def down(call: Call, next: Next) -> AsyncIterator[Event]:
    """A layer inside of the meter that lets nobody ask the dear target."""
    if call.target == Target("script", "dear"):
        raise UpstreamError("down", status=503)
    async with pulling(next(call)) as events:
        async for event in events:
            yield event


@pytest.mark.fault("USE-14")
@pytest.mark.parametrize(
    ("layer", "within", "tokens", "cost", "requests"),
    [
        (retried, [down], 30, 0.03, 1),
        (given_up, [], 30, 0.03, 1),
        (swapped, [], 33, 0.33, 1),
        (never, [], 0, 0, 0),
    ],
)
async def test_each_attempt_that_came_about_counts_once_at_its_own_price(
    layer: Policy, within: list[Policy], tokens: int, cost: float, requests: int
) -> None:
    budgets = [
        Budget.model_validate({"name": name, "limit": 1000, "unit": unit, "window": "total"})
        for name, unit in (("tokens", "weighted_tokens"), ("cost", "usd"), ("requests", "requests"))
    ]
    gate = Gate(
        *budgets,
        script=SAID,
        inside=[layer],
        within=within,
        pricing=lambda target: lambda i, o, *_: (i + o) * PRICES[target.model] * NANO // 1000,
        to=lambda call: call.target or Target("script", "dear"),
    )
    await gate.ask(max_tokens=50)
    assert [await gate.figures(each.name or "") for each in budgets] == [(tokens, 0), (cost, 0), (requests, 0)]


@pytest.mark.parametrize(("unpriced", "refuses"), [("refuse", True), ("warn", False)])
async def test_a_model_without_a_price(unpriced: str, refuses: bool) -> None:
    gate = Gate(Budget.model_validate({"name": "b", "limit": 1, "unit": "usd", "unpriced": unpriced}), script=USES_30)
    if refuses:
        with pytest.raises(Refused, match="Nobody knows what the model 'm' costs") as caught:
            await gate.ask()
        assert caught.value.code == "budget_exceeded"
        assert not gate.received
        return
    heard = await gate.ask()
    assert notes(heard, "budget.unpriced")[0]["verdict"] == "warn"
    assert await gate.figures("b") == (0, 0)


async def test_a_provider_has_limits_across_teams() -> None:
    gate = Gate(
        RateLimit.model_validate({"requests": "2/min", "per": "provider"}),
        Budget.model_validate({"name": "b", "limit": 100, "per": "provider", "window": "day"}),
        script=USES_30,
    )
    heard = await gate.ask(max_tokens=50)
    assert await gate.figures("b") == (30, 0)
    assert notes(heard, "budget.settled")[0]["scope"] == "provider:script"
    await gate.ask(max_tokens=20)
    with pytest.raises(TargetRefused) as caught:
        await gate.ask(max_tokens=20)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.facts["limit"]["scope"] == "provider:script"
    assert await gate.figures("b") == (60, 0)
    assert len(gate.received) == 2


@pytest.mark.fault("RL-01")
@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("local", ["", "", "rate_limit_exceeded"]),
        ("allow", ["", "", ""]),
        ("refuse", ["state_unavailable"] * 3),
    ],
)
async def test_limits_of_a_provider_while_the_counters_are_away(then: str, told: list[str]) -> None:
    ledger = Gone()
    limit = {"requests": "2/min", "tokens": "1M/min", "concurrent": 1, "per": "provider", "on_state_error": then}
    gate = Gate(RateLimit.model_validate(limit), ledger=ledger, script=USES_30)
    ledger.away = True
    seen = []
    for _ in range(3):
        try:
            await gate.ask(max_tokens=20)
            seen.append("")
        except (Refused, StateUnavailable) as error:
            seen.append(error.code)
    assert seen == told
    assert len(gate.received) == told.count("")
    asked = claim("list.rate_limit.provider tokens provider", 0, 1, "rolling 1m", scope="script", home="provider:script")
    [tokens] = await gate.books.local.read([asked])
    assert tokens.used == (60 * NANO if then == "local" else 0)
    assert (ledger.open, gate.books.local.open) == (0, 0)


async def test_calls_of_teams_without_rules_are_not_metered() -> None:
    gate = Gate(script=USES_30)
    heard = await gate.ask()
    assert heard.call.meter is None
    assert gate.books.tokens.input_errors.calls == 0
