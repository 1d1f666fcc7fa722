"""A gateway that is killed while calls run: what they had used is known afterwards, and what they held counts as used."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from case import KEY, key_hash
from ledgers import until
from midday import MIDDAY
from program import Process, running
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_completion, chunk, http, play, sse_head, wants_stream
from valkey_server import Valkey, valkey

CLIENTS = 12
USED = 33  # tokens of a call, as the provider counts them
NO_LIST = play(http(404))  # of models: who asks what a key may use asks for it, and pays nothing
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
        if request.method == "GET":
            return NO_LIST
        self.requests += 1
        if not wants_stream(request):
            return play((http(200, [("content-type", "application/json")], chat_completion("hello", (13, 20))), random.random() / 50))
        said = [(chunk(C("word ")), 0.01)] * random.randrange(1, 12)
        return play(sse_head(), *said, chunk(F("stop") + U(13, 20) + D) + LAST_CHUNK)


def written(folder: Path, base_url: str, **sections: Any) -> None:
    windows = {"month": "month", "day": "rolling 24h"}
    budgets = [{"budget": {"name": name, "limit": "10M", "window": window, "timezone": MIDDAY}} for name, window in windows.items()]
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


# ---- a kill at a moment that is known: what was reserved then is known to the token


RULES = [
    {"budget": {"name": "tokens", "limit": "10M", "window": "month", "timezone": MIDDAY, "weights": {"input": 0.5, "output": 4}}},
    {"budget": {"name": "dollars", "limit": 100, "unit": "usd", "window": "total"}},
    {"budget": {"name": "calls", "limit": 1000, "unit": "requests", "window": "day", "timezone": MIDDAY}},
    {"budget": {"name": "key", "limit": "10M", "window": "rolling 24h", "per": "key"}},
    {"rate_limit": {"concurrent": 4}},
]
PRICE = {"model": "*", "input": 2, "output": 8}
TRUTH = {"tokens": 86.5, "dollars": 0.000186, "calls": 1, "key": 33}  # of a call
AT_ONCE = 4


class Held:
    """Answers that wait to be let go while `holding`; of a stream half comes at once. Counts every request that came."""

    def __init__(self) -> None:
        self.requests = 0
        self.holding = False
        self.never = asyncio.Event()

    def __call__(self, request: Request) -> Play:
        if request.method == "GET":
            return NO_LIST
        self.requests += 1
        waits = [self.never] if self.holding else []
        if not wants_stream(request):
            return play(*waits, http(200, [("content-type", "application/json")], chat_completion("hello", (13, 20))))
        return play(sse_head(), chunk(C("word ") * 10), *waits, chunk(F("stop") + U(13, 20) + D) + LAST_CHUNK)


class Lives:
    """A gateway that is killed and begun again, with what callers see of it."""

    def __init__(self, folder: Path, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.session = session
        self.url = ""

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Process]:
        with running("serve", "--port", "0", folder=self.folder) as gateway:
            self.url = (await asyncio.to_thread(gateway.until, "listens on")).split("listens on ")[1].strip()
            yield gateway
            gateway.send(signal.SIGKILL)
            await asyncio.to_thread(gateway.end)

    async def asks(self, *, stream: bool = False) -> int:
        body = {"model": "m", "stream": stream, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
        try:
            async with self.session.post(f"{self.url}/chat/completions", json=body) as answer:
                await answer.read()
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def figures(self) -> dict[str, tuple[float, float]]:
        async with self.session.get(f"{self.url}/key") as answer:
            return {row["name"]: (row["used"], row["reserved"]) for row in (await answer.json())["budgets"]}

    async def come_to(self, expected: dict[str, tuple[float, float]], patience: float) -> None:
        seen: list[Any] = []

        async def so() -> bool:
            seen[:] = [await self.figures()]
            return all(pair == pytest.approx(seen[0][name], abs=1e-9) for name, pair in expected.items())

        try:
            await until(so, patience)
        except TimeoutError:
            raise AssertionError(f"{seen[0]} is not {expected}") from None


def times(count: float) -> dict[str, tuple[float, float]]:
    return {name: (count * each, 0) for name, each in TRUTH.items()}


@pytest.mark.parametrize("backend", ["memory", "valkey"])
async def test_a_kill_between_calls_costs_nothing_and_during_calls_what_they_held(backend: str, tmp_path: Path, server: Valkey) -> None:
    held, lease = Held(), 3.0
    state = {"state": {"backend": "redis", "url": server.url, "lease": f"{lease:g}s"}} if backend == "valkey" else {}
    async with Misbehaving(held) as up, aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": RULES}}
        written(tmp_path, up.base_url, teams=teams, prices=[PRICE], **state)
        lives = Lives(tmp_path, session)
        async with lives.one():
            assert [await lives.asks(stream=bool(number % 2)) for number in range(3)] == [200] * 3
            await lives.come_to(times(3), 2)
        async with lives.one():
            await lives.come_to(times(3), 5)
            held.holding = True
            calls = [asyncio.create_task(lives.asks(stream=bool(number % 2))) for number in range(AT_ONCE)]

            async def all_are_held() -> bool:
                return held.requests == 3 + AT_ONCE

            await until(all_are_held)
            under_way = await lives.figures()
            assert all(reserved >= AT_ONCE * TRUTH[name] for name, (_, reserved) in under_way.items())
        assert await asyncio.gather(*calls) == [0] * AT_ONCE
        held.holding = False
        async with lives.one():
            after = {name: (used + reserved, 0) for name, (used, reserved) in under_way.items()}
            await lives.come_to(after, 5 if backend == "memory" else lease + 2)
            assert all(after[name][0] >= held.requests * each for name, each in TRUTH.items()), "the truth is no more"
            assert await asyncio.gather(*(lives.asks() for _ in range(AT_ONCE))) == [200] * AT_ONCE, "no place is taken for ever"
            grown = {name: (after[name][0] + AT_ONCE * each, 0) for name, each in TRUTH.items()}
            await lives.come_to(grown, 2)
        async with lives.one():
            await lives.come_to(grown, 5)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_a_gateway_of_its_own_that_is_killed_again_and_again(tmp_path: Path) -> None:
    charged, lives = Charged(), 25
    async with Misbehaving(charged) as up, aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        written(tmp_path, up.base_url)
        for life in range(lives):
            at_begin = charged.tokens
            before, _ = await ran(tmp_path, session, kill=True)
            for amount, reserved in before.values():
                assert reserved == 0
                assert at_begin <= amount <= at_begin + life * CLIENTS * MOST
        after, _ = await ran(tmp_path, session, kill=False)
        for amount, _ in after.values():
            assert charged.tokens <= amount <= charged.tokens + lives * CLIENTS * MOST
