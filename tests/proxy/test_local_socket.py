"""proxy/local_socket.py: who gets in beside the database, and what becomes of the socket."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from spangate.proxy.exchange import Exchange
from spangate.proxy.local_socket import LONGEST, LocalSocket, bound, reachable, socket_path
from spangate.proxy.settings import Server

from case import Answer as Reply
from case import Line, case
from gateway import until
from program import running, spangate
from upstream import chat_answer, play

USAGE: dict[str, Any] = {"usage": {"path": "usage.duckdb"}}


async def ask(path: Path, sql: str, *, at: str = "/admin/sql") -> Reply:
    line = Line(*await asyncio.open_unix_connection(path), [])
    body = json.dumps({"sql": sql}).encode()
    await line.send(f"POST {at} HTTP/1.1\r\nHost: spangate\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        return await line.answer()
    finally:
        await line.close()


def sockets(folder: Path) -> list[Path]:
    return list(folder.glob("*.sock"))


async def test_it_answers_without_a_token_and_is_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "usage.duckdb.sock"
    async with case(tmp_path, play(chat_answer("Hello")), **USAGE) as it:
        await it.ask()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        answer = await ask(path, "SELECT team FROM calls")
        assert (answer.status, answer.json()["rows"]) == (200, [["search"]])
        assert (await ask(path, "DROP TABLE calls")).status == 400
    assert not path.exists()


@pytest.mark.parametrize("at", ["/v1/chat/completions", "/usage/sql", "/admin/keys"])
async def test_nothing_else_is_behind_it(tmp_path: Path, at: str) -> None:
    async with case(tmp_path, **USAGE):
        answer = await ask(tmp_path / "usage.duckdb.sock", "SELECT 1", at=at)
        assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_no_usage_no_socket(tmp_path: Path) -> None:
    async with case(tmp_path, usage={"enabled": False}):
        assert sockets(tmp_path) == []


async def test_one_that_a_killed_gateway_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "usage.duckdb.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.is_socket()
    assert not reachable(path)
    async with case(tmp_path, **USAGE):
        assert (await ask(path, "SELECT 1")).status == 200


async def nothing(exchange: Any) -> None:
    raise AssertionError("nobody asks")


async def answering(exchange: Exchange) -> None:
    await exchange.answer(200, {}, b"")


async def test_that_of_a_living_gateway_stays_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with case(tmp_path, **USAGE):
        second = LocalSocket(tmp_path / "usage.duckdb", nothing, Server())
        await second.start()
        assert "another gateway listens there" in caplog.text
        await second.aclose()
        assert (await ask(tmp_path / "usage.duckdb.sock", "SELECT 1")).status == 200


async def test_it_is_taken_over_once_the_other_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spangate.proxy")
    async with case(tmp_path, **USAGE):
        second = LocalSocket(tmp_path / "usage.duckdb", nothing, Server(), again=0.01)
        await second.start()
    await until(lambda: "reach this gateway now" in caplog.text)
    assert reachable(second.path)
    assert caplog.text.count("another gateway listens there") == 1, "however often it was tried"
    assert stat.S_IMODE(second.path.stat().st_mode) == 0o600
    await second.aclose()
    assert sockets(tmp_path) == []


async def test_it_goes_to_the_one_that_has_the_database(tmp_path: Path) -> None:
    asked: list[bool] = []
    locked = True

    def elsewhere() -> bool:
        asked.append(locked)
        return locked

    first = LocalSocket(tmp_path / "x", nothing, Server())
    second = LocalSocket(tmp_path / "x", nothing, Server(), elsewhere=elsewhere, again=0.001)
    await first.start()
    await second.start()
    await first.aclose()
    await until(lambda: len(asked) > 5)
    assert sockets(tmp_path) == []
    locked = False
    await until(lambda: reachable(second.path))
    await second.aclose()


async def test_one_that_came_first_lets_go_for_the_one_that_has_the_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spangate.proxy")
    locked = False
    first = LocalSocket(tmp_path / "x", nothing, Server(), elsewhere=lambda: locked, again=0.001)
    await first.start()
    second = LocalSocket(tmp_path / "x", answering, Server(), again=0.001)
    await second.start()
    assert "another gateway listens there" in caplog.text
    locked = True
    await until(lambda: "reach this gateway now" in caplog.text)
    assert (await ask(second.path, "SELECT 1")).status == 200
    await first.aclose()
    assert (await ask(second.path, "SELECT 1")).status == 200
    await second.aclose()
    assert sockets(tmp_path) == []
    assert caplog.text.count("another gateway has the database") == 1


async def test_one_that_is_taken_away_is_made_again(tmp_path: Path) -> None:
    ours = LocalSocket(tmp_path / "x", answering, Server(), again=0.001)
    await ours.start()
    for _ in range(2):
        ours.path.unlink()
        await until(lambda: ours.path.is_socket() and reachable(ours.path))
        assert (await ask(ours.path, "SELECT 1")).status == 200
    await ours.aclose()
    assert sockets(tmp_path) == []


async def test_one_that_is_replaced_by_another_gateways_waits_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = LocalSocket(tmp_path / "x", nothing, Server(), again=0.001)
    await ours.start()
    ours.path.unlink()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(ours.path))
        theirs.listen()
        await until(lambda: "another gateway listens there" in caplog.text)
    await until(lambda: reachable(ours.path))
    await ours.aclose()
    assert sockets(tmp_path) == []


async def test_one_that_never_came_to_listen_ends_too(tmp_path: Path) -> None:
    async with case(tmp_path, **USAGE) as it:
        second = LocalSocket(tmp_path / "usage.duckdb", nothing, Server())
        await second.start()
        await second.aclose()
        await second.aclose()
        assert it.running.app.socket is not None
        assert reachable(it.running.app.socket.path)


def test_a_second_gateway_answers_once_the_first_is_killed(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text("providers: {s: {kind: scripted}}\nmodels: {fast: {targets: [{provider: s}]}}\n")
    with running("serve", "--port", "0", folder=tmp_path) as first:
        first.until("export OPENAI_BASE_URL")
        with running("serve", "--port", "0", folder=tmp_path) as second:
            second.until("no socket for")
            asked = spangate("sql", "SELECT 1 AS n", folder=tmp_path)
            assert (asked.code, asked.out) == (0, "n\n1\n")
            first.send(signal.SIGKILL)
            second.until("reach this gateway now")
            asked = spangate("sql", "SELECT 2 AS n", folder=tmp_path)
            assert (asked.code, asked.out, asked.err) == (0, "n\n2\n", "")
            told = spangate("doctor", folder=tmp_path)
            assert "spangate.duckdb is written by the gateway that runs" in told.out
            second.send(signal.SIGTERM)
            assert second.end().code == 0
    assert sockets(tmp_path) == []


async def test_it_takes_away_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    ours = LocalSocket(tmp_path / "x", nothing, Server())
    await ours.start()
    ours.path.unlink()
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(ours.path))
        await ours.aclose()
        assert ours.path.is_socket()


async def test_a_path_that_is_too_long_costs_the_socket_alone(tmp_path: Path) -> None:
    name = "u" * LONGEST
    async with case(tmp_path, usage={"path": name}) as it:
        assert (await it.running.app.setting.usage.sql.query("SELECT 1")).rows == [[1]]  # type: ignore[union-attr]
        assert [line for line in it.log.lines if "choose a shorter usage.path" in line]
        assert sockets(tmp_path) == []


def test_a_file_of_somebody_elses_stays(tmp_path: Path) -> None:
    path = socket_path(tmp_path / "u.duckdb")
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        bound(path)
    assert path.read_text() == "mine"
