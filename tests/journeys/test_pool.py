"""Connections to providers that wait for their next use, and providers that close them meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from case import Case, case
from upstream import End, Misbehaving, chat_answer, play, wants_stream


async def calls(it: Case, count: int, *, pause: float = 0.0) -> None:
    """Calls one after another, streamed and whole by turns; their caller may not notice anything."""
    for number in range(count):
        answer = await it.ask({"stream": number % 2 == 1})
        assert answer.status == 200, answer
        assert b"Hello" in answer.body
        assert answer.header("x-spangate-attempts") == "1"
        await asyncio.sleep(pause)  # part of the scenario


@pytest.mark.fault("RET-08")
@pytest.mark.parametrize("pause", [0.0, 0.05, 0.07, 0.12], ids=["at once", "just then", "just after", "later"])
async def test_a_provider_that_closes_idle_connections(tmp_path: Path, pause: float) -> None:
    async with (
        Misbehaving(lambda request: play(chat_answer("Hello", stream=wants_stream(request))), idle_close=0.05) as up,
        case(tmp_path, up) as it,
    ):
        await asyncio.gather(*(calls(it, 10, pause=pause) for _ in range(5)))
        assert len(up.requests) == 50
        assert all(len(seen.attempts) == 1 for seen in it.running.kept.seen)


@pytest.mark.fault("RET-08")
@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_a_provider_that_says_keep_alive_and_closes(tmp_path: Path, end: End) -> None:
    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request)), (b"", 0.005), end=end)) as it:
        await calls(it, 50)
        assert len(it.up.requests) == 50
