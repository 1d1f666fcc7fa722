"""proxy/admin.py: who may ask which rows, and what they are told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from spangate.exporters.usage.sql import Answer
from spangate.proxy.admin import AT_ONCE, LARGEST, written

from ..exporters.usage.test_sql_guard import ELSEWHERE, NOT_ONE_SELECT
from ..exporters.usage.test_sql_guard import ENDLESS as TOO_MUCH
from case import KEY, OTHER, Case, case, settings
from case import Answer as Reply
from gateway import until
from upstream import chat_answer, play

TOKEN = "a-token-for-nobody-but-the-admin"
USAGE: dict[str, Any] = {"usage": {"path": "usage.duckdb"}, "server": {"admin_token": TOKEN}}
COUNTS = "SELECT team, count(*) AS calls FROM calls GROUP BY team ORDER BY team"
ENDLESS = "SELECT count(*) FROM range(100000000000)"


def script() -> Any:
    return play(*[chat_answer("Hello")] * 5)


async def ask(it: Case, sql: str, *, path: str = "/usage/sql", key: str | None = None, **more: Any) -> Reply:
    return await it.ask(json.dumps({"sql": sql, **more}).encode(), path=path, key=key)


async def admin(it: Case, sql: str, **more: Any) -> Reply:
    return await ask(it, sql, path="/admin/sql", key=TOKEN, **more)


async def test_a_team_sees_its_own_rows_and_the_admin_all(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        for key in (KEY, KEY, OTHER):
            assert (await it.ask(key=key)).status == 200
        answer = await ask(it, COUNTS)
        assert (answer.status, answer.header("content-type"), answer.header("cache-control")) == (200, "application/json", "no-store")
        told = answer.json()
        assert list(told) == ["columns", "types", "truncated", "seconds", "rows"]
        assert (told["columns"], told["types"]) == (["team", "calls"], ["VARCHAR", "BIGINT"])
        assert (told["rows"], told["truncated"]) == ([["search", 2]], False)
        assert (await ask(it, COUNTS, key=OTHER)).json()["rows"] == [["other", 1]]
        assert (await admin(it, COUNTS)).json()["rows"] == [["other", 1], ["search", 2]]


async def test_parameters(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        await it.ask()
        listed = await ask(it, "SELECT count(*) FROM calls WHERE model = $1 AND status < $2", params=["m", 300])
        named = await ask(it, "SELECT count(*) FROM calls WHERE model = $model", params={"model": "m"})
        assert listed.json()["rows"] == named.json()["rows"] == [[1]]


BODIES: list[tuple[Any, str]] = [
    (b"{", "The body is not JSON"),
    ({}, "missing required field `sql`"),
    ({"sql": 1}, "Expected `str`"),
    ({"sql": "SELECT 1", "param": []}, "unknown field `param`"),
    ({"sql": "SELECT 1", "params": 7}, "got `int` - at `$.params`"),
    ({"sql": "SELECT $1", "params": [[1]]}, "params may hold"),
    ({"sql": "SELECT $1", "params": [2**200]}, "too large"),
    (b'{"sql": "SELECT $1", "params": ["\\ud800"]}', "half of a character"),
    (b'{"sql": "SELECT $1", "params": [1e999]}', "out of range"),
    ({"sql": "SELECT"}, "This SQL can't be run"),
    ({"sql": "SELECT nothing FROM calls"}, 'Referenced column "nothing" not found'),
    ({"sql": "DROP TABLE calls"}, "one SELECT is allowed"),
    ({"sql": "SELECT * FROM read_csv('/etc/passwd')"}, "read_csv is not allowed"),
]


@pytest.mark.parametrize("number", range(len(BODIES)))
async def test_what_can_not_be_asked(tmp_path: Path, number: int) -> None:
    body, words = BODIES[number]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with case(tmp_path, script(), **USAGE) as it:
        for path, key in (("/admin/sql", TOKEN), ("/usage/sql", KEY)):
            answer = await it.ask(raw, path=path, key=key)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer
            assert words in answer.error["message"]


async def test_other_methods_and_large_bodies(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        answer = await it.ask(path="/usage/sql", method="GET")
        assert (answer.status, answer.header("allow")) == (405, "POST")
        assert (await ask(it, "x" * LARGEST)).status == 413


@pytest.mark.parametrize("key", ["", "wrong", KEY, TOKEN[:-1], TOKEN + "x", "é" * 20])
async def test_without_the_token_there_is_nothing_to_see(tmp_path: Path, key: str) -> None:
    async with case(tmp_path, script(), key=None, **USAGE) as it:
        headers = [("Authorization", f"Bearer {key}")] if key else []
        answer = await it.ask(json.dumps({"sql": COUNTS}).encode(), path="/admin/sql", headers=headers)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        it.key = KEY


@pytest.mark.parametrize("key", ["", "wrong", TOKEN])
async def test_usage_needs_a_key(tmp_path: Path, key: str) -> None:
    async with case(tmp_path, script(), key=None, **USAGE) as it:
        headers = [("Authorization", f"Bearer {key}")] if key else []
        answer = await it.ask(json.dumps({"sql": COUNTS}).encode(), path="/usage/sql", headers=headers)
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        it.key = KEY


async def test_no_token_no_admin(tmp_path: Path) -> None:
    async with case(tmp_path, script(), usage={"path": "usage.duckdb"}) as it:
        answer = await admin(it, COUNTS)
        assert (answer.status, answer.error["code"]) == (404, "not_found")
        assert "server.admin_token" in answer.error["message"]


async def test_no_usage_nothing_to_ask(tmp_path: Path) -> None:
    async with case(tmp_path, script(), server={"admin_token": TOKEN}, usage={"enabled": False}) as it:
        for answer in (await admin(it, COUNTS), await ask(it, COUNTS)):
            assert (answer.status, answer.error["code"]) == (404, "not_found")
            assert "No usage is kept here" in answer.error["message"]


async def test_an_open_gateway_answers_local_programs(tmp_path: Path) -> None:
    async with case(tmp_path, script(), key=None, teams={}, **USAGE) as it:
        assert (await it.ask()).status == 200
        assert (await ask(it, COUNTS)).json()["rows"] == [["", 1]]
        request = it.request(json.dumps({"sql": COUNTS}).encode(), path="/usage/sql")
        page = await it.raw(request.replace(b"Host: 127.0.0.1", b"Host: evil.example"))
        assert page.status == 401


async def test_the_token_changes_with_the_file_and_is_told_nowhere(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        text = settings(it.up.base_url, **USAGE | {"server": {"admin_token": "another-token-of-this-admin"}})
        (tmp_path / "spangate.yaml").write_text(text)
        before = it.running.app.config.version
        it.running.app.reload.soon()
        await until(lambda: it.running.app.config.version != before, 3)
        assert (await admin(it, COUNTS)).status == 401
        assert (await ask(it, COUNTS, path="/admin/sql", key="another-token-of-this-admin")).status == 200
        assert [line for line in it.log.lines if TOKEN in line or "another-token" in line] == []


async def test_a_few_at_once_and_who_leaves_stops_asking(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        body = json.dumps({"sql": ENDLESS}).encode()
        lines = []
        for _ in range(AT_ONCE):
            line = it.line()
            lines.append(line)
            await (await line.__aenter__()).send(it.request(body, path="/usage/sql"))
        await asyncio.sleep(0.2)
        answer = await ask(it, COUNTS)
        assert (answer.status, answer.error["code"]) == (503, "overloaded")
        for line in lines:
            await line.__aexit__(None, None, None)
        async with asyncio.timeout(5):
            while (await ask(it, COUNTS)).status != 200:
                pass


async def test_hostile_statements_are_refused_and_harm_nobody(tmp_path: Path) -> None:
    async with case(tmp_path, script(), **USAGE) as it:
        assert (await it.ask()).status == 200
        for sql in [*NOT_ONE_SELECT, *ELSEWHERE, *TOO_MUCH]:
            if "\ud800" in sql:
                continue  # which JSON can't carry to it: see BODIES
            for answer in (await admin(it, sql), await ask(it, sql)):
                assert (answer.status, answer.error["code"]) == (400, "invalid_request"), sql
        assert (await admin(it, COUNTS)).json()["rows"] == [["search", 1]]


async def test_a_large_answer_is_whole() -> None:
    answer = Answer(("a", "b"), ("BIGINT", "VARCHAR"), [[number, "é"] for number in range(2000)], truncated=True, seconds=0.5)
    read = json.loads(await written(answer))
    assert read["rows"] == answer.rows
    assert read["truncated"] is True
    assert json.loads(await written(Answer((), (), [], truncated=False, seconds=0)))["rows"] == []


async def test_the_loop_has_a_turn_after_each_large_row() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    rows = [[[["x" * 1000] * 300]]] * 20
    assert json.loads(await written(Answer(("a",), ("VARCHAR[][]",), rows, truncated=False, seconds=0)))["rows"] == rows
    task.cancel()
    assert turns >= len(rows)
