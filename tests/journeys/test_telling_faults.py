"""What is told while a gateway stops, starves, is flooded, or is sent what nobody can keep: the rows and spans of the fault list."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from case import CHAT, KEY, Case, key_hash
from otlp_sink import Sink, attributes
from serving import Program, serving
from told import CLIENT, SERVER, told
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_answer, chat_completion, chunk, http, play, sse_head

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = ("traceparent", f"00-{TRACE}-{CALLER}-01")
STREAM: dict[str, Any] = {"stream": True}


def telling(sink: Sink) -> dict[str, Any]:
    return {"usage": {"path": "usage.duckdb"}, "telemetry": {"otlp": {"endpoint": sink.endpoint}}}


def kept(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the database says that a program has left behind."""
    with duckdb.connect(str(folder / "usage.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def kinds(spans: list[Span]) -> tuple[int, int]:
    count = Counter(span.kind for span in spans)
    return count[SERVER], count[CLIENT]


# ---- the end of the program


@pytest.mark.fault("CAN-09", "KEY-09")
async def test_a_program_that_ends_has_told_everything(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    whole = play(sse_head() + chunk(C("a")), go_on, *[(chunk(C("b")), 0.02)] * 5, chunk(F("stop") + U(7, 2) + D) + LAST_CHUNK)
    async with Misbehaving(whole) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, server={"drain": "10s"}, **telling(sink)) as program:
            streams = [asyncio.create_task(program.ask(stream=True)) for _ in range(50)]
            await up.request(49)
            program.process.send(signal.SIGTERM)
            await program.until_draining()
            assert (await program.ask()).status == 503
            go_on.set()
            assert {answer.body.count(D) for answer in await asyncio.gather(*streams)} == {1}
            assert (await program.end())[0].code == 0
            assert kinds(sink.spans) == (51, 50)
    rows = kept(tmp_path, "SELECT outcome, error_code, input_tokens, output_tokens, count(*) FROM calls GROUP BY ALL ORDER BY ALL")
    assert rows == [("completed", "", 7, 2, 50), ("refused", "draining", None, None, 1)]
    spans = {attributes(span)["spangate.request.id"] for span in sink.spans if span.kind == SERVER}
    assert {id for (id,) in kept(tmp_path, "SELECT id FROM calls")} == spans


@pytest.mark.fault("CAN-10")
@pytest.mark.parametrize("again", [None, signal.SIGINT], ids=["time is up", "a second signal"])
async def test_a_program_that_ends_early_has_told_everything(tmp_path: Path, again: signal.Signals | None) -> None:
    endless = play(sse_head() + chunk(C("a")), *[(chunk(C("b")), 0.1)] * 600)
    async with Misbehaving(endless) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, server={"drain": "30s" if again else "300ms"}, **telling(sink)) as program:
            streams = [asyncio.create_task(program.ask(stream=True)) for _ in range(20)]
            await up.request(19)
            program.process.send(signal.SIGTERM)
            if again:
                await program.until_draining()
                program.process.send(again)
            await asyncio.gather(*streams)
            assert (await program.end())[0].code == (130 if again else 0)
            assert kinds(sink.spans) == (20, 20)
    rows = kept(tmp_path, "SELECT outcome, error_code, usage_source, count(*) FROM calls GROUP BY ALL")
    assert rows == [("failed", "draining", "estimated", 20)]


# ---- values that nobody can keep


@pytest.mark.fault("RES-06", "RES-07", "TEL-09", "HDR-12")
async def test_odd_values_leave_rows_and_spans(tmp_path: Path) -> None:
    """NaN, NUL, lone surrogates and long texts, from the caller and from the provider: each call has its row and its spans."""
    answer = chat_completion("Hello")
    odd = [
        answer.replace(b'"finish_reason"', b'"logprobs":{"content":[{"logprob":-Infinity}]},"finish_reason"'),
        answer.replace(b'"created":1', b'"created":NaN'),
        answer.replace(b'"c1"', b'"\\ud800"').replace(b'"model":"m"', b'"model":"\\udfff\\u0000"'),
        answer.replace(b'"stop"', b'"\\ud83d' + b"y" * 100_000 + b'"'),
        answer.replace(b'"Hello"', b'"\\ud800\\u0000"'),
    ]
    bodies = [
        rb'{"model": "m", "messages": [{"role": "user", "content": "\ud83d"}]}',
        rb'{"model": "m", "user": "\u0000", "messages": [{"tool_calls": [{"function": {"arguments": "\udc00"}}]}]}',
        rb'{"model": "m", "temperature": 1e400, "seed": 99999999999999999999999, "messages": []}',
        rb'{"model": "m", "service_tier": "\ud800", "reasoning_effort": "\u0000", "messages": []}',
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * (2 << 20)}]}).encode(),
    ]
    refused = [rb'{"model": "\ud83d", "messages": []}', rb'{"model": "a\u0000b", "messages": []}', b'{"model": "m", "temperature": NaN}']
    script = [play(http(200, [("x-request-id", "\xff\x80")], each)) for each in odd]
    async with told(tmp_path, script) as it:
        assert [(await it.it.ask(body)).status for body in bodies] == [200] * 5
        assert [(await it.it.ask(body)).status for body in refused] == [404, 404, 400]
        calls = await it.calls()
        assert [call.row["outcome"] for call in calls] == ["completed"] * 5 + ["refused"] * 3
        assert {call.tokens for call in calls[:5]} == {(7, 2, "provider")}
        assert max(len(span.SerializeToString()) for span in it.sink.spans) < 100_000
        text = json.dumps(await it.rows("SELECT * FROM calls")) + json.dumps(await it.rows("SELECT * FROM attempts"))
        assert len(text) < 20_000


# ---- contexts


@pytest.mark.fault("TEL-08", "TEL-03")
@pytest.mark.parametrize("inbound", ["link", "ignore"])
@pytest.mark.parametrize("ratio", [0, 1])
@pytest.mark.parametrize("flag", ["00", "01"])
async def test_strangers_begin_no_trace_of_ours(tmp_path: Path, inbound: str, ratio: int, flag: str) -> None:
    """Neither does their flag: our own ratio keeps everything, or nothing, whatever they say."""
    headers = [("traceparent", PARENT[1][:-2] + flag), ("tracestate", "vendor=secret"), ("baggage", "user=jane")]
    sampler = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(ratio)}
    async with told(tmp_path, play(chat_answer("Hello")), environ=sampler, server={"inbound_trace": inbound}) as it:
        assert (await it.it.ask(headers=headers)).status == 200
        [request] = it.it.up.requests
        assert not {name.lower() for name, _ in request.headers} & {b"baggage", b"tracestate"}
        assert TRACE.encode() not in request.raw
        if not ratio:
            assert await it.spans() == []
            [row] = await it.rows("SELECT trace_id, attempts, input_tokens FROM calls")
            assert row.pop("trace_id") not in (TRACE, "0" * 32)
            assert row == {"attempts": 1, "input_tokens": 7}
            return
        call = await it.call()
        assert call.span.trace_id.hex() not in (TRACE, "0" * 32)
        assert (call.span.parent_span_id, call.span.trace_state) == (b"", "")
        assert [(link.trace_id.hex(), link.span_id.hex()) for link in call.span.links] == [(TRACE, CALLER)] * (inbound == "link")


@pytest.mark.fault("TEL-08")
async def test_a_call_that_is_not_sampled_has_its_row(tmp_path: Path) -> None:
    none = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    async with told(tmp_path, play(chat_answer("Hello")), environ=none) as it:
        assert (await it.it.ask(headers=[PARENT])).status == 200
        assert await it.spans() == []
        assert await it.rows("SELECT trace_id, attempts, input_tokens FROM calls") == [
            {"trace_id": TRACE, "attempts": 1, "input_tokens": 7}
        ]


@pytest.mark.fault("KEY-11")
async def test_a_query_is_told_nowhere(tmp_path: Path) -> None:
    async with told(tmp_path, play(chat_answer("Hello"))) as it:
        for name in ("api_key", "key", "sig"):
            assert (await it.it.ask(path=f"{CHAT}?{name}=CANARY-in-the-query")).status == 200
            assert (await it.it.ask(path=f"{CHAT}?{name}={KEY}", key="")).status == 401
        calls = await it.calls()
        assert {call.said["url.path"] for call in calls} == {CHAT}
        assert "CANARY" not in f"{it.sink.taken} {[call.row for call in calls]} {it.it.log.lines}"


# ---- a database that somebody else has

HOLDER = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); c.execute('CREATE TABLE t (i INT)'); print(flush=True); sys.stdin.read()"


@pytest.mark.soak  # the short forms stand in tests/exporters/usage/test_writer.py
@pytest.mark.fault("STO-01")
async def test_a_locked_database_costs_no_call_and_no_row(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        held = [sys.executable, "-P", "-c", HOLDER, str(tmp_path / "usage.duckdb")]
        with Sink() as sink, subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:  # noqa: ASYNC220
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdout.readline()
            with serving(tmp_path, up.base_url, **telling(sink)) as program:
                it, everything = program.case(up), asyncio.create_task(program.end())
                said = await until_told(it, lost=True)
                assert f"process {other.pid} holds it" in said["usage"]
                assert {(await it.ask()).status for _ in range(20)} == {200}
                assert "usage_lost" not in await until_told(it, lost=True)
                other.stdin.close()
                await until_told(it, lost=False)
                program.process.send(signal.SIGTERM)
                assert (await everything)[0].code == 0
    assert kept(tmp_path, "SELECT count(*), count(DISTINCT id), sum(input_tokens) FROM calls") == [(20, 20, 140)]


# ---- a full disk


@pytest.mark.fault("STO-03")
@pytest.mark.parametrize("on_state_error", ["refuse", "allow"])
async def test_a_budget_is_kept_while_the_disk_is_full(on_state_error: str, tmp_path: Path) -> None:
    """What is spent is never read from a database that failed: memory knows it. A budget whose spend couldn't be kept through a crash
    refuses meanwhile, unless it says otherwise, and goes on where it was."""
    rule = {"budget": {"name": "b", "limit": 900, "window": "total", "models": ["m"], "on_state_error": on_state_error}}
    keys = {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": [rule]}
    async with Misbehaving(play(chat_answer("Hello"))) as up, asyncio.timeout(60):
        with Sink() as sink, serving(tmp_path, up.base_url, **telling(sink), teams={"search": keys, "other": {}}) as program:
            gateway, it = psutil.Process(program.process.pid), program.case(up)
            everything = asyncio.create_task(program.end())
            assert {(await it.ask({"max_tokens": 2})).status for _ in range(20)} == {200}
            assert await spent(it) == (20 * 9, 0)
            gateway.rlimit(psutil.RLIMIT_FSIZE, (4096, psutil.RLIM_INFINITY))
            statuses = [(await it.ask({"max_tokens": 2})).status for _ in range(40)]
            assert set(statuses) <= {200, 503}
            assert (503 in statuses) == (on_state_error == "refuse")
            done = 20 + statuses.count(200)
            assert await spent(it) == (done * 9, 0)
            gateway.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
            while (answer := await it.ask({"max_tokens": 2})).status != 429:
                done += answer.status == 200
            assert await spent(it) == (done * 9, 0)
            assert 800 < done * 9 <= 900
            program.process.send(signal.SIGTERM)
            assert (await everything)[0].code == 0


async def spent(it: Case) -> tuple[float, float]:
    [row] = (await it.ask(path="/v1/key", method="GET")).json()["budgets"]
    return row["used"], row["reserved"]


@pytest.mark.fault("STO-03")
async def test_a_disk_without_room_costs_rows_and_no_call(tmp_path: Path) -> None:
    """The limit on the size of files stands for a full disk, as it is set from outside while the program runs."""
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, **telling(sink)) as program:
            gateway, it = psutil.Process(program.process.pid), program.case(up)
            everything = asyncio.create_task(program.end())
            assert {(await it.ask()).status for _ in range(20)} == {200}
            gateway.rlimit(psutil.RLIMIT_FSIZE, (4096, psutil.RLIM_INFINITY))
            assert {(await it.ask()).status for _ in range(60)} == {200}
            full = await until_told(it, lost=True, calling=True)
            assert "usage" in full
            assert str(tmp_path) not in json.dumps(full)
            gateway.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
            assert {(await it.ask()).status for _ in range(20)} == {200}
            after = await until_told(it, lost=False)
            lost = after["usage_lost"]
            assert "usage_broken" not in after, "what is lost is counted once"
            program.process.send(signal.SIGTERM)
            ran, lines = await everything
            assert ran.code == 0
            assert kinds(sink.spans) == (it.rows, it.rows), "what the disk does is nothing to traces"
    [(rows, ids, input)] = kept(tmp_path, "SELECT count(*), count(DISTINCT id), sum(input_tokens) FROM calls WHERE outcome = 'completed'")
    assert (ids, input) == (rows, 7 * rows)
    assert rows >= 40, "those before and after"
    assert lost > 0
    assert rows == it.rows - lost
    assert len(lines) == it.rows


async def until_told(it: Case, *, lost: bool, calling: bool = False) -> dict[str, Any]:
    """/readyz, once it tells that rows wait or are being lost, or that none does any more."""
    async with asyncio.timeout(20):  # a database that failed is tried again every three seconds
        while True:
            assert not calling or (await it.ask()).status == 200
            answer = await it.ask(path="/readyz", method="GET")
            said: dict[str, Any] = answer.json()
            assert (answer.status, said["status"]) in {(200, "ready"), (503, "replaying")}, "nobody is kept from calling"
            if ("usage" in said) is lost and answer.status == 200:
                return said
            await asyncio.sleep(0.05)  # it tells nobody when it changes


# ---- RES-11: maps that grow with what callers make up


async def flood(program: Program, up: Misbehaving, number: int, first: int) -> None:
    """So many keys that nobody knows, and so many users of a good one, on few connections."""

    async def lane(lane: int, lanes: int) -> None:
        it = program.case(up)
        async with it.line() as line:
            for each in range(first + lane, first + number, lanes):
                line._heard = []
                bad = it.request(key=f"sg-{each:043d}")
                await line.send(bad + it.request(headers=[("x-spangate-user", f"u-{each}"), ("x-spangate-thread", f"t-{each}")]))
                assert (await line.answer()).status in (401, 429), "a source that tries many is told to wait"
                assert (await line.answer()).status == 200, "and so is nobody with a good key"

    await asyncio.gather(*(lane(each, 8) for each in range(8)))
    up.requests.clear()


@pytest.mark.fault("RES-11")
@pytest.mark.parametrize(
    ("warm", "number", "most"),
    [(300, 300, 64 << 20), pytest.param(20_000, 50_000, 10 << 20, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)
async def test_what_callers_make_up_is_not_kept_in_memory(tmp_path: Path, warm: int, number: int, most: int) -> None:
    """The short form looks at series and rows; a map shows in the long one, when the database has all the memory that it takes."""
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, **telling(sink)) as program:
            everything = asyncio.create_task(program.end(900))
            it = program.case(up)
            await flood(program, up, warm, 0)
            before = await program.resident()
            pages = [(await it.ask(path="/metrics", method="GET")).body]
            await flood(program, up, number, warm)
            sink.requests.clear()
            sink.taken.clear()
            pages.append((await it.ask(path="/metrics", method="GET")).body)
            grown = await program.resident() - before
            print(f"{number} unknown keys and {number} users: RSS {grown >> 10:+} KiB")
            assert grown < most
            assert len(pages[0].splitlines()) == len(pages[1].splitlines())
            assert b"u-1" not in pages[1]
            program.process.send(signal.SIGTERM)
            assert (await everything)[0].code == 0
    rows = kept(tmp_path, 'SELECT status = 200, count(*), count(DISTINCT "user"), count(DISTINCT status) FROM calls GROUP BY 1 ORDER BY 1')
    assert rows == [(False, warm + number, 1, 2), (True, warm + number, warm + number, 1)]
    wrong = "SELECT status, error_code, count(*) >= 100 FROM calls WHERE status <> 200 GROUP BY 1, 2 ORDER BY 1"
    assert kept(tmp_path, wrong) == [(401, "invalid_api_key", True), (429, "rate_limit_exceeded", True)]


# ---- TEL-05: names that callers make up


@pytest.mark.fault("TEL-05")
async def test_a_model_of_any_name_is_one_series_more(tmp_path: Path) -> None:
    """A gateway that passes any name through, and a provider that answers under that name: /metrics knows those that are written down."""
    up, script = {"targets": [{"provider": "up"}]}, {"targets": [{"provider": "script"}]}

    async def told_at(it: Case) -> dict[str, list[str]]:
        """The series of each family, without their values."""
        page = await it.ask(path="/metrics", method="GET")
        assert page.status == 200
        lines = [line.rpartition(" ")[0] for line in page.body.decode().splitlines() if not line.startswith("#")]
        return {name: [line for line in lines if line.partition("{")[0] == name] for name in {line.partition("{")[0] for line in lines}}

    def answer(request: Request) -> Play:
        return play(
            http(200, (), chat_completion("Hello").replace(b'"model":"m"', b'"model":%b' % json.dumps(request.json()["model"]).encode()))
        )

    async with told(tmp_path, answer, models={"m": up, "ok": script, "*": up}) as it:
        for name in ("m", "random-0"):
            assert (await it.it.ask({"model": name})).status == 200
        await it.it.works()
        before = await told_at(it.it)
        async with it.it.line() as line:
            for number in range(1, 500):
                line._heard = []
                it.it.rows += 1
                await line.send(it.it.request({"model": f"random-{number:x}"}))
                assert (await line.answer()).status == 200
        after = await told_at(it.it)
        assert {request.json()["model"] for request in it.it.up.requests} >= {"m", "random-0", "random-1f3"}
        assert {name: len(series) for name, series in after.items()} == {name: len(series) for name, series in before.items()}
        page = (await it.it.ask(path="/metrics", method="GET")).body.decode()
        assert "random-" not in page
        counts = dict(re.findall(r'^spangate_attempts_total\{[^}]*gen_ai_request_model="([^"]+)"[^}]*\} (\d+)', page, re.MULTILINE))
        assert counts == {"m": "1", "ok": "1", "_other": "500"}
