"""Which SQL is let through, and which is not: decided without running any of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from spangate.call.errors import CallerFault
from spangate.exporters.usage.sql import NAMES
from spangate.exporters.usage.sql_guard import LONGEST, WIDEST, check, check_parameters

USUAL = [
    "SELECT * FROM calls",
    "FROM calls",
    "select team, count(*) c, sum(cost) from calls group by all having count(*) > 1 order by c desc limit 5 offset 1",
    "SELECT count(*) FROM calls c JOIN attempts a ON a.call_id = c.id LEFT JOIN decisions d USING (call_id)",
    "WITH x AS (SELECT team, cost FROM calls), y AS (SELECT * FROM x) SELECT * FROM y JOIN x USING (team)",
    "SELECT tags['env'], map_keys(tags), cardinality(tags) FROM calls",
    "SELECT figures->>'used', json_extract(figures, '$.limit')::DOUBLE FROM decisions WHERE figures->>'scope' LIKE 'team:%'",
    "SELECT date_trunc('hour', started_at) h, quantile_cont(duration_ms, 0.95) FROM calls WHERE started_at > today() - 7 GROUP BY 1",
    "SELECT approx_quantile(duration_ms, 0.99), median(first_token_ms), stddev(overhead_ms), arg_max(id, cost) FROM calls",
    "SELECT model, rank() OVER (PARTITION BY team ORDER BY cost DESC) FROM calls QUALIFY row_number() OVER () < 10",
    "SELECT CASE WHEN status BETWEEN 200 AND 299 THEN 'ok' ELSE 'no' END, coalesce(cost, 0), nullif(team, '') FROM calls",
    "SELECT team || '/' || key AS who, max(DISTINCT model, 16) FROM calls GROUP BY who",
    "SELECT json_extract(figures, ['$.used', '$.limit']), min_by(id, cost), max_by(id, cost, 8) FROM decisions JOIN calls ON call_id = id",
    "SELECT replace(model, 'openai/', ''), regexp_replace(model, '-[0-9]+$', '') FROM calls",
    'SELECT "user", thread FROM calls WHERE "user" IN (\'a\', \'b\') AND NOT (team = ANY (SELECT team FROM usage_by_team))',
    "SELECT * FROM usage_daily UNION ALL SELECT * FROM usage_daily",
    "SELECT * FROM range(10) t(n), generate_series(1, 3)",
    "SELECT d::DATE FROM unnest(['2026-01-01', '2026-01-02']) t(d)",
    "SELECT * EXCLUDE (tags) REPLACE (upper(team) AS team) FROM calls",
    "SELECT columns('.*_tokens') FROM calls",
    "SELECT sum(cost) FILTER (outcome = 'completed') FROM calls GROUP BY ROLLUP (team, model)",
    "SELECT 1 -- a comment",
    "SELECT id FROM calls WHERE id = $1 AND team = $2",
    "SELECT id FROM calls WHERE id = $id",
    "SELECT try_cast(\"user\" AS BIGINT), team::VARCHAR, cost::DECIMAL(20, 2) FROM calls",
    "SELECT DISTINCT ON (team) team, model FROM calls ORDER BY team, started_at DESC",
    "VALUES (1), (2)",
    "SELECT * FROM calls TABLESAMPLE 10%",
    "SELECT {'team': team}::JSON FROM calls",
    "TABLE usage_by_model",
]  # fmt: skip


@pytest.fixture(scope="module")
def parser() -> Iterator[Any]:
    connection = duckdb.connect(":memory:")
    yield connection
    connection.close()


@pytest.mark.parametrize("sql", USUAL)
def test_what_people_ask(parser: Any, sql: str) -> None:
    check(parser, sql, NAMES)


NOT_ONE_SELECT = [
    "", ";", "   ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE calls", "SELECT", "SELECT * FROM", "SELEC 1",
    "INSERT INTO calls SELECT * FROM calls", "UPDATE calls SET cost = 0", "DELETE FROM calls", "DROP TABLE calls", "TRUNCATE calls",
    "CREATE TABLE x (i INT)", "CREATE TEMP VIEW calls AS SELECT 1", "ALTER TABLE calls ADD COLUMN x INT", "CREATE MACRO f() AS 1",
    "COPY calls TO '/tmp/x.csv'", "COPY (SELECT 1) TO '/tmp/x'", "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.duckdb' AS x", "DETACH spangate", "USE memory", "INSTALL httpfs", "LOAD httpfs", "PRAGMA database_list",
    "PRAGMA table_info('calls')", "CALL pragma_version()", "SET memory_limit = '100GB'", "RESET memory_limit", "CHECKPOINT",
    "BEGIN", "COMMIT", "ROLLBACK", "VACUUM", "ANALYZE", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT * FROM calls",
    "PREPARE x AS SELECT 1", "EXECUTE x", "DEALLOCATE x", "PIVOT calls ON team USING count(*)", "UNPIVOT calls ON id INTO NAME n VALUE v",
    "CREATE SECRET s (TYPE s3)", "COMMENT ON TABLE calls IS 'x'", "KILL 1", "SHUTDOWN",
]  # fmt: skip

ELSEWHERE = [
    "SELECT * FROM '/etc/passwd'", "SELECT * FROM 'x.csv'", "SELECT * FROM \"x.parquet\"", "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM read_blob('/proc/self/environ')", "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_parquet('s3://b/x')", "SELECT * FROM glob('/*')", "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM parquet_metadata('x')", "SELECT * FROM duckdb_settings()", "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_tables()", "SELECT * FROM duckdb_databases()", "SELECT * FROM duckdb_logs", "SELECT * FROM duckdb_variables()",
    "SELECT * FROM pragma_database_size()", "SELECT * FROM pragma_storage_info('calls')", "SELECT * FROM which_secret('x', 's3')",
    "SELECT * FROM information_schema.tables", "SELECT * FROM pg_catalog.pg_tables", "SELECT * FROM pg_tables",
    "SELECT * FROM sqlite_master", "SELECT * FROM spool.opened", "SELECT * FROM spool.segments", "SELECT * FROM spangate.version",
    "SELECT * FROM main.calls", "SELECT * FROM spangate.main.calls", "SELECT * FROM temp.calls", "SELECT * FROM calls AT (VERSION => 1)",
    "SELECT * FROM query('SELECT * FROM main.calls')", "SELECT * FROM query_table('calls')", "SELECT * FROM query_table(['calls'])",
    "SELECT * FROM seq_scan('calls')", "SELECT * FROM repeat_row(1, num_rows := 1000000000)", "SELECT * FROM test_all_types()",
    "SELECT * FROM python_map_function()", "SELECT * FROM arrow_scan(1, 2, 3)", "SELECT * FROM enable_logging()",
    "SELECT * FROM truncate_duckdb_logs()", "SELECT * FROM checkpoint()", "SELECT * FROM force_checkpoint()",
    "SELECT * FROM json_execute_serialized_sql('{}')", "SELECT * FROM df", "SELECT * FROM (DESCRIBE calls)", "DESCRIBE calls",
    "SUMMARIZE calls", "SHOW TABLES", "SHOW ALL TABLES", "SELECT * FROM (SHOW DATABASES)",
    "SELECT current_setting('temp_directory')", "SELECT getvariable('x')", "SELECT getenv('HOME')", "SELECT nextval('s')",
    "SELECT setseed(0.5)", "SELECT write_log('x')", "SELECT error('x')", "SELECT sleep_ms(100000)", "SELECT pg_sleep(100)",
    "SELECT current_query()", "SELECT json_serialize_sql('SELECT 1')", "SELECT stats(team) FROM calls", "SELECT in_search_path('a', 'b')",
    "SELECT pg_get_viewdef(1)", "SELECT main.upper('x')", "SELECT system.main.current_setting('memory_limit')",
    "WITH pg_tables AS (SELECT * FROM pg_tables) SELECT * FROM pg_tables",
    "SELECT * FROM pg_tables, (WITH pg_tables AS (SELECT 1) SELECT * FROM pg_tables)",
    "WITH a AS (SELECT * FROM duckdb_secrets), duckdb_secrets AS (SELECT 1) SELECT * FROM a",
    "WITH calls AS (SELECT 1) SELECT * FROM calls",
    "WITH x AS (INSERT INTO calls SELECT * FROM calls RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM calls RETURNING *) SELECT * FROM x",
    "WITH x AS (UPDATE calls SET cost = 0 RETURNING *) SELECT * FROM x",
    "SELECT (SELECT max(value) FROM duckdb_settings())", "SELECT * FROM calls WHERE EXISTS (FROM duckdb_settings())",
    "SELECT * FROM calls ORDER BY (SELECT current_setting('x'))", "SELECT count(*) FILTER (current_setting('x') = '') FROM calls",
    "SELECT sum(cost) OVER (ORDER BY current_setting('x')) FROM calls", "SELECT * FROM calls LIMIT (SELECT current_setting('x')::INT)",
    "SELECT * REPLACE (current_setting('x') AS team) FROM calls", "SELECT columns(c -> current_setting(c) = '') FROM calls",
    "SELECT * FROM range(current_setting('threads')::INT)", "SELECT 'x'::my_type", "SELECT NULL::spool.my_type",
    "SELECT a.team FROM calls a POSITIONAL JOIN df",
]  # fmt: skip

GATHERING = [
    "SELECT array_agg(range) OVER () FROM range(100000)", "SELECT string_agg(range::VARCHAR) OVER () FROM range(100000)",
    "SELECT map_keys(tags), a FROM calls, (SELECT list(range) a FROM range(3000000)), range(100)",
    "SELECT list(range) FROM range(10000000)", "SELECT listagg(team, '') FROM calls", "SELECT GROUP_CONCAT(DISTINCT team) FROM calls",
    "SELECT ARRAY(SELECT range FROM range(100000))",
]  # fmt: skip

BACK = "\\0"
ENDLESS = [
    "WITH RECURSIVE t AS (SELECT 1 x UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t AS (SELECT 'x' s UNION ALL SELECT s || s FROM t) SELECT max(s) FROM t",
    "SELECT repeat('x', 1000000000)", "SELECT lpad('x', 2000000000, 'y')", "SELECT rpad('x', 2000000000, 'y')",
    "SELECT printf('%2000000000d', 1)", "SELECT format('{:2000000000d}', 1)", "SELECT range(1000000000)",
    "SELECT len(generate_series(1, 1000000000))", "SELECT list_resize([1], 1000000000)", "SELECT array_resize([1], 1000000000)",
    "SELECT bar(1, 0, 1, 1000)", "SELECT factorial(1000)", "SELECT levenshtein(team, team) FROM calls", "SELECT to_base64(team::BLOB)",
    "SELECT list_transform([1], x -> x + 1)", "SELECT [x + 1 FOR x IN [1, 2]]", "SELECT list_reduce([1, 2], (x, y) -> x + y)",
    "SELECT map(range(100), range(100))", "SELECT string_split(team, '') FROM calls", "SELECT histogram(cost) FROM calls",
    "SELECT url_encode(team) FROM calls", "SELECT hex(team) FROM calls", "SELECT to_json(calls) FROM calls", "SELECT json_object('a', 1)",
    "SELECT NULL::INT[1000000]", "SELECT NULL::INT[]", "SELECT NULL::STRUCT(a INT)", "SELECT 'x'::BLOB", "SELECT 1::BIT",
    "SELECT a || a || a || a || a || a || a || a FROM (SELECT team a FROM calls)",
    "SELECT concat(a, a, a, a, a, a, a, a) FROM (SELECT concat(b, b, b, b, b, b, b, b) a FROM (SELECT team || team b FROM calls))",
    "SELECT team || team a, a || a b, b || b c, c || c d, d || d e, e || e f, f || f g FROM calls",
    *GATHERING, "SELECT max(team, 1000) OVER () FROM calls", "SELECT max(team, $1) FROM calls", "SELECT max(team, cost) FROM calls",
    "SELECT max(max, 16) FROM (SELECT max(team, 16) FROM calls GROUP BY model)", "SELECT arg_min(team, cost, 65) FROM calls",
    "SELECT max(*columns('team')) FROM calls", "SELECT json_extract(figures, '$..*') FROM decisions",
    "SELECT figures->>'$..used' FROM decisions", "SELECT json_extract(figures, ['$.used', '$.*']) FROM decisions",
    "SELECT figures->>kind FROM decisions",
    "SELECT replace(team, 'a', model) FROM calls", f"SELECT replace(team, 'a', '{'b' * 100}') FROM calls",
    f"SELECT regexp_replace(team, '.', '{BACK * 40}', 'g') FROM calls",
    "SELECT [[[[[[[team]]]]]], [team, team, team, team, team, team, team, team, team], [1, 2, 3, 4, 5, 6, 7, 8]] FROM calls",
    "SELECT *, *, * FROM (SELECT *, *, * FROM (SELECT *, *, * FROM (SELECT *, *, * FROM calls)))",
    f"SELECT '{'x' * (WIDEST + 1)}'", f"SELECT 1 /* {'x' * LONGEST} */", "SELECT " + "(" * 2000 + "1" + ")" * 2000,
    "SELECT " + "NOT " * 900 + "true", "SELECT " + "+".join(["1"] * 900), "SELECT " + "CASE WHEN true THEN " * 200 + "1" + " END" * 200,
    "SELECT " + "(SELECT " * 100 + "1" + ")" * 100, "SELECT * FROM " + "(SELECT * FROM " * 100 + "calls" + ")" * 100,
    "SELECT 1 " + "UNION ALL SELECT 1 " * 100, "SELECT count(*) FROM " + ", ".join(f"calls c{n}" for n in range(30)),
    "WITH a0 AS (SELECT * FROM calls)" + "".join(f", a{n} AS (FROM a{n - 1} x, a{n - 1} y)" for n in range(1, 15)) + " FROM a14",
    "SELECT " + ", ".join(["1"] * 3500), "SELECT '\ud800'",
]  # fmt: skip


@pytest.mark.parametrize("sql", [*NOT_ONE_SELECT, *ELSEWHERE, *ENDLESS], ids=lambda sql: ascii(sql[:60]))
def test_what_nobody_may_ask(parser: Any, sql: str) -> None:
    with pytest.raises(CallerFault) as refusal:
        check(parser, sql, NAMES)
    assert refusal.value.message.startswith("This SQL can't be run: ")
    assert len(refusal.value.message) < 500


def test_there_are_a_hundred_of_them() -> None:
    assert len(set(NOT_ONE_SELECT + ELSEWHERE + ENDLESS)) >= 150


def test_a_refusal_says_what_is_there(parser: Any) -> None:
    with pytest.raises(CallerFault, match="there is no table call; there are attempts, budgets, calls, decisions, spend_forecast"):
        check(parser, "SELECT * FROM call", NAMES)


@pytest.mark.parametrize("sql", ["SHOW TABLES", "show", "DESCRIBE calls", " desc\ncalls", "SUMMARIZE calls;", "PRAGMA table_info('calls')"])
def test_who_asks_for_columns_hears_where_they_are_told(parser: Any, sql: str) -> None:
    with pytest.raises(CallerFault, match=r"docs/usage\.md tells the columns of every table, FROM calls LIMIT 1 those of one"):
        check(parser, sql, NAMES)
    check(parser, "FROM calls LIMIT 1", NAMES)


@pytest.mark.parametrize("sql", GATHERING, ids=lambda sql: sql[:40])
def test_a_refusal_says_what_gathers_instead(parser: Any, sql: str) -> None:
    with pytest.raises(CallerFault, match=r"one value of any number of rows; max\(DISTINCT x, 16\) makes a list of at most 16"):
        check(parser, sql, NAMES)


@pytest.mark.parametrize(
    "parameters", [[1, 2.5, "x", None, True], {"a": "b"}, [], ()], ids=repr
)  # fmt: skip
def test_parameters(parameters: Any) -> None:
    check_parameters(parameters)


@pytest.mark.parametrize(
    "parameters", ["x", 1, None, [[1]], [{"a": 1}], [b"x"], ["x" * 1001], list(range(51)), {"a": []}], ids=lambda p: repr(p)[:20]
)
def test_parameters_that_are_none(parameters: Any) -> None:
    with pytest.raises(CallerFault, match="param"):
        check_parameters(parameters)
