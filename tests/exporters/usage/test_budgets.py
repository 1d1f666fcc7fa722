"""exporters/usage/budgets.py: what budgets have used, summed up from notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from spangate.exporters.usage.budgets import TABLE, Budgets
from spangate.exporters.usage.spool_lines import Noted

from accounts import accounts, ended

UNTIL = "2026-12-01T00:00:00Z"


def settled(amount: Any, **more: Any) -> Noted:
    figures = {"name": "b", "scope": "team:search", "unit": "weighted_tokens", "window": "month", "resets_at": UNTIL, "limit": 100}
    return Noted("budget.settled", {**figures, "settled": amount, **more})


def sums(*budgets: Budgets) -> list[tuple[Any, ...]]:
    with duckdb.connect(":memory:") as connection:
        connection.execute(TABLE)
        for each in budgets:
            each.write(connection)
        query = "SELECT organisation, scope, mode, resets_at::VARCHAR, used::DOUBLE, calls FROM budgets ORDER BY ALL"
        return connection.execute(query).fetchall()


def test_they_add_up_within_a_batch_and_between_batches() -> None:
    one, two = Budgets(), Budgets()
    assert one.settled("acme", [settled(10), Noted("access.refused", {}), settled(3, mode="shadow")]) == 10_000_000
    one.settled("acme", [settled(0.123456789)])
    two.settled("acme", [settled(5, resets_at=None), settled(7, scope="provider:openai")])
    two.settled("acme", [settled(1)])
    assert sums(one, two) == [
        ("acme", "team:search", "enforce", "2026-12-01 00:00:00", 11.123456789, 3),
        ("acme", "team:search", "enforce", None, 5.0, 1),
        ("acme", "team:search", "shadow", "2026-12-01 00:00:00", 3.0, 1),
        ("provider:openai", "provider:openai", "enforce", "2026-12-01 00:00:00", 7.0, 1),
    ]


@pytest.mark.parametrize("figures", [{"settled": "much"}, {"settled": True}, {"name": 7}, {"scope": None}])
def test_what_is_no_figure_is_left_out(figures: dict[str, Any]) -> None:
    budgets = Budgets()
    assert budgets.settled("acme", [settled(1, **figures)]) is None
    assert len(budgets) == 0
    assert sums(budgets) == []


@pytest.mark.parametrize("amount", [-5, 1e300, 2**80])
def test_amounts_stay_within_what_a_row_holds(amount: float) -> None:
    budgets = Budgets()
    budgets.settled("acme", [settled(amount)])
    [row] = sums(budgets)
    assert 0 <= row[4] <= 10**19


def test_an_interrupted_call_has_used_what_it_held() -> None:
    budgets = Budgets()
    held = ["b", "team:search", "weighted_tokens", "month", "enforce", UNTIL, 42.5, 100]
    budgets.held("acme", {"input": 3, "output": 5, "budgets": [held, ["broken"], "nothing"]})
    budgets.held("acme", {"budgets": "nothing"})
    assert sums(budgets) == [("acme", "team:search", "enforce", "2026-12-01 00:00:00", 42.5, 1)]


async def test_a_calls_row_bears_the_first_budgets_weights(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        seen = ended()
        seen.notes.add("budget.settled", **settled(93.5).figures)
        usage.record(seen)
        assert await usage.value("SELECT weighted_tokens FROM calls") == 93.5
        assert await usage.value("SELECT used FROM budgets") == 93.5
        assert await usage.value("SELECT count(*) FROM budgets", team="other") == 0


@pytest.mark.parametrize("moved", [False, True])
async def test_what_a_call_held_last_is_what_counts(moved: bool, tmp_path: Path) -> None:
    """A stream that gets a slice more says so again, whether or not the database knows its first line already."""
    seen = ended()  # its end is never told
    async with accounts(tmp_path) as usage:
        for amount in (10, 25):
            held = ["b", "team:search", "weighted_tokens", "month", "enforce", UNTIL, amount, 100]
            usage.opened(seen, {"input": 3, "output": amount, "budgets": [held]})
            if moved:
                assert await usage.writer.caught_up()
    async with accounts(tmp_path) as usage:
        assert await usage.rows("SELECT outcome, output_tokens FROM calls") == [["interrupted", 25]]
        assert await usage.rows("SELECT used, calls FROM budgets") == [[25.0, 1]]
