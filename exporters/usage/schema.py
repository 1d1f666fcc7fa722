"""The tables and views of the usage database, and how an older database becomes this one.

Texts are never NULL: what isn't known is empty. Figures are NULL where there is none: tokens of a call that used none, the cost of a model
that nobody knows the price of. `MIGRATIONS` only grows: each entry is what one version adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .arrow import Kind
from .budgets import TABLE as BUDGETS_TABLE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Columns = Sequence[tuple[str, Kind, str]]  # name, how its values are handed over, its type

_TOKENS: Columns = (
    ("input_tokens", "l", "BIGINT"),
    ("cached_tokens", "l", "BIGINT"),
    ("cache_write_tokens", "l", "BIGINT"),
    ("output_tokens", "l", "BIGINT"),
    ("reasoning_tokens", "l", "BIGINT"),
    ("weighted_tokens", "d:18,6,64", "DECIMAL(18, 6)"),
)

CALLS: Columns = (
    ("id", "u", "VARCHAR"),
    ("client_request_id", "u", "VARCHAR"),
    ("trace_id", "u", "VARCHAR"),
    ("started_at", "tsu:", "TIMESTAMP"),
    ("ended_at", "tsu:", "TIMESTAMP"),
    ("organisation", "u", "VARCHAR"),
    ("team", "u", "VARCHAR"),
    ("key", "u", "VARCHAR"),
    ("user", "u", "VARCHAR"),
    ("thread", "u", "VARCHAR"),
    ("reply", "u", "VARCHAR"),
    ("tags", "u", "MAP(VARCHAR, VARCHAR)"),
    ("op", "u", "VARCHAR"),
    ("stream", "b", "BOOLEAN"),
    ("model", "u", "VARCHAR"),
    ("provider", "u", "VARCHAR"),
    ("target_model", "u", "VARCHAR"),
    ("status", "l", "USMALLINT"),
    ("outcome", "u", "VARCHAR"),
    ("error_code", "u", "VARCHAR"),
    *_TOKENS,
    ("usage_source", "u", "VARCHAR"),
    ("cost", "d:18,9,64", "DECIMAL(18, 9)"),
    ("cost_source", "u", "VARCHAR"),
    ("duration_ms", "g", "DOUBLE"),
    ("first_token_ms", "g", "DOUBLE"),
    ("overhead_ms", "g", "DOUBLE"),
    ("attempts", "l", "USMALLINT"),
    ("config_version", "u", "VARCHAR"),
)

ATTEMPTS: Columns = (
    ("call_id", "u", "VARCHAR"),
    ("number", "l", "USMALLINT"),
    ("provider", "u", "VARCHAR"),
    ("target_model", "u", "VARCHAR"),
    ("started_at", "tsu:", "TIMESTAMP"),
    ("ended_at", "tsu:", "TIMESTAMP"),
    ("status", "l", "USMALLINT"),
    ("outcome", "u", "VARCHAR"),
    ("error_type", "u", "VARCHAR"),
    *_TOKENS,
    ("cost", "d:18,9,64", "DECIMAL(18, 9)"),
    ("upstream_request_id", "u", "VARCHAR"),
    ("span_id", "u", "VARCHAR"),
    ("reason", "u", "VARCHAR"),
)

DECISIONS: Columns = (
    ("call_id", "u", "VARCHAR"),
    ("policy", "u", "VARCHAR"),
    ("rule", "u", "VARCHAR"),
    ("kind", "u", "VARCHAR"),
    ("verdict", "u", "VARCHAR"),
    ("mode", "u", "VARCHAR"),
    ("figures", "u", "JSON"),
    ("config_version", "u", "VARCHAR"),
)

TABLES = {"calls": CALLS, "attempts": ATTEMPTS, "decisions": DECISIONS}

_SUMS = """
    count(*) AS calls,
    count(*) FILTER (outcome = 'completed') AS completed,
    count(*) FILTER (outcome = 'refused') AS refused,
    count(*) FILTER (outcome = 'failed') AS failed,
    count(*) FILTER (outcome NOT IN ('completed', 'refused', 'failed')) AS broken_off,
    coalesce(sum(input_tokens), 0)::BIGINT AS input_tokens,
    coalesce(sum(cached_tokens), 0)::BIGINT AS cached_tokens,
    coalesce(sum(output_tokens), 0)::BIGINT AS output_tokens,
    coalesce(sum(reasoning_tokens), 0)::BIGINT AS reasoning_tokens,
    coalesce(sum(weighted_tokens), 0) AS weighted_tokens,
    sum(cost) AS cost,
    count(*) FILTER (usage_source = 'estimated') AS estimated_calls,
    count(*) FILTER (cost_source = 'unpriced') AS unpriced_calls"""

_NOW = "(now() AT TIME ZONE 'UTC')"

VIEWS = {
    "usage_daily": f"""
SELECT started_at::DATE AS day, organisation, team, model, provider, target_model, {_SUMS}
FROM {{calls}} GROUP BY ALL ORDER BY ALL""",
    "usage_by_team": f"""
SELECT organisation, team, {_SUMS}, min(started_at) AS first_call, max(started_at) AS last_call
FROM {{calls}} GROUP BY organisation, team ORDER BY organisation, team""",
    "usage_by_model": f"""
SELECT model, provider, target_model, {_SUMS},
    avg(duration_ms) AS mean_duration_ms, avg(first_token_ms) AS mean_first_token_ms, avg(overhead_ms) AS mean_overhead_ms
FROM {{calls}} GROUP BY model, provider, target_model ORDER BY model, provider, target_model""",
    # What this month comes to if each day that is left is like the last seven. Where no call was there is nothing to pay: 0.
    "spend_forecast": f"""
WITH recent AS (
    SELECT *, started_at >= date_trunc('month', {_NOW}) AS of_month, started_at >= {_NOW} - INTERVAL 7 DAY AS of_week
    FROM {{calls}} WHERE started_at >= least(date_trunc('month', {_NOW}), {_NOW} - INTERVAL 7 DAY)
), spent AS (
    SELECT organisation, team,
        coalesce(sum(cost) FILTER (of_month), CASE WHEN count(*) FILTER (of_month AND cost_source = 'unpriced') = 0 THEN 0 END) AS cost,
        coalesce(sum(weighted_tokens) FILTER (of_month), 0) AS weighted_tokens,
        coalesce(sum(cost) FILTER (of_week), CASE WHEN count(*) FILTER (of_week AND cost_source = 'unpriced') = 0 THEN 0 END)
            / least(7, greatest(1, date_diff('hour', min(started_at), {_NOW}) / 24)) AS daily_cost,
        count(*) FILTER (usage_source = 'estimated') AS estimated_calls,
        count(*) FILTER (cost_source = 'unpriced') AS unpriced_calls
    FROM recent GROUP BY organisation, team
)
SELECT organisation, team, date_trunc('month', {_NOW})::DATE AS month, cost, weighted_tokens, daily_cost,
    cost + daily_cost * (date_diff('second', {_NOW}, date_trunc('month', {_NOW}) + INTERVAL 1 MONTH) / 86400) AS forecast_cost,
    estimated_calls, unpriced_calls
FROM spent ORDER BY organisation, team""",
}


def _table(name: str, columns: Columns) -> str:
    listed = ", ".join([f'"{column}" {type}' for column, _, type in columns])
    return f"CREATE TABLE {name} ({listed})"


MIGRATIONS: Sequence[Sequence[str]] = (
    (
        _table("calls", CALLS),
        _table("attempts", ATTEMPTS),
        _table("decisions", DECISIONS),
        "CREATE SCHEMA {catalog}.spool",
        # How far each segment that is still on disk has been moved, and the calls that have been opened and not closed.
        "CREATE TABLE {catalog}.spool.segments (name VARCHAR, upto BIGINT)",
        "CREATE TABLE {catalog}.spool.opened (instance VARCHAR, id VARCHAR, line BLOB)",
    ),
    (BUDGETS_TABLE,),
)


class NewerDatabase(Exception):
    """It was written by a newer spangate."""


def view_statements(calls: str = "calls", prefix: str = "CREATE OR REPLACE VIEW") -> list[str]:
    """The views over a table of calls."""
    return [f"{prefix} {name} AS {query.format(calls=calls)}" for name, query in VIEWS.items()]


def catalog_of(connection: DuckDBPyConnection) -> str:
    """What DuckDB calls the database, after its file: a schema of the same name (spangate.duckdb) is found only as a part of it."""
    [(name,)] = connection.execute("SELECT current_database()").fetchall()
    return '"' + str(name).replace('"', '""') + '"'


def version_of(connection: DuckDBPyConnection) -> int:
    """How many of the migrations it has seen.

    Raises:
        duckdb.CatalogException: it is none of ours yet.
    """
    [(number,)] = connection.execute(f"SELECT coalesce(max(number), 0) FROM {catalog_of(connection)}.spangate.version").fetchall()
    return int(number)


def migrate(connection: DuckDBPyConnection) -> None:
    """Bring the database to the newest version, one transaction a version. Views are made anew each time.

    Raises:
        NewerDatabase: this program can't read it.
        duckdb.Error: it can't be written.
    """
    catalog = catalog_of(connection)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {catalog}.spangate")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {catalog}.spangate.version (number INTEGER, since TIMESTAMP)")
    number = version_of(connection)
    if number > len(MIGRATIONS):
        raise NewerDatabase(f"it has version {number}, and this spangate knows {len(MIGRATIONS)}: update spangate")
    for version, statements in enumerate(MIGRATIONS[number:], number + 1):
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement.replace("{catalog}", catalog))
        connection.execute(f"INSERT INTO {catalog}.spangate.version VALUES ({version}, {_NOW})")
        connection.execute("COMMIT")
    for statement in view_statements():
        connection.execute(statement)
