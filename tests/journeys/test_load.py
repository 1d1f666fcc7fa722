"""Everything at once: many streams, clients that leave at random, providers that fail, configurations that change, and the end.

The short forms run in `make test` from a seed; the long ones are soak. A call's words hold a nonce: an answer with another's is cross-talk.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import psutil
import pytest

from case import KEY, OTHER, Answer, Case, case, settings
from gateway import until
from otlp_sink import Sink
from serving import serving
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_answer, chunk, error, play, sse_head, wants_stream

now = time.perf_counter
NONCE = re.compile(rb"nonce-\w+-")
LIMITS = {"connect": "2s", "first": "2s", "silence": "500ms", "total": "2s"}
MODELS = {"m": {"targets": [{"provider": "up"}], "time_limit": LIMITS}, "ok": {"targets": [{"provider": "script"}]}}


# ---- the provider: one call in five fails, in every way there is


def failures(nonce: str) -> list[Play]:
    """Every way for a stream to fail, before and after its first content."""
    begun = sse_head() + chunk(C(nonce)) + chunk(C(nonce))
    return [
        play(error(500, "no")),
        play(error(429, "slow down", type="rate_limit_error", code="rate_limit_exceeded")),
        play(error(400, "not so", type="invalid_request_error")),
        play(end="rst"),
        play(end="fin"),
        play(b"HTTP/1.1 200 OK\r\nContent-", end="fin"),
        play(sse_head() + chunk(b'data: {"error": {"message": "no", "type": "server_error"}}\n\n') + chunk(D) + LAST_CHUNK),
        play(begun, (b"", 0.01), end="rst"),
        play(begun, (b"", 0.01), end="fin"),
        play(begun, (chunk(D) + LAST_CHUNK, 0.01)),
        play(begun, (chunk(b'data: {"error": {"message": "no"}}\n\n') + LAST_CHUNK, 0.01)),
        play(begun + b"zz\r\nbroken", end="hold"),
        play(begun, end="hold"),
    ]


def provider(seed: int, *, failing: float = 0.2, pause: float = 0.004) -> Callable[[Request], Play]:
    """Answers with the words that it was asked with, piece by piece."""
    dice = random.Random(seed)

    def script(request: Request) -> Play:
        found = NONCE.search(request.body)
        nonce = found[0].decode() if found else "none"
        if dice.random() < failing:
            return dice.choice(failures(nonce))
        if not wants_stream(request):
            return play((chat_answer(nonce), pause))
        pieces = [(chunk(C(nonce)), pause * dice.random()) for _ in range(dice.randint(1, 12))]
        end = chunk(F("stop")) + chunk(U(7, 2)) + chunk(D)
        return play(sse_head(), *pieces, end + LAST_CHUNK) if dice.random() < 0.7 else play(sse_head(), *pieces, end, (LAST_CHUNK, pause))

    return script


# ---- the clients: one in ten leaves


def well_formed(answer: Answer, nonce: str) -> str:
    """How the call ended. Whatever it was, it was said plainly, and in its own words."""
    assert set(NONCE.findall(answer.body)) <= {nonce.encode()}, "cross-talk"
    if answer.header("content-type") != "text/event-stream":
        if answer.status == 200:
            assert answer.json()["choices"][0]["message"]["content"] == nonce
            return "completed"
        assert answer.error["message"]
        return f"{answer.status} {answer.error['code']}"
    assert answer.status == 200
    *events, last = [frame.removeprefix(b"data: ") for frame in answer.body.split(b"\n\n")[:-1] if not frame.startswith(b":")]
    assert answer.body.endswith(b"\n\n")
    assert all(json.loads(event)["object"] == "chat.completion.chunk" for event in events)
    assert all(b'"error"' not in event for event in events)
    if last == b"[DONE]":
        assert b'"finish_reason": "stop"' in events[-1] or b'"finish_reason":"stop"' in events[-1]
        return "completed"
    return f"in stream {json.loads(last)['error']['code']}"


class Crowd:
    """`count` calls in all, `at_once` of them at a time; `ended` counts how."""

    def __init__(self, it: Case, seed: int, *, leaving: float = 0.1) -> None:
        self.it = it
        self.ended: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._leaving = leaving
        self._serial = 0
        self.draining = False
        self.broken: list[tuple[bool, bytes]] = []  # whether the end had begun, and what had come of the answer

    async def calls(self, count: int, at_once: int) -> None:
        async with asyncio.TaskGroup() as lanes:
            for lane in range(at_once):
                lanes.create_task(self._lane(count // at_once + (lane < count % at_once)))

    async def until_refused(self, at_once: int) -> None:
        """Calls until nobody listens any more."""
        await asyncio.gather(*(self._until_refused() for _ in range(at_once)))

    async def _until_refused(self) -> None:
        while True:
            try:
                await self.call()
            except (OSError, asyncio.IncompleteReadError) as error:
                self.ended["refused"] += 1
                self.broken.append((self.draining, getattr(error, "partial", b"")))
                return

    async def _lane(self, count: int) -> None:
        for _ in range(count):
            await self.call()

    async def call(self) -> None:
        self._serial += 1
        nonce = f"nonce-{self._serial}-"
        body = {"stream": self._dice.random() < 0.8, "messages": [{"role": "user", "content": nonce}]}
        request = self.it.request(body, key=self._dice.choice((KEY, OTHER)))
        leaves = self._dice.uniform(0, 0.05) if self._dice.random() < self._leaving else None
        self.it.rows += 1
        async with self.it.line() as line:
            line._heard = []
            await line.send(request)
            if leaves is not None:
                await asyncio.sleep(leaves)  # part of the scenario
                line.abort()
                self.ended["left"] += 1
                return
            self.ended[well_formed(await line.answer(), nonce)] += 1


def check(crowd: Crowd, count: int) -> None:
    ended = crowd.ended
    print(dict(ended.most_common()))
    assert ended.total() == count
    assert 0.05 * count < ended["left"] < 0.15 * count
    assert 0.6 * count < ended["completed"] < 0.85 * count
    assert {"502 upstream_error", "429 rate_limit_exceeded", "in stream upstream_incomplete", "in stream upstream_timeout"} <= set(ended)
    outcomes = Counter(str(seen.outcome) for seen in crowd.it.running.kept.seen)
    # Who leaves may have been answered already; nobody else is aborted.
    assert outcomes["aborted"] <= ended["left"]
    assert outcomes["completed"] >= ended["completed"]


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
async def test_many_streams_and_everything_that_goes_wrong(tmp_path: Path, count: int) -> None:
    async with Misbehaving(provider(1)) as up, case(tmp_path, up, models=MODELS) as it:
        await it.works()
        before = psutil.Process().num_fds()
        crowd = Crowd(it, seed=2)
        await crowd.calls(count, at_once=200)
        await it.running.kept.count(it.rows)
        await it.running.settled()
        check(crowd, count)
        await until(lambda: it.running.app.server.connections == 0)
        await until(lambda: files() <= before + 2 * up.open + OWN)  # else a socket is still open


OWN = 14  # files of the spool and the database come and go; of those DuckDB may open one for each of eight sizes, to hold nothing


def files() -> int:
    return psutil.Process().num_fds()


# ---- new configurations, and the end, under that load


@pytest.mark.fault("CFG-02")
@pytest.mark.fault("CAN-09")
async def test_reloads_and_sigterm_under_load_lose_nothing(tmp_path: Path) -> None:
    async with Misbehaving(provider(3)) as up:
        with serving(tmp_path, up.base_url, models=MODELS, server={"drain": "10s"}) as program:
            everything = asyncio.create_task(program.end())  # reads what it says, so that it never has to wait
            crowd = Crowd(program.case(up), seed=4)
            load = asyncio.create_task(crowd.until_refused(at_once=200))
            for number in range(20):
                await until(lambda: crowd.ended.total() >= 40 * number, 20)  # noqa: B023
                await program.reloaded(settings(up.base_url, models=MODELS, organisation=f"o{number}"))
            crowd.draining = True
            program.process.send(signal.SIGTERM)
            await load
            ran, calls = await everything
    print(dict(crowd.ended.most_common()))
    assert ran.code == 0
    assert "Traceback" not in ran.err
    assert crowd.ended["503 draining"] > 0
    assert set(crowd.broken) == {(True, b"")}, "an answer was cut, or a connection broke before the end"
    assert len({call["id"] for call in calls}) == len(calls)
    unanswered = crowd.ended["left"] + crowd.ended["refused"]
    assert crowd.ended.total() - unanswered <= len(calls) <= crowd.ended.total()
    outcomes = Counter(call["outcome"] for call in calls)
    assert outcomes["aborted"] <= crowd.ended["left"]
    assert outcomes["completed"] >= crowd.ended["completed"]
    assert {call["error_code"] for call in calls if call["outcome"] == "refused"} == {"draining"}


# ---- RES-12: many streams at once


@pytest.mark.fault("RES-12")
@pytest.mark.parametrize(("seconds", "pace"), [(2.0, 0.25), pytest.param(60.0, 0.5, marks=[pytest.mark.soak, pytest.mark.timeout(200)])])
async def test_five_hundred_streams(tmp_path: Path, seconds: float, pace: float) -> None:
    events = int(seconds / pace)
    steady = play(sse_head(), *[(chunk(C("nonce-x-")), pace)] * events, chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with Misbehaving(steady) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, telemetry={"otlp": {"endpoint": sink.endpoint}}) as program:
            everything = asyncio.create_task(program.end(300))
            gateway, it = psutil.Process(program.process.pid), program.case(up)
            await healthy(it)
            before = gateway.num_fds()
            streams = [asyncio.create_task(it.ask({"stream": True})) for _ in range(500)]
            await up.request(499)
            health = [await healthy(it) for _ in range(30)]
            largest = gateway.memory_info().rss
            answers = await asyncio.gather(*streams)
            print(f"500 streams: health {median(health) * 1000:.1f} ms, RSS {largest / (1 << 20):.0f} MiB")
            assert {(answer.status, answer.body.count(b"nonce-x-"), answer.body.endswith(D)) for answer in answers} == {(200, events, True)}
            assert median(health) < 0.05
            assert largest < 400 << 20
            await until(lambda: gateway.num_fds() <= before + 257 + 8)  # what the pool keeps; the way to the collector, files of rows
            assert up.open <= 257
            program.process.send(signal.SIGTERM)
            ran, calls = await everything
            assert len(sink.spans) == 2 * len(calls)
    assert (ran.code, {call["outcome"] for call in calls}, len(calls)) == (0, {"completed"}, 500)


async def healthy(it: Case) -> float:
    began = now()
    assert (await it.ask(path="/healthz", method="GET")).status == 200
    took = now() - began
    await asyncio.sleep(0.02)  # part of the scenario
    return took


# ---- RES-13: no more files


def shut(reader: asyncio.StreamReader) -> bool:
    """Whether the other side is gone: in peace, or with a reset where it had bytes that it never read."""
    return reader.at_eof() or reader.exception() is not None


@pytest.mark.fault("RES-13")
async def test_out_of_files(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        with ExitStack() as ends:
            program = ends.enter_context(serving(tmp_path, up.base_url, telemetry={}))
            gateway = psutil.Process(program.process.pid)
            gateway.rlimit(psutil.RLIMIT_NOFILE, (256, 256))
            it = program.case(up)
            crowd = [asyncio.create_task(asyncio.open_connection(program.host, program.port)) for _ in range(400)]
            opened = [await each for each in crowd]
            try:
                for _, writer in opened:
                    writer.write(it.request()[:40])
                await until(lambda: sum(shut(reader) for reader, _ in opened) >= 100, 20)  # what is too much does not wait
                began, used = now(), sum(gateway.cpu_times()[:2])
                await asyncio.sleep(1.0)  # part of the scenario: it has to bear this for a while
                busy = (sum(gateway.cpu_times()[:2]) - used) / (now() - began)
                assert gateway.num_fds() <= 256 - 256 // 4 + 8, "some are kept for providers, and for the disk"
                assert busy < 0.5, "it spins"
            finally:
                for _, writer in opened:
                    writer.transport.abort()
            released = now()
            while True:
                try:
                    async with asyncio.timeout(2):
                        answer = await it.ask()
                    break
                except (OSError, asyncio.IncompleteReadError):
                    assert now() - released < 2
            assert answer.status == 200
            assert now() - released < 2
            told = (await it.ask(path="/metrics", method="GET")).body.decode()
            [refused] = re.findall(r"^spangate_connections_refused_total(?:{.*})? (\d+)", told, re.MULTILINE)
            assert int(refused) >= 100
            print(f"out of files: {busy:.0%} CPU, back after {now() - released:.2f} s")
            program.process.send(signal.SIGTERM)
            ran, _ = await program.end()
            assert ran.code == 0


@pytest.mark.fault("RES-13")
async def test_who_is_let_in_gets_an_answer_when_files_are_few(tmp_path: Path) -> None:
    """Each of them takes a connection to the provider too, and all at the same time."""
    answered = asyncio.Event()

    async with Misbehaving(play(answered, chat_answer("Hello"))) as up:
        with serving(tmp_path, up.base_url) as program:
            gateway = psutil.Process(program.process.pid)
            gateway.rlimit(psutil.RLIMIT_NOFILE, (256, 256))
            calls = [asyncio.create_task(program.ask()) for _ in range(250)]
            await until(lambda: len(up.requests) + sum(each.done() for each in calls) == len(calls), 20)
            answered.set()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert {end.status for end in ends if isinstance(end, Answer)} == {200}
            assert {type(end) for end in ends} <= {Answer, asyncio.IncompleteReadError, ConnectionResetError, BrokenPipeError}
            assert 40 < sum(isinstance(end, Answer) for end in ends) < 128
            program.process.send(signal.SIGTERM)
            ran, _ = await program.end()
    assert ran.code == 0
    assert "Too many open files" not in ran.err


@pytest.mark.fault("RES-13")
async def test_nobody_reads_what_it_says(tmp_path: Path) -> None:
    """A full pipe (a pager, a stuck log driver, Ctrl-S) costs lines, not calls."""
    async with Misbehaving(lambda request: play(error(500, "no") if b"odd" in request.body else chat_answer("Hello"))) as up:
        with serving(tmp_path, up.base_url) as program:
            for number in range(800):
                async with asyncio.timeout(2):
                    answer = await program.ask(user="odd" if number % 2 else "even", model="m" if number % 4 else "x" * 200)
                assert answer.status in (200, 404, 502)
            program.process.send(signal.SIGTERM)
            ran, calls = await program.end()
    assert ran.code == 0
    assert 100 < len(calls) <= 800


# ---- RES-14: nothing is left behind


@pytest.mark.fault("RES-14")
@pytest.mark.parametrize(
    ("count", "warm"), [(3000, 1000), pytest.param(100_000, 10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3000)])]
)
async def test_memory_and_files_stay_flat(tmp_path: Path, count: int, warm: int) -> None:
    async with Misbehaving(provider(5, pause=0.001)) as up:
        with serving(tmp_path, up.base_url, models=MODELS) as program:
            everything = asyncio.create_task(program.end(3000))
            gateway = psutil.Process(program.process.pid)
            crowd = Crowd(program.case(up), seed=6)
            await batches(crowd, up, warm)
            before, open_before = await program.resident(), gateway.num_fds()
            await batches(crowd, up, count - warm)
            grown = await program.resident() / before - 1
            print(f"RSS after {warm} calls {before / (1 << 20):.0f} MiB, after {count} {grown:+.1%}")
            assert grown < 0.1
            assert gateway.num_fds() <= open_before + 60
            program.process.send(signal.SIGTERM)
            ran, calls = await everything
            assert (ran.code, len({call["id"] for call in calls})) == (0, len(calls))
            assert "Unclosed" not in ran.err
            assert "never" not in ran.err


async def batches(crowd: Crowd, up: Misbehaving, count: int) -> None:
    """Calls in batches; after each the tests' own memory of them is given up."""
    for _ in range(count // 500):
        await crowd.calls(500, at_once=50)
        up.requests.clear()
        up.connections[:] = [each for each in up.connections if not each.gone.is_set()]
