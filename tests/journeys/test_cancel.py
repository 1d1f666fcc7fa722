"""Clients that leave, providers that stall, and what of either must not reach the next caller."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import openai
import psutil
import pytest

from spangate.call.seen import Seen

from case import KEY, OTHER, Case, Line, case, settings
from gateway import until
from upstream import LAST_CHUNK, C, D, F, Misbehaving, chat_answer, chat_chunk, chunk, echo, error, http, play, sse_head

STREAM: dict[str, Any] = {"stream": True}
HI: Any = [{"role": "user", "content": "hi"}]
KEEP_ALIVE = b": keep-alive\n\n"


def limited(**limits: str) -> dict[str, Any]:
    """The models of a case, `m` under these time limits."""
    return {"m": {"targets": [{"provider": "up"}], "time_limit": limits}, "ok": {"targets": [{"provider": "script"}]}}


now = time.perf_counter


async def left(it: Case, request: bytes) -> float:
    """Send a request, leave once the provider has it (and, of a stream, its first piece is here); the seconds until the provider
    noticed."""
    number = len(it.up.requests)
    it.rows += 1
    async with it.line() as line:
        await line.send(request)
        arrived = await it.up.request(number)
        if b'"stream": true' in request:
            await line.reader.readuntil(b"data: ")
        gone = now()
        line.abort()
        await arrived.peer_closed.wait()
        return now() - gone


def said(body: bytes) -> list[Any]:
    """The data of each event; `[DONE]` as it is."""
    frames = re.findall(rb"^data: (.*)\n\n", body, re.MULTILINE)
    return [frame.decode() if frame == b"[DONE]" else json.loads(frame) for frame in frames]


# ---- CAN-01: a client that leaves


@pytest.mark.fault("CAN-01")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_leaves_frees_its_provider(tmp_path: Path, stream: bool) -> None:
    slow = play(sse_head() + chunk(C("a")) if stream else b"", (b"", 10.0), end="hold")
    async with case(tmp_path, slow) as it:
        took = [await left(it, it.request({"stream": stream})) for _ in range(50)]
        p95 = quantiles(took, n=20)[-1]
        print(f"freed upstream, {'stream' if stream else 'whole'}: p95 {p95 * 1000:.1f} ms, max {max(took) * 1000:.1f} ms")
        assert p95 <= 0.05
        assert {(seen.outcome, seen.status) for seen in await it.running.kept.count(50)} == {("aborted", 499)}
        assert {seen.attempts[0].outcome for seen in it.running.kept.seen} == {"cancelled"}


@pytest.mark.fault("CAN-01")
async def test_a_client_that_leaves_before_its_provider_is_reached(tmp_path: Path) -> None:
    async with Misbehaving(black_hole=True) as hole, case(tmp_path, hole) as it:
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request())
            await until(lambda: bool(it.running.app.endpoints.running))
            line.abort()
            (seen,) = await it.running.kept.count(1)
        assert (seen.outcome, seen.status) == ("aborted", 499)


@pytest.mark.fault("CAN-01")
async def test_a_client_that_leaves_in_the_middle_of_its_body(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request()[:-10])
            await until(lambda: it.running.app.endpoints.house.calls > 0)
            line.abort()
            (seen,) = await it.running.kept.count(1)
        assert (seen.outcome, seen.status, seen.attempts) == ("aborted", 499, [])
        assert it.up.connections == []


def providers(up: Misbehaving, **more: str) -> dict[str, Any]:
    usual: dict[str, Any] = json.loads(settings(up.base_url))["providers"]
    return usual | {name: {"kind": "openai", "base_url": url} for name, url in more.items()}


# ---- CAN-04: a provider that stalls


@pytest.mark.fault("CAN-04")
async def test_a_stream_that_falls_silent_ends_with_an_error(tmp_path: Path) -> None:
    models = limited(first="20s", silence="300ms", total="30s")
    async with case(tmp_path, play(sse_head() + chunk(C("a")), end="hold"), models=models) as it:
        started = now()
        answer = await it.ask(STREAM)
        assert 0.29 <= now() - started < 1.0
        assert answer.status == 200
        first, last = said(answer.body)
        assert first["choices"][0]["delta"]["content"] == "a"
        assert last["error"]["code"] == "upstream_timeout"
        async with asyncio.timeout(1):
            await it.up.requests[0].peer_closed.wait()
        assert ended(it.running.kept.seen[0]) == ("failed", 200, "upstream_timeout", "error", "upstream_timeout")


@pytest.mark.fault("CAN-04")
async def test_a_stream_that_stalls_in_its_head_is_a_504(tmp_path: Path) -> None:
    async with case(tmp_path, play(sse_head() + chunk(b": hello\n\n"), end="hold"), models=limited(first="300ms")) as it:
        answer = await it.ask(STREAM)
        assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
        assert ended(it.running.kept.seen[0]) == ("failed", 504, "upstream_timeout", "error", "upstream_timeout")


@pytest.mark.fault("CAN-04")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_answer_that_drips_ends_at_its_total(tmp_path: Path, stream: bool) -> None:
    piece = chunk(C("a")) if stream else b" "
    head = sse_head() if stream else http(200, [("Content-Type", "application/json"), ("Content-Length", "9999")])
    drip = play(head, *[(piece, 0.05)] * 100)
    async with case(tmp_path, drip, models=limited(first="300ms", silence="300ms", total="600ms")) as it:
        started = now()
        answer = await it.ask({"stream": stream})
        assert 0.59 <= now() - started < 1.5
        assert answer.status == (200 if stream else 504)
        error = said(answer.body)[-1]["error"] if stream else answer.error
        assert error["code"] == "upstream_timeout"
        assert it.running.kept.seen[0].outcome == "failed"


@pytest.mark.fault("CAN-04")
async def test_a_slow_reader_is_not_a_silent_provider(tmp_path: Path) -> None:
    answer = play(sse_head(), *[chunk(C("x" * 100_000))] * 200, chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with case(tmp_path, answer, models=limited(first="200ms", silence="200ms", total="20s")) as it, narrow(it) as line:
        it.rows += 1
        await line.send(it.request(STREAM))
        await line.reader.read(1000)
        await asyncio.sleep(0.7)  # part of the scenario: a reader that takes nothing for longer than `silence`
        tail = b""
        while not tail.endswith(LAST_CHUNK):
            tail = tail[-100:] + await line.reader.read(1 << 20)
        assert D in tail
        assert it.running.kept.seen[0].outcome == "completed"


def ended(seen: Seen) -> tuple[object, ...]:
    return seen.outcome, seen.status, seen.error_code, seen.attempts[0].outcome, seen.attempts[0].error_type


@asynccontextmanager
async def narrow(it: Case) -> AsyncIterator[Line]:
    """A client with little room for what it has not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (it.running.address.host, it.running.address.port))
    line = Line(*await asyncio.open_connection(sock=sock, limit=4096), it.heard)
    try:
        yield line
    finally:
        await line.close()


# ---- CAN-06: a provider that takes its time


@pytest.mark.fault("CAN-06")
async def test_a_stream_without_content_is_kept_alive(tmp_path: Path) -> None:
    late = play((chat_answer("Hello", stream=True), 0.55))
    async with case(tmp_path, late, server={"keepalive": "100ms"}) as it, it.line() as line:
        it.rows += 1
        started = now()
        await line.send(it.request(STREAM))
        head = await line.reader.readuntil(b"\r\n\r\n")
        comments = [await a_chunk(line, started) for _ in range(5)]
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"text/event-stream" in head
        assert [piece for piece, _ in comments] == [KEEP_ALIVE] * 5
        assert [round(at, 1) for _, at in comments] == [0.1, 0.2, 0.3, 0.4, 0.5]
        rest = [await a_chunk(line, started) for _ in range(3)]
        assert rest[0][0].startswith(b"data: ")
        assert all(KEEP_ALIVE not in piece for piece, _ in rest)
        assert rest[-1][0] == b""
        assert D in b"".join(piece for piece, _ in rest)


@pytest.mark.fault("CAN-06")
@pytest.mark.parametrize("begun", [False, True], ids=["before its head", "with a role alone"])
async def test_a_failure_after_comments_is_an_event(tmp_path: Path, begun: bool) -> None:
    role = chat_role() if begun else b""
    bad = play(role, (b"", 0.25), end="rst") if begun else play((error(500, "no"), 0.25))
    async with case(tmp_path, bad, server={"keepalive": "100ms"}) as it:
        answer = await it.ask(STREAM)
        assert answer.status == 200
        assert answer.body.startswith(KEEP_ALIVE * 2)
        (last,) = said(answer.body)
        assert last["error"]["code"] == ("upstream_incomplete" if begun else "upstream_error")
        seen = it.running.kept.seen[0]
        assert (seen.outcome, seen.status) == ("failed", 200)


@pytest.mark.fault("CAN-06")
async def test_a_failure_before_comments_has_its_status(tmp_path: Path) -> None:
    async with case(tmp_path, play((error(500, "no"), 0.05)), server={"keepalive": "200ms"}) as it:
        assert (await it.ask(STREAM)).status == 502


@pytest.mark.fault("CAN-06")
async def test_no_comment_where_none_is_wanted(tmp_path: Path) -> None:
    late = play((chat_answer("Hello", stream=True), 0.3))
    async with case(tmp_path, late, server={"keepalive": "0s"}) as it:
        assert KEEP_ALIVE not in (await it.ask(STREAM)).body


@pytest.mark.fault("CAN-06")
async def test_a_client_that_leaves_among_comments_frees_its_provider(tmp_path: Path) -> None:
    async with case(tmp_path, play(end="hold"), server={"keepalive": "50ms"}) as it:
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request(STREAM))
            await line.reader.readuntil(KEEP_ALIVE)
            line.abort()
            (seen,) = await it.running.kept.count(1)
        assert seen.outcome == "aborted"
        await it.up.requests[0].peer_closed.wait()


@pytest.mark.fault("CAN-06")
async def test_openais_own_client_takes_no_notice_of_comments(tmp_path: Path) -> None:
    """Nor does its time limit between two pieces strike, which is shorter than the provider's silence."""
    late = play(chat_role(), (chunk(C("Hel")), 0.9), chunk(C("lo")), chunk(F("stop") + D) + LAST_CHUNK)
    async with case(tmp_path, late, server={"keepalive": "100ms"}) as it:
        it.rows += 2
        patience = openai.Timeout(5, read=0.4)
        async with openai.AsyncOpenAI(base_url=it.running.url, api_key=KEY, max_retries=0, timeout=patience) as client:
            raw = client.chat.completions.with_streaming_response.create(model="m", messages=HI, stream=True)
            async with raw as answer:
                body = b"".join([piece async for piece in answer.iter_bytes()])
            chunks = [each async for each in await client.chat.completions.create(model="m", messages=HI, stream=True)]
        assert body.count(KEEP_ALIVE) >= 3
        assert [each.choices[0].delta.content for each in chunks] == ["", "Hel", "lo", None]
        assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.fault("CAN-06")
async def test_openais_own_client_raises_a_failure_after_comments(tmp_path: Path) -> None:
    async with case(tmp_path, play((error(500, "no"), 0.25)), server={"keepalive": "100ms"}) as it:
        it.rows += 1
        async with openai.AsyncOpenAI(base_url=it.running.url, api_key=KEY, max_retries=0) as client:
            stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
            with pytest.raises(openai.APIError) as raised:
                assert [each async for each in stream] == []
        assert (raised.value.code, raised.value.type) == ("upstream_error", "server_error")


def chat_role() -> bytes:
    return sse_head() + chunk(chat_chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]))


async def a_chunk(line: Line, since: float) -> tuple[bytes, float]:
    """The next chunk of a chunked body, and when it came."""
    size = int(await line.reader.readuntil(b"\r\n"), 16)
    return (await line.reader.readexactly(size + 2))[:-2], now() - since


# ---- CAN-08: a provider that isn't there


@pytest.mark.fault("CAN-08")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", ["black_hole", "mute"])
async def test_a_provider_that_never_answers_costs_its_own_callers_alone(tmp_path: Path, kind: str, stream: bool) -> None:
    limits = limited(connect="1s", first="1s", total="1s" if kind == "mute" else "20s")
    models = limits | {"other": {"targets": [{"provider": "other"}]}}
    async with (
        Misbehaving(black_hole=kind == "black_hole", mute=kind == "mute") as bad,
        Misbehaving(play(chat_answer("Hello"))) as good,
        case(tmp_path, bad, providers=providers(bad, other=good.base_url), models=models) as it,
    ):
        started = now()
        stuck = [asyncio.ensure_future(it.ask({"stream": stream})) for _ in range(20)]
        for _ in range(10):
            assert (await it.ask({"model": "other"})).status == 200
        assert not any(each.done() for each in stuck), "others had to wait"
        answers = await asyncio.gather(*stuck)
        assert {(answer.status, answer.error["code"]) for answer in answers} == {(504, "upstream_timeout")}
        assert 0.99 <= now() - started < 2.0


# ---- CAN-11: a client that reads slowly

SLOW, OFFERED, PIECE = 20, 200 << 20, 64 << 10


@pytest.mark.fault("CAN-11")
async def test_slow_readers_cost_nobody_else(tmp_path: Path) -> None:
    endless = play(sse_head(), *[chunk(C("x" * PIECE))] * (OFFERED // PIECE))
    async with Misbehaving(play(chat_answer("Hello"))) as good, Misbehaving(endless) as up:
        models = limited() | {"other": {"targets": [{"provider": "other"}]}}
        parts = {"providers": providers(up, other=good.base_url), "models": models, "server": {"write_timeout": "1s"}}
        async with case(tmp_path, up, **parts) as it:
            idle = await p95(it)
            before = psutil.Process().memory_info().rss
            readers = [asyncio.create_task(sipping(it)) for _ in range(SLOW)]
            await up.request(SLOW - 1)
            busy = await p95(it)
            grown = psutil.Process().memory_info().rss - before
            print(f"slow readers: p95 {idle * 1000:.1f} -> {busy * 1000:.1f} ms, RSS + {grown / (1 << 20):.1f} MiB")
            assert grown < SLOW << 20
            assert busy < max(2 * idle, 0.02)
            await asyncio.gather(*readers)
            assert [seen.outcome for seen in it.running.kept.seen if seen.model == "m"] == ["aborted"] * SLOW
            assert up.open == 0


async def p95(it: Case) -> float:
    """Of a hundred calls one after another, in seconds."""
    took = []
    for _ in range(100):
        began = now()
        assert (await it.ask({"model": "other"})).status == 200
        took.append(now() - began)
    return quantiles(took, n=20)[-1]


async def sipping(it: Case) -> None:
    """Read 1 KB now and then, at last nothing more; return once the gateway has given up."""
    it.rows += 1
    async with narrow(it) as line:
        await line.send(it.request(STREAM))
        for _ in range(10):
            assert await line.reader.read(1024)
            await asyncio.sleep(0.05)  # part of the scenario
        await it.running.kept.until(lambda seen: sum(each.model == "m" for each in seen) >= SLOW)


# ---- CAN-12: what a cancelled call left must not be another's answer


@pytest.mark.fault("CAN-12")
async def test_the_next_caller_never_reads_what_a_cancelled_one_left(tmp_path: Path) -> None:
    async with case(tmp_path, echo(delay=0.02)) as it:
        await asyncio.gather(*(rounds(it, lane, 50) for lane in range(10)))
        assert it.running.kept.seen
        assert len(it.up.connections) < len(it.up.requests), "no connection was ever used again"


async def rounds(it: Case, lane: int, count: int) -> None:
    dice = random.Random(lane)
    for number in range(count):
        mine, theirs = f"nonce-a{lane}x{number}", f"nonce-b{lane}x{number}"
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request(saying(mine, stream=dice.random() < 0.5), key=KEY))
            await asyncio.sleep(dice.uniform(0, 0.05))  # part of the scenario
            line.abort()
        stream = dice.random() < 0.5
        answer = await it.ask(saying(theirs, stream=stream), key=OTHER)
        assert answer.status == 200
        assert re.findall(rb"nonce-\w+", answer.body) == [theirs.encode()]


def saying(words: str, *, stream: bool) -> dict[str, Any]:
    return {"stream": stream, "messages": [{"role": "user", "content": words}]}
