"""SQL as people run it: what they see, what a team can't see, and what is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from spangate.call.errors import CallerFault, OurFault
from spangate.call.events import Usage
from spangate.exporters.usage.sql import LARGEST, Sql, team_views

from .test_sql_guard import ELSEWHERE, ENDLESS, NOT_ONE_SELECT
from accounts import Accounts, accounts, ended
from gateway import until

SECRET = "alice-of-legal"


@asynccontextmanager
async def two_teams(folder: Path) -> AsyncIterator[Accounts]:
    """Ten calls of `search`, twenty of `legal`, whose users have a name that `search` must never read."""
    async with accounts(folder) as usage:
        for number in range(30):
            team, user = ("search", "bob") if number % 3 == 0 else ("legal", f"{SECRET}-{number}")
            seen = ended(team=team, user=user, model=f"model-of-{team}", usage=Usage(100, number))
            seen.notes.add("budget.reserved", used=number, scope=f"team:{team}")
            usage.record(seen)
        yield usage


async def test_columns_types_and_rows_that_json_can_say(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        usage.record(ended(tags={"env": "prod"}))
        asked = "SELECT team, tags, started_at, weighted_tokens, cost, stream, figures FROM calls, (SELECT NULL AS figures)"
        answer = await usage.sql.query(asked)
        assert answer.columns == ("team", "tags", "started_at", "weighted_tokens", "cost", "stream", "figures")
        assert answer.types[:5] == ("VARCHAR", "MAP(VARCHAR, VARCHAR)", "TIMESTAMP", "DECIMAL(18,6)", "DECIMAL(18,9)")
        assert answer.rows == [["search", {"env": "prod"}, "2023-11-14T22:13:20", 33.0, None, False, None]]
        assert not answer.truncated


async def test_every_call_that_ended_before_is_seen(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for number in range(1, 8):
            usage.record(ended())
            assert await usage.value("SELECT count(*) FROM calls") == number


async def test_parameters(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as usage:
        assert await usage.rows("SELECT count(*) FROM calls WHERE team = $1 AND output_tokens > $2", ["legal", 20]) == [[6]]
        answer = await usage.sql.query("SELECT count(*) FROM calls WHERE team = $team", {"team": "x' OR 1 = 1 --"})
        assert answer.rows == [[0]]
        with pytest.raises(CallerFault):
            await usage.rows("SELECT $1", [])


async def test_more_rows_than_may_be_are_cut_off(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        answer = await usage.sql.query("SELECT * FROM range(1000000)")
        assert (len(answer.rows), answer.truncated) == (10_000, True)
        answer = await usage.sql.query("SELECT * FROM range(10000)")
        assert (len(answer.rows), answer.truncated) == (10_000, False)


WIDE = [
    "SELECT a, a, a, a, a, a FROM (SELECT max(range, 64) OVER () AS a FROM range(100000))",
    "SELECT a, a, a, a, a, a FROM (SELECT max(range::VARCHAR, 64) OVER () AS a FROM range(100000))",
    "SELECT a, a, a, a, a, a FROM (SELECT {'a': max(range, 64) OVER ()} AS a FROM range(100000))",
]


async def test_what_is_in_lists_counts(tmp_path: Path) -> None:
    """Ten thousand rows would be few enough, but not of these."""
    async with accounts(tmp_path) as usage:
        for sql in WIDE:
            rss = psutil.Process().memory_info().rss
            answer = await usage.sql.query(sql)
            assert answer.truncated
            assert LARGEST / (6 * 64 * 25) < len(answer.rows) < LARGEST / (6 * 64 * 16), sql
            assert psutil.Process().memory_info().rss - rss < 256 << 20, sql


async def test_a_team_sees_its_own_rows(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as usage:
        for team, count in (("search", 10), ("legal", 20), ("nobody", 0)):
            assert await usage.value("SELECT count(*) FROM calls", team=team) == count
            assert await usage.value("SELECT count(*) FROM attempts", team=team) == count
            assert await usage.value("SELECT count(*) FROM decisions", team=team) == count
            for view in ("usage_daily", "usage_by_team", "usage_by_model", "spend_forecast"):
                rows = await usage.rows(f"SELECT * FROM {view}", team=team)
                assert len(rows) == (0 if team == "nobody" or view == "spend_forecast" else 1), (view, rows)
        assert await usage.rows("SELECT team, calls, input_tokens FROM usage_by_team") == [["legal", 20, 2000], ["search", 10, 1000]]


TRICKS = [
    # conditions that fail on a row of somebody else's, and would tell of it
    'SELECT count(*) FROM calls WHERE "user"::BIGINT = 1',
    "SELECT count(*) FROM calls WHERE CASE WHEN team = 'legal' THEN \"user\"::BIGINT ELSE 1 END = 1",
    "SELECT count(*) FROM calls WHERE CASE WHEN output_tokens = 29 THEN model::BIGINT ELSE 1 END = 1",
    "SELECT sum(CASE WHEN team <> 'search' THEN \"user\"::BIGINT ELSE 0 END) FROM calls",
    "SELECT count(*) FROM calls a JOIN calls b ON a.\"user\"::BIGINT = b.output_tokens AND a.team <> 'search'",
    "SELECT count(*) FROM attempts WHERE CASE WHEN output_tokens = 29 THEN call_id::BIGINT ELSE 1 END = 1",
    "SELECT count(*) FROM decisions WHERE CASE WHEN figures->>'scope' = 'team:legal' THEN (figures->>'scope')::BIGINT ELSE 1 END = 1",
    "SELECT team, max(\"user\") FROM calls GROUP BY ALL",
    "SELECT * FROM usage_by_team WHERE CASE WHEN team <> 'search' THEN team::BIGINT ELSE 1 END = 1",
    "SELECT max(DISTINCT team || model, 16) FROM (SELECT * FROM calls UNION ALL SELECT * FROM calls)",
    "SELECT (SELECT max(c.\"user\") FROM calls c WHERE c.team <> calls.team) FROM calls",
    "WITH x AS (SELECT * FROM calls) SELECT * FROM x WHERE team IN (SELECT team FROM usage_daily)",
    "SELECT * FROM calls c, LATERAL (SELECT * FROM calls d WHERE d.team <> c.team)",
    "SELECT min(\"user\"), max(\"user\"), approx_count_distinct(team) FROM calls",
    "SELECT rowid, * FROM calls",
    "SELECT calls FROM calls",
    "SELECT call_id FROM attempts WHERE call_id NOT IN (SELECT id FROM calls)",
    "SELECT * FROM calls TABLESAMPLE 100%",
    "SELECT count(*) FROM calls WHERE team = ANY (SELECT DISTINCT team FROM calls)",
    "SELECT * FROM calls ORDER BY CASE WHEN team <> 'search' THEN \"user\"::BIGINT END",
]  # fmt: skip


async def test_nothing_of_another_team_comes_out(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as usage:
        for sql in TRICKS:
            try:
                said = repr(await usage.rows(sql, team="search"))
            except CallerFault as error:
                said = error.message
            assert SECRET not in said, sql
            assert "legal" not in said, sql


async def test_no_condition_crosses_the_fence(tmp_path: Path) -> None:
    """However DuckDB optimizes: what a team's SQL asks is asked of rows that are known to be the team's."""
    async with two_teams(tmp_path) as usage:
        assert await usage.writer.caught_up()
        cursor = usage.writer.store.connection.cursor()
        for statement in team_views("usage", "search"):
            cursor.execute(statement)
        for table, condition in (("calls", "id LIKE '%x'"), ("attempts", "call_id LIKE '%x'"), ("decisions", "kind::BIGINT = 1")):
            [(_, plan)] = cursor.execute(f"EXPLAIN SELECT * FROM {table} WHERE {condition}").fetchall()
            assert 0 <= plan.index("Filter ") < plan.index("Streaming Limit"), plan
        cursor.close()


async def test_what_fails_on_their_rows_alone_does_not_fail(tmp_path: Path) -> None:
    """Each row of `legal` would break these conditions, and no row of `search` does."""
    async with two_teams(tmp_path) as usage:
        for table, theirs, text in (
            ("calls", "team = 'legal'", '"user"'),
            ("decisions", "figures->>'scope' = 'team:legal'", "kind"),
            ("attempts", "output_tokens % 3 <> 0", "call_id"),
        ):
            breaks = f"CASE WHEN {theirs} THEN {text}::BIGINT ELSE 1 END = 1"
            assert await usage.value(f"SELECT count(*) FROM {table} WHERE {breaks}", team="search") == 10


async def test_a_team_that_is_no_name(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for team in ["x'; DROP TABLE calls; --", "a b", "x" * 65, 'a"b', "a\nb", "é"]:
            with pytest.raises(CallerFault, match="no such team"):
                await usage.rows("SELECT 1", team=team)


async def test_hostile_statements_change_nothing(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as usage:
        rss = psutil.Process().memory_info().rss
        for sql in [*NOT_ONE_SELECT, *ELSEWHERE, *ENDLESS]:
            for team in (None, "search"):
                with pytest.raises(CallerFault):
                    await usage.sql.query(sql, team=team)
        assert await usage.value("SELECT count(*) FROM calls") == 30
        assert psutil.Process().memory_info().rss - rss < 64 << 20
        assert sorted(path.name for path in tmp_path.iterdir()) == ["usage.duckdb", "usage.duckdb.spool", "usage.duckdb.wal"]  # noqa: ASYNC240 - by now nobody waits


SLOW = [
    "SELECT count(*) FROM range(100000000000)",
    "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = -1",
    "SELECT max(sha256(range::VARCHAR)) FROM range(10000000000)",
    "SELECT count(DISTINCT range) FROM range(100000000000)",
    "SELECT * FROM range(100000000000) ORDER BY hash(range)",
    "SELECT max(a.range::VARCHAR, 64) FROM range(100000000) a, range(100) b GROUP BY a.range",
    "SELECT max(range, 64) FROM range(10000000000)",
    "SELECT * FROM range(10000000000) OFFSET 9999999999",
    "SELECT sum(a.range) OVER (ORDER BY a.range DESC) FROM range(100000000) a",
    "SELECT regexp_matches(range::VARCHAR, '(a|b|ab)*c') c, count(*) FROM range(10000000000) GROUP BY c",
    "SELECT quantile_cont(range, 0.5) FROM range(10000000000)",
    "SELECT mode(range) FROM range(10000000000)",
]  # fmt: skip


async def stopped(usage: Accounts, sql: str) -> None:
    hasty = Sql(usage.writer, seconds=0.3)
    rss, began = psutil.Process().memory_info().rss, time.monotonic()
    try:
        with pytest.raises(CallerFault, match=r"stopped after 0\.3 seconds|more memory than it may have"):
            await hasty.query(sql)
    finally:
        await hasty.aclose()
    assert time.monotonic() - began < 3, sql
    assert psutil.Process().memory_info().rss - rss < 384 << 20, sql
    usage.record(ended())
    assert await usage.value("SELECT count(*) FROM calls") >= 1


async def test_what_takes_too_long_or_too_much_is_stopped(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for sql in SLOW[::3]:
            await stopped(usage, sql)


@pytest.mark.soak
async def test_all_that_takes_too_long_or_too_much_is_stopped(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for sql in SLOW * 5:
            await stopped(usage, sql)


async def test_whoever_leaves_takes_the_query_along(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        task = asyncio.create_task(usage.sql.query("SELECT count(*) FROM range(100000000000)"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        began = time.monotonic()
        await usage.sql.aclose()
        assert time.monotonic() - began < 1


async def test_a_query_ends_with_a_database_that_was_taken_away(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        usage.record(ended())
        running = asyncio.create_task(usage.sql.query("SELECT count(*) FROM range(100000000000)"))
        memory = usage.sql._writer.store._memory
        await until(lambda: bool(memory._asking), 5)
        (tmp_path / "usage.duckdb").unlink()
        usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == 1
        with pytest.raises(OurFault) as fault:
            await running
        assert (fault.value.code, fault.value.detail) == ("state_unavailable", "it is being opened again")
        assert (tmp_path / "usage.duckdb").exists()


async def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb").write_bytes(b"no database" * 1000)
    async with accounts(tmp_path) as usage:
        with pytest.raises(OurFault) as fault:
            await usage.rows("SELECT 1")
        assert fault.value.code == "state_unavailable"
        assert "not a valid DuckDB database" in fault.value.detail
    async with accounts(tmp_path, start=False) as usage:
        with pytest.raises(OurFault):
            await usage.rows("SELECT 1")


async def test_the_words_of_an_error_are_for_people(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as usage:
        with pytest.raises(CallerFault, match='Referenced column "teem" not found'):
            await usage.rows("SELECT teem FROM calls")
        with pytest.raises(CallerFault, match="Could not convert string"):
            await usage.rows("SELECT team::BIGINT FROM calls")
        with pytest.raises(CallerFault, match="a value in it can't be read as what it should be"):
            await usage.rows("SELECT team::BIGINT FROM calls", team="search")


KINDS = (
    "1::TINYINT, 1.5::DOUBLE, 'x', true, DATE '2026-01-31', TIME '12:00:00', INTERVAL 90 SECOND, [1, 2], 'nan'::DOUBLE, {'a': 1}, "
    "'00000000-0000-0000-0000-000000000000'::UUID, now()::DATE > '2020-01-01', 0.25::DECIMAL(4, 2)"
)


async def test_every_kind_of_value(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        assert await usage.rows(f"SELECT {KINDS}") == [
            [
                1, 1.5, "x", True, "2026-01-31", "12:00:00", 90.0, [1, 2], "nan", {"a": 1}, "00000000-0000-0000-0000-000000000000", True,
                0.25,
            ]
        ]  # fmt: skip
