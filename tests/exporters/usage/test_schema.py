"""The tables and views, and how an older database becomes a newer one."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from spangate.call.events import Usage
from spangate.exporters.usage import schema
from spangate.exporters.usage.schema import MIGRATIONS, TABLES, VIEWS, NewerDatabase, migrate

from accounts import accounts, ended
from house.source import ROOT

PAGE = (ROOT / "docs/usage.md").read_text("utf-8")

# The contract with everybody who writes SQL: changed only with a change note.
COLUMNS = {
    "calls": "id client_request_id trace_id started_at ended_at organisation team key user thread reply tags op stream model provider "
    "target_model status outcome error_code input_tokens cached_tokens cache_write_tokens output_tokens reasoning_tokens weighted_tokens "
    "usage_source cost cost_source duration_ms first_token_ms overhead_ms attempts config_version",
    "attempts": "call_id number provider target_model started_at ended_at status outcome error_type input_tokens cached_tokens "
    "cache_write_tokens output_tokens reasoning_tokens weighted_tokens cost upstream_request_id span_id reason",
    "decisions": "call_id policy rule kind verdict mode figures config_version",
}


@pytest.fixture
def connection() -> Iterator[Any]:
    made = duckdb.connect(":memory:")
    yield made
    made.close()


def columns(connection: Any, table: str) -> str:
    found = connection.execute("SELECT column_name FROM duckdb_columns() WHERE table_name = $1 ORDER BY column_index", [table]).fetchall()
    return " ".join(name for (name,) in found)


def test_the_columns_are_those_of_the_contract(connection: Any) -> None:
    migrate(connection)
    assert set(TABLES) == set(COLUMNS)
    for table, names in COLUMNS.items():
        assert columns(connection, table) == names


def test_a_second_time_changes_nothing(connection: Any) -> None:
    migrate(connection)
    connection.execute("INSERT INTO calls (id) VALUES ('x')")
    migrate(connection)
    assert connection.execute("SELECT id FROM calls").fetchall() == [("x",)]
    assert connection.execute("SELECT number FROM spangate.version").fetchall() == [(number + 1,) for number in range(len(MIGRATIONS))]


def test_a_newer_database_is_left_alone(connection: Any) -> None:
    migrate(connection)
    connection.execute("INSERT INTO spangate.version VALUES (99, now())")
    with pytest.raises(NewerDatabase, match="version 99, and this spangate knows 2: update spangate"):
        migrate(connection)


def test_each_view_adds_up(connection: Any) -> None:
    migrate(connection)
    connection.execute(
        """INSERT INTO calls BY NAME SELECT 'req_' || range AS id, now() AT TIME ZONE 'UTC' AS started_at, 'default' AS organisation,
        CASE WHEN range % 2 = 0 THEN 'a' ELSE 'b' END AS team, 'm' AS model, 'p' AS provider, 't' AS target_model,
        CASE WHEN range < 6 THEN 'completed' ELSE 'refused' END AS outcome, 10 AS input_tokens, 4 AS cached_tokens, 1 AS output_tokens,
        11 AS weighted_tokens, 0.5 AS cost, 'estimated' AS usage_source, 'catalog' AS cost_source, 100 AS duration_ms FROM range(10)"""
    )
    teams = connection.execute("SELECT team, calls, completed, refused, input_tokens, cost, weighted_tokens FROM usage_by_team").fetchall()
    assert teams == [("a", 5, 3, 2, 50, Decimal("2.5"), Decimal(55)), ("b", 5, 3, 2, 50, Decimal("2.5"), Decimal(55))]
    for view in ("usage_daily", "usage_by_team", "usage_by_model"):
        totals = f"SELECT sum(calls), sum(cost), sum(cached_tokens), sum(estimated_calls) FROM {view}"
        assert connection.execute(totals).fetchall() == [(10, Decimal(5), 40, 10)]
    assert connection.execute("SELECT mean_duration_ms FROM usage_by_model").fetchall() == [(100.0,)]


def test_a_forecast(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the 10th at noon: 100 $ this month; 14 $ in the last seven days, so 2 $ for each of the 21.5 days that are left (of 31)."""
    now = dt.datetime(2026, 1, 10, 12)  # noqa: DTZ001 - columns are UTC without saying so
    connection.execute(
        "CREATE TABLE calls (started_at TIMESTAMP, organisation VARCHAR, team VARCHAR, cost DECIMAL(18, 9), weighted_tokens BIGINT, "
        "usage_source VARCHAR, cost_source VARCHAR)"
    )
    for days, cost in ((0.5, 7), (6.9, 7), (7.1, 86), (10, 1000)):
        sql = "INSERT INTO calls VALUES ($1, 'default', 'a', $2, 5, 'provider', 'catalog')"
        connection.execute(sql, [now - dt.timedelta(days=days), cost])
    query = VIEWS["spend_forecast"].format(calls="calls").replace(schema._NOW, "TIMESTAMP '2026-01-10 12:00:00'")
    assert query.count("2026-01-10") > 3
    [row] = connection.execute(query).fetchall()
    assert row[:5] == ("default", "a", dt.date(2026, 1, 1), Decimal(100), 15)
    assert row[5:] == (pytest.approx(2.0, rel=0.05), pytest.approx(143.0, rel=0.02), 0, 0)


def test_a_forecast_of_what_nobody_could_price_is_null(connection: Any) -> None:
    migrate(connection)
    connection.execute(
        """INSERT INTO calls BY NAME SELECT * FROM (VALUES ('a', NULL, 'unpriced', 'estimated'), ('b', NULL, 'unpriced', 'provider'),
        ('b', 0.5, 'catalog', 'provider'), ('c', NULL, '', 'none')) AS given (team, cost, cost_source, usage_source),
        (SELECT now() AT TIME ZONE 'UTC' AS started_at, 'default' AS organisation)"""
    )
    query = "SELECT team, cost, daily_cost, forecast_cost, estimated_calls, unpriced_calls FROM spend_forecast"
    nothing, some, refused = connection.execute(query).fetchall()
    assert nothing == ("a", None, None, None, 1, 1)
    assert some[:3] == ("b", Decimal("0.5"), 0.5)
    assert some[4:] == (0, 1)
    assert refused == ("c", 0, 0, 0, 0, 0)


def test_the_page_tells_every_column_of_each_view(connection: Any) -> None:
    """One list for what all of them count, and one of its own for each."""
    migrate(connection)
    told = PAGE.partition("## Views")[2].partition("## Examples")[0]
    [sums] = re.findall(r"^Sums: (.*?)\n\n", told, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", told, re.MULTILINE)
    assert {view for view, _, _ in rows} == VIEWS.keys()
    for view, grouped, others in rows:
        listed = others.replace("sums", sums) if "sums" in others else others
        assert " ".join(re.findall(r"`(\w+)`", f"{grouped} {listed}")) == columns(connection, view)


def test_the_first_query_of_the_readme_has_one_row_a_model(connection: Any) -> None:
    migrate(connection)
    for model, target in (("fast", "a"), ("fast", "b"), ("", "")):
        connection.execute("INSERT INTO calls (model, target_model) VALUES ($1, $2)", [model, target])
    [query] = re.findall(r'^spangate sql "(.*)"$', (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert connection.execute(query).fetchall() == [("fast", 2, None)]


async def test_views_of_nothing(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for view in VIEWS:
            assert await usage.rows(f"SELECT * FROM {view}") == []


async def test_the_views_say_what_was_recorded(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for number in range(5):
            usage.record(ended(usage=Usage(10, number)))
        usage.record(ended(outcome="failed", status=502))
        found = await usage.rows(
            "SELECT team, model, calls, completed, failed, input_tokens, output_tokens, unpriced_calls FROM usage_daily"
        )
        assert found == [["search", "fast", 6, 5, 1, 63, 30, 6]]
