"""A gateway in the test's own process, on a free port of loopback, with everything that it tells kept: what most tests of proxy/ and
all journeys run against. Nothing in it is fake; providers are scripted or stand in tests/upstream.py.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from spangate.call.clock import SYSTEM, Clock
from spangate.call.seen import Seen
from spangate.exporters.console import Console
from spangate.exporters.record import Fanout
from spangate.proxy import config
from spangate.proxy.app import App, Setting
from spangate.proxy.server import Address
from spangate.proxy.telling import telling_of
from spangate.proxy.upstream import Upstream

KINDS = config.Kinds()  # found once: to look for plug-ins takes longer than most tests


async def until(true: Callable[[], bool], seconds: float = 2.0) -> None:
    """Wait until it is true, of a thing that tells nobody when it changes."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Kept:
    """A Recorder that keeps every Seen, oldest first, and can be waited for."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._changed = asyncio.Event()

    def record(self, seen: Seen) -> None:
        self.seen.append(seen)
        self._changed.set()

    def flush(self) -> None:
        """Nothing waits: `seen` is it."""

    async def until(self, true: Callable[[list[Seen]], bool], seconds: float = 5.0) -> list[Seen]:
        """Wait until `true` of what was recorded."""
        async with asyncio.timeout(seconds):
            while not true(self.seen):
                self._changed.clear()
                await self._changed.wait()
        return self.seen

    async def count(self, number: int) -> list[Seen]:
        """Wait until `number` calls have ended."""
        return await self.until(lambda seen: len(seen) >= number)


class Running:
    """A gateway that answers. `url` is what a client's base_url is."""

    def __init__(self, app: App, address: Address, kept: Kept) -> None:
        self.app = app
        self.address = address
        self.kept = kept
        self.url = f"{address.url}/v1"

    async def settled(self, seconds: float = 2.0) -> None:
        """Wait until no call is under way, and none holds a place, a body or a provider's connection."""
        await until(lambda: self.held() == (0, 0, 0, 0), seconds)

    def held(self) -> tuple[int, int, int, int]:
        endpoints, client = self.app.endpoints, self.app.client
        assert isinstance(client, Upstream)
        return len(endpoints.running), endpoints.house.calls, endpoints.house.body_bytes, client.in_use


@asynccontextmanager
async def gateway(
    yaml: str, folder: Path, *, environ: Mapping[str, str] | None = None, clock: Clock = SYSTEM, patience: float = 0.0
) -> AsyncIterator[Running]:
    """Run a gateway from the text of a spangate.yaml, and drain it at the end."""
    path = folder / "spangate.yaml"
    path.write_text(yaml, encoding="utf-8")
    kept = Kept()
    environ = environ or {}
    loaded = config.load(path, environ=environ, kinds=KINDS)
    telling = telling_of(loaded, environ, Console(io.StringIO()))
    parts = [part for part in (telling.exporting, telling.measuring, telling.usage) if part is not None]
    recorder = Fanout(kept, *parts) if parts else kept
    detailed = telling.exporting is not None
    app = App(loaded, Setting(recorder, environ, clock, detailed=detailed, usage=telling.usage, measuring=telling.measuring))
    running = Running(app, await app.start("127.0.0.1", 0), kept)
    try:
        yield running
    finally:
        await app.drain(patience)
        if telling.exporting is not None:
            await asyncio.to_thread(telling.exporting.close)
        assert not app.endpoints.running
        assert app.endpoints.house.calls == 0
        assert app.endpoints.house.body_bytes == 0
