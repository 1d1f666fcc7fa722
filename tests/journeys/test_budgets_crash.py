"""A gateway that is killed while calls run: what they had used is known afterwards, and what they held counts as used."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from case import KEY, key_hash
from program import running
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_completion, chunk, http, play, sse_head, wants_stream
from valkey_server import Valkey, valkey

CLIENTS = 12
USED = 33  # tokens of a call, as the provider counts them
MOST = 33 + 120  # that a call may hold: its input at the most and its cap


@pytest.fixture
def server() -> Iterator[Valkey]:
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as started:
        yield started


class Charged:
    """The truth: the provider charges for every request that reaches it whole."""

    def __init__(self) -> None:
        self.requests = 0

    @property
    def tokens(self) -> int:
        return self.requests * USED

    def __call__(self, request: Request) -> Play:
        self.requests += 1
        if not wants_stream(request):
            return play((http(200, [("content-type", "application/json")], chat_completion("hello", (13, 20))), random.random() / 50))
        said = [(chunk(C("word ")), 0.01)] * random.randrange(1, 12)
        return play(sse_head(), *said, chunk(F("stop") + U(13, 20) + D) + LAST_CHUNK)


def written(folder: Path, base_url: str, **sections: Any) -> None:
    windows = {"month": "month", "day": "rolling 24h"}
    budgets = [{"budget": {"name": name, "limit": "10M", "window": window}} for name, window in windows.items()]
    text = {
        "providers": {"up": {"kind": "openai", "base_url": base_url, "api_key": "x"}},
        "models": {"*": {"targets": [{"provider": "up"}]}},
        "teams": {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": budgets}},
        **sections,
    }
    (folder / "spangate.yaml").write_text(json.dumps(text))


async def client(session: aiohttp.ClientSession, url: str, stream: bool, answered: asyncio.Event) -> int:
    """Calls, one after the other, until the gateway is gone; how many were answered."""
    done = 0
    body = {"model": "m", "stream": stream, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
    try:
        while True:
            async with session.post(f"{url}/chat/completions", json=body) as answer:
                await answer.read()
                assert answer.status == 200
            done += 1
            answered.set()
    except aiohttp.ClientError:
        return done


async def used(session: aiohttp.ClientSession, url: str) -> dict[str, tuple[float, float]]:
    async with session.get(f"{url}/key") as answer:
        found = {row["name"]: (row["used"], row["reserved"]) for row in (await answer.json())["budgets"]}
    assert found.keys() == {"month", "day"}
    return found


async def ran(folder: Path, session: aiohttp.ClientSession, *, kill: bool) -> tuple[dict[str, tuple[float, float]], int]:
    """A gateway's life: how budgets stood when it began, and how many calls it answered."""
    with running("serve", "--port", "0", folder=folder) as gateway:
        url = (await asyncio.to_thread(gateway.until, "listens on")).split("listens on ")[1].strip()
        before = await used(session, url)
        answered = asyncio.Event()
        clients = [asyncio.create_task(client(session, url, number % 2 == 0, answered)) for number in range(CLIENTS if kill else 0)]
        if kill:
            await asyncio.wait_for(answered.wait(), 10)
            await asyncio.sleep(random.uniform(0.1, 0.5))  # at any moment of the calls that follow
        gateway.send(signal.SIGKILL if kill else signal.SIGTERM)
        await asyncio.to_thread(gateway.end)
        return before, sum(await asyncio.gather(*clients))


@pytest.mark.fault("STO-02")
async def test_a_gateway_of_its_own_knows_after_a_kill_what_was_used(tmp_path: Path) -> None:
    charged = Charged()
    async with Misbehaving(charged) as up, aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        written(tmp_path, up.base_url)
        for life in range(3):
            at_begin = charged.tokens
            before, done = await ran(tmp_path, session, kill=True)
            for amount, reserved in before.values():
                assert reserved == 0
                assert at_begin <= amount <= at_begin + life * CLIENTS * MOST
            assert done > 0
        after, _ = await ran(tmp_path, session, kill=False)
        for amount, _ in after.values():
            assert charged.tokens <= amount <= charged.tokens + 3 * CLIENTS * MOST


async def test_gateways_on_one_server_know_after_a_kill_what_was_used(tmp_path: Path, server: Valkey) -> None:
    charged = Charged()
    async with Misbehaving(charged) as up, aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            written(tmp_path / name, up.base_url, state={"backend": "redis", "url": server.url, "lease": "3s"})
        await ran(tmp_path / "one", session, kill=True)
        with running("serve", "--port", "0", folder=tmp_path / "two") as other:
            url = (await asyncio.to_thread(other.until, "listens on")).split("listens on ")[1].strip()
            async with asyncio.timeout(10):
                body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
                while True:  # whoever touches them next settles what the dead gateway held
                    async with session.post(f"{url}/chat/completions", json=body) as answer:
                        assert answer.status == 200
                    found = await used(session, url)
                    if all(reserved == 0 for _, reserved in found.values()):
                        break
                    await asyncio.sleep(0.2)
            other.send(signal.SIGTERM)
            await asyncio.to_thread(other.end)
        for amount, _ in found.values():
            assert charged.tokens <= amount <= charged.tokens + CLIENTS * MOST
