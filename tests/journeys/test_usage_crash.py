"""A gateway that is killed under load: every call has one row, and the row tells the truth."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from case import settings
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_completion, chunk, http, play, sse_head, wants_stream

PROGRAM = Path(__file__).with_name("crashing.py")
CLIENTS = 12


def answer(request: Request) -> Play:
    """Short answers, and streams that take a while."""
    if not wants_stream(request):
        return play((http(200, [("content-type", "application/json")], chat_completion("hello", (13, 20))), random.random() / 50))
    said = [(chunk(C("word ")), 0.01)] * random.randrange(1, 12)
    return play(sse_head(), *said, chunk(F("stop") + U(13, 20) + D) + LAST_CHUNK)


class Truth:
    """What the clients and the provider know. A call is known by the id that its client gave it."""

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self.sent = 0

    async def client(self, port: int) -> None:
        """Calls, one after the other, until the gateway is gone."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                self.sent += 1
                name = f"call-{self.sent}"
                body = json.dumps({"model": "m", "stream": self.sent % 2 == 0, "messages": [{"role": "user", "content": name}]}).encode()
                head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}x-request-id: {name}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                if await answered(reader):
                    self.whole.add(name)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


async def answered(reader: asyncio.StreamReader) -> bool:
    """Read one answer to its last byte."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    else:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
    return head.split(b" ")[1] == b"200"


class Killable:
    """The gateway as a process."""

    def __init__(self, folder: Path) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )

    async def said(self, word: str) -> int:
        assert self.process.stdout is not None
        line = await asyncio.get_running_loop().run_in_executor(None, self.process.stdout.readline)
        if not line.startswith(word):
            self.process.kill()
            raise AssertionError(f"{line!r}: {self.process.communicate()[1]}")
        return int(line.split()[1])

    async def ready(self) -> tuple[int, float]:
        """The port, and the seconds until what an earlier process left was in the database."""
        port = await self.said("listens")
        await self.said("ready")
        return port, time.perf_counter() - self.began

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        assert "Traceback" not in errors, errors


async def killed(folder: Path, kills: int) -> None:
    truth = Truth()
    async with Misbehaving(answer) as up:
        plain = {"providers": {"up": {"kind": "openai", "base_url": up.base_url, "api_key": "x"}}, "teams": {}}
        models = {"m": {"targets": [{"provider": "up"}]}}
        (folder / "spangate.yaml").write_text(settings(up.base_url, **plain, models=models), "utf-8")
        slowest = 0.0
        for _ in range(kills):
            gateway = Killable(folder)
            port, took = await gateway.ready()
            slowest = max(slowest, took)
            clients = [asyncio.create_task(truth.client(port)) for _ in range(CLIENTS)]
            await asyncio.sleep(0.1 + random.random() * 1.5)
            gateway.end(signal.SIGKILL)
            await asyncio.gather(*clients)
        gateway = Killable(folder)
        _, took = await gateway.ready()
        gateway.end(signal.SIGTERM)
        seen = [json.loads(request.body)["messages"][0]["content"] for request in up.requests]
    rows = read(folder / "usage.duckdb")
    count = Counter(name for name, *_ in rows)
    outcomes = {name: (outcome, used) for name, outcome, *used in rows}
    print(f"{kills} kills, {len(rows)} rows: {Counter(outcome for _, outcome, *_ in rows)}; ready after {max(slowest, took):.2f} s at most")
    assert [name for name, times in count.items() if times > 1] == []
    assert truth.whole - count.keys() == set(), "a client has its last byte, and there is no row"
    assert {outcomes[name][0] for name in truth.whole} == {"completed"}
    assert {tuple(outcomes[name][1]) for name in truth.whole} == {(13, 20)}
    assert set(seen) - count.keys() == set(), "the provider was asked, and there is no row"
    assert {outcome for _, outcome, *_ in rows} <= {"completed", "interrupted", "failed", "aborted"}
    assert len(truth.whole) > 20 * kills
    assert max(slowest, took) < 5
    assert list((folder / "usage.duckdb.spool").iterdir()) == []


def read(path: Path) -> list[tuple[str, str, int, int]]:
    connection = duckdb.connect(str(path), read_only=True)
    try:
        attempts = connection.execute("SELECT count(*) FROM attempts a LEFT JOIN calls c ON c.id = a.call_id WHERE c.id IS NULL").fetchall()
        assert attempts == [(0,)]
        return connection.execute("SELECT client_request_id, outcome, input_tokens, output_tokens FROM calls").fetchall()
    finally:
        connection.close()


@pytest.mark.fault("STO-02")
async def test_a_gateway_that_is_killed_three_times(tmp_path: Path) -> None:
    await killed(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.fault("STO-02")
async def test_a_gateway_that_is_killed_over_and_over(tmp_path: Path) -> None:
    await killed(tmp_path, 25)
