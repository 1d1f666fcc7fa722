"""proxy/standings.py: budgets and limits as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spangate.call.call import Caller
from spangate.policies.bounds import Bound
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Counter, Standing
from spangate.policies.windows import SECOND
from spangate.proxy.standings import all_budgets, estimates, figures, forecast, of_key, row

from case import KEY, case, key_hash
from midday import MIDDAY
from upstream import chat_completion, http, play

MIDNIGHT = 1_788_220_800 * SECOND  # a first of September


def bound(**more: Any) -> Bound:
    [made] = Budget.model_validate({"name": "b", "limit": 100, **more}).bounds("list")
    return made


def standing(made: Bound, used: int) -> Standing:
    return Standing(Counter("acme", made.counter_name, "search", made.window), made.limit, used * NANO, 0, resets_at=None)


@pytest.mark.parametrize(
    ("window", "hours", "used", "wanted"),
    [
        ("day", 6, 10, 40),
        ("day", 23.99, 10, 10),
        ("month", 24 * 15, 10, 20),
        ("total", 5, 10, 10),
        ("rolling 24h", 5, 10, 10),
        ("day", 0, 10, 10),
    ],
)
def test_what_a_budget_comes_to(window: str, hours: float, used: int, wanted: int) -> None:
    made = bound(window=window)
    assert forecast(made, standing(made, used), MIDNIGHT + round(hours * 3600) * SECOND) / NANO == pytest.approx(wanted, rel=0.01)


def test_a_row_says_all_of_it() -> None:
    made = bound(unit="usd", window="total")
    assert row(made, standing(made, 30), MIDNIGHT) == {
        "name": "b", "scope": "team:search", "unit": "usd", "window": "total", "limit": 100, "used": 30, "reserved": 0, "remaining": 70,
        "resets_at": None, "forecast": 30,
    }  # fmt: skip


async def test_who_sees_what(tmp_path: Path) -> None:
    policies = [
        {"budget": {"name": "b", "limit": 1000, "window": "day", "timezone": MIDDAY}},
        {"budget": {"name": "t", "limit": 1000, "per": "thread"}},
        {"budget": {"name": "p", "limit": "1M", "per": "provider", "window": "day", "timezone": MIDDAY}},
        {"rate_limit": {"concurrent": 5, "requests": "9/min", "per": "team"}},
    ]
    team = {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": policies}
    answer = play(http(200, [("content-type", "application/json")], chat_completion("x", (10, 20))))
    async with case(tmp_path, answer, teams={"search": team}) as it:
        await it.ask({"max_tokens": 50}, headers=[("x-spangate-thread", "t1")])
        gateway = it.running.app.endpoints.gateway
        rows = await all_budgets(gateway)
        assert {(each["name"], each["scope"], each["used"]) for each in rows} == {
            ("b", "team:search", 30), ("t", "thread:search/t1", 30), ("p", "provider:up", 30), ("p", "provider:script", 0)
        }  # fmt: skip
        assert {(each.name, each.scope, each.whose, each.used) for each in await figures(gateway)} == {
            ("b", "team", "search", 30.0), ("p", "provider", "up", 30.0), ("p", "provider", "script", 0.0)
        }  # fmt: skip
        limits, budgets = await of_key(gateway, Caller("default", "search", "ci"))
        assert [each["unit"] for each in limits] == ["requests", "concurrent"]
        assert [each["name"] for each in budgets] == ["b"]
        assert estimates(gateway.books)["input", "used"] == 10
