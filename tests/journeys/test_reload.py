"""A running gateway and its files: a bad configuration changes nothing, a revoked key opens nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spangate.proxy import keys_file

from case import Answer, Case, case, settings
from gateway import until
from upstream import LAST_CHUNK, C, D, F, Misbehaving, chat_answer, chunk, play, sse_head

now = time.perf_counter


@asynccontextmanager
async def under_load(it: Case, rate: float, key: str | None = None) -> AsyncIterator[list[tuple[float, Answer]]]:
    """Calls at that rate, all the while; each with when it began."""
    answers: list[tuple[float, Answer]] = []
    enough = asyncio.Event()

    async def one() -> None:
        began = now()
        answers.append((began, await it.ask(key=key)))

    async def load() -> None:
        async with asyncio.TaskGroup() as calls:
            while not enough.is_set():
                calls.create_task(one())
                await asyncio.sleep(1 / rate)  # part of the scenario

    task = asyncio.create_task(load())
    try:
        yield answers
    finally:
        enough.set()
        await task


# ---- CFG-01


@pytest.mark.fault("CFG-01")
async def test_a_bad_file_takes_nothing_down(tmp_path: Path) -> None:
    script = play(chat_answer("Hello"))
    async with Misbehaving(script) as up, case(tmp_path, script) as it:
        good = settings(it.up.base_url)
        path, first = it.running.app.config.path, it.running.app.config.version
        assert path is not None
        async with under_load(it, 20) as answers:
            for bad in mistaken(good):
                told_before = it.running.app.endpoints.reload_error
                path.write_text(bad, encoding="utf-8")
                await until(lambda before=told_before: it.running.app.endpoints.reload_error != before)  # type: ignore[misc]
                told = (await it.ask(path="/readyz", method="GET")).json()
                assert told["status"] in ("ready", "replaying")
                assert told["config_version"] == first
                assert "spangate.yaml:" in told["config_reload_failed"]
            path.write_text(settings(up.base_url), encoding="utf-8")
            await until(lambda: it.running.app.config.version != first, 3)
            told = (await it.ask(path="/readyz", method="GET")).json()
            assert set(told) == {"status", "config_version"}
            assert told["config_version"] == it.running.app.config.version != first
            assert (await it.ask()).status == 200
            assert len(up.requests) >= 1
        assert {answer.status for _, answer in answers} == {200}
        assert len(answers) > 20
        assert all("kept the running configuration" in line for line in it.log.unhandled)
        it.log.unhandled.clear()


def mistaken(good: str) -> list[str]:
    """A syntax error, an unknown field, an unknown kind of provider, and a value that is out of the question."""
    return [
        good.replace("{", "[", 1),
        good.replace('"targets"', '"target"'),
        good.replace('"openai"', '"openia"'),
        good.replace('"providers": {', '"server": {"max_calls": 0}, "providers": {', 1),
    ]


# ---- KEY-03


@pytest.mark.fault("KEY-03")
async def test_a_revoked_key_opens_nothing_within_a_second(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    slow = play(sse_head() + chunk(C("a")), go_on, chunk(C("b")) + chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    keys, moment = tmp_path / "spangate.keys.yaml", datetime.now(UTC)
    key, _ = keys_file.new(keys, "search", "laptop", now=moment)
    keys_file.new(keys, "search", "other", now=moment)
    async with case(tmp_path, slow) as it:
        stream = asyncio.create_task(it.ask({"stream": True}, key=key))
        await it.up.request(0)
        it.up.script = play(chat_answer("Hello"))
        async with under_load(it, 20, key) as answers:
            await until(lambda: len(answers) >= 5)
            revoked = now()
            keys_file.revoke(keys, "search", "laptop")
            await until(lambda: answers[-1][1].status == 401)
            await until(lambda: now() > revoked + 1.5)
        assert {answer.status for began, answer in answers if began < revoked} == {200}
        assert {answer.status for began, answer in answers if began > revoked + 1.0} == {401}
        assert [answer.status for _, answer in answers] == sorted(answer.status for _, answer in answers), "it opened again"
        go_on.set()
        answer = await stream
        assert (answer.status, D in answer.body) == (200, True)
        assert key not in str(it.log.lines)


@pytest.mark.fault("KEY-03")
async def test_a_revoked_key_opens_nothing_while_the_configuration_is_bad(tmp_path: Path) -> None:
    keys = tmp_path / "spangate.keys.yaml"
    key, _ = keys_file.new(keys, "search", "laptop", now=datetime.now(UTC))
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        app = it.running.app
        assert app.config.path is not None
        app.config.path.write_text("modles: {}", encoding="utf-8")
        await until(lambda: app.endpoints.reload_error != "")
        assert (await it.ask(key=key)).status == 200
        keys_file.revoke(keys, "search", "laptop")
        await until(lambda: not any(held.key.name == "laptop" for held in app.config.keys), 1.0)
        assert (await it.ask(key=key)).status == 401
        assert (await it.ask()).status == 200
        assert "spangate.yaml:" in (await it.ask(path="/readyz", method="GET")).json()["config_reload_failed"]
        assert any("key search/laptop: revoked" in line for line in it.log.lines)
        it.log.unhandled.clear()
