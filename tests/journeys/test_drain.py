"""The end of a gateway, and its configuration's change under way: what runs is finished, or told why not, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from case import Case, case, settings
from gateway import until
from serving import serving
from upstream import LAST_CHUNK, C, D, F, Misbehaving, chat_answer, chunk, play, sse_head

now = time.perf_counter
STREAM: dict[str, Any] = {"stream": True}


def outcomes(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((line["outcome"], line["error_code"]) for line in lines)


# ---- CAN-09: SIGTERM


def told(err: str) -> list[int]:
    """How many calls each line of stderr says are still running; the last says that nothing is lost; a drain says no more."""
    *lines, last = err.splitlines()
    assert last == "stopped; nothing lost"
    return [int(re.fullmatch(r".* stopping: calls still running: (\d+), for at most .*", line)[1]) for line in lines]  # type: ignore[index]


@pytest.mark.fault("CAN-09")
async def test_what_runs_at_sigterm_is_finished(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    whole = play(sse_head() + chunk(C("a")), go_on, *[(chunk(C("b")), 0.05)] * 5, chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with Misbehaving(whole) as up:
        with serving(tmp_path, up.base_url, server={"drain": "10s"}) as program:
            streams = [asyncio.create_task(program.ask(stream=True)) for _ in range(50)]
            await up.request(49)
            program.process.send(signal.SIGTERM)
            await program.until_draining()
            refused = await program.ask()
            assert (refused.status, refused.error["code"], refused.header("retry-after")) == (503, "draining", "1")
            assert (await program.ask("/healthz", "GET")).status == 200
            assert (await program.ask("/readyz", "GET")).json()["status"] == "draining"
            go_on.set()
            answers = await asyncio.gather(*streams)
            assert {answer.body.count(D) for answer in answers} == {1}
            assert {answer.body.count(b'"content":"b"') for answer in answers} == {5}
            ran, calls = await program.end()
            assert ran.code == 0
            assert told(ran.err) == [50]
            assert outcomes(calls) == [("completed", "")] * 50 + [("refused", "draining")]


# ---- CAN-10: more time than there is


@pytest.mark.fault("CAN-10")
@pytest.mark.parametrize("more", [[], [signal.SIGTERM], [signal.SIGINT]], ids=["once", "SIGTERM again", "then SIGINT"])
async def test_what_outlasts_the_drain_is_told(tmp_path: Path, more: list[signal.Signals]) -> None:
    endless = play(sse_head() + chunk(C("a")), *[(chunk(C("b")), 0.1)] * 600)
    at_once = signal.SIGINT in more
    async with Misbehaving(endless) as up:
        with serving(tmp_path, up.base_url, server={"drain": "30s" if at_once else "500ms"}) as program:
            streams = [asyncio.create_task(program.ask(stream=True)) for _ in range(20)]
            wholes = [asyncio.create_task(program.ask()) for _ in range(5)]
            await up.request(24)
            began = now()
            program.process.send(signal.SIGTERM)
            await program.until_draining()
            for again in more:
                program.process.send(again)
            for answer in await asyncio.gather(*streams):
                assert answer.status == 200
                assert json.loads(answer.body.split(b"data: ")[-1])["error"]["code"] == "draining"
                assert D not in answer.body
            assert {(answer.status, answer.error["code"]) for answer in await asyncio.gather(*wholes)} == {(503, "draining")}
            ran, calls = await program.end()
            assert now() - began < 0.5 + 2
            assert ran.code == (130 if at_once else 0)
            assert told(ran.err) == [25]
            assert outcomes(calls) == [("failed", "draining")] * 25


@pytest.mark.fault("CAN-10")
async def test_a_client_that_reads_nothing_holds_nobody_up(tmp_path: Path) -> None:
    endless = play(sse_head(), *[chunk(C("x" * 65536))] * 1000)
    async with Misbehaving(endless) as up:
        with serving(tmp_path, up.base_url, server={"drain": "300ms"}) as program:
            async with program.asked(stream=True) as line:
                await line.reader.readuntil(b"data: ")
                began = now()
                program.process.send(signal.SIGTERM)
                ran, calls = await program.end()
                assert now() - began < 0.3 + 2.5
                assert ran.code == 0
                assert outcomes(calls) == [("failed", "draining")]


@pytest.mark.fault("CAN-10")
async def test_a_slow_client_is_told_between_two_events(tmp_path: Path) -> None:
    endless = play(sse_head(), *[chunk(C("x" * (1 << 20)))] * 1000)
    async with Misbehaving(endless) as up:
        with serving(tmp_path, up.base_url, server={"drain": "300ms"}) as program:
            async with program.asked(stream=True, room=65536) as line:
                await up.request(0)
                program.process.send(signal.SIGTERM)
                await program.until_draining()
                await asyncio.sleep(0.4)  # part of the scenario: it reads nothing while it is stopped
                answer = await line.answer()
                *events, last = answer.body.split(b"\n\n")[:-1]
                assert {len(json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"]["content"]) for event in events} == {1 << 20}
                assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "draining"
                assert (await program.end())[0].code == 0


@pytest.mark.fault("CAN-09")
async def test_a_slow_client_gets_all_that_was_said_before_the_end(tmp_path: Path) -> None:
    large = play(sse_head() + chunk(C("x" * (12 << 20))) + chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with Misbehaving(large) as up:
        with serving(tmp_path, up.base_url, server={"drain": "10s"}) as program:
            async with program.asked(stream=True) as line:
                await line.reader.readuntil(b"data: ")
                program.process.send(signal.SIGTERM)
                await program.until_draining()
                read = b""
                while not read.endswith(LAST_CHUNK):
                    read = read[-200:] + await line.reader.read(1 << 20)
                    await asyncio.sleep(0.05)  # part of the scenario
                assert D in read
                ran, calls = await program.end()
                assert (ran.code, outcomes(calls)) == (0, [("completed", "")])


# ---- CFG-02: a new configuration while streams run


@pytest.mark.fault("CFG-02")
async def test_streams_outlive_reloads(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    slow = play(sse_head() + chunk(C("a")), go_on, chunk(C("b")) + chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with Misbehaving(play(chat_answer("new"))) as newer, case(tmp_path, slow) as it:
        old, open_before = it.running.app.config.version, 0
        streams = [asyncio.create_task(it.ask(STREAM)) for _ in range(20)]
        await it.up.request(19)
        for number in range(10):
            await reloaded(it, newer.base_url, f"m{number}")
            answer = await it.ask()
            assert answer.status == 200
            assert newer.requests[-1].json()["model"] == f"m{number}"
            open_before = open_before or psutil.Process().num_fds()
        assert psutil.Process().num_fds() <= open_before + 2
        go_on.set()
        answers = await asyncio.gather(*streams)
        assert {(answer.status, answer.body.count(D), answer.body.count(b'"content":"b"')) for answer in answers} == {(200, 1, 1)}
        versions = {seen.config_version for seen in it.running.kept.seen if seen.stream}
        assert versions == {old}
        assert len({seen.config_version for seen in it.running.kept.seen}) == 11


async def reloaded(it: Case, base_url: str, model: str) -> None:
    """Write a configuration whose `m` is that model there, and wait until it is in use."""
    path, before = it.running.app.config.path, it.running.app.config.version
    assert path is not None
    models = {"m": {"targets": [{"provider": "up", "model": model}]}, "ok": {"targets": [{"provider": "script"}]}}
    path.write_text(settings(base_url, models=models), encoding="utf-8")
    await until(lambda: it.running.app.config.version != before)
