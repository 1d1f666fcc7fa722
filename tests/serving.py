"""`spangate serve` in a process of its own, for what only a process can show: signals, limits, its last words. One team, the keys of
case.py; the provider stands in the test.

    with serving(tmp_path, up.base_url) as program:
        answer = await program.ask(stream=True)
        program.process.send(signal.SIGTERM)
        ran, calls = await program.end()
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from spangate.proxy.app import App
from spangate.proxy.server import Address

from case import CHAT, CHAT_WITH_M, KEY, Answer, Case, Line, Log, settings
from gateway import Kept, Running
from program import PATIENCE, Process, Ran, running
from upstream import Misbehaving


@dataclass
class Program:
    """`spangate serve` in a process of its own."""

    process: Process
    folder: Path
    host: str
    port: int

    @asynccontextmanager
    async def asked(self, path: str = CHAT, method: str = "POST", *, room: int = 0, **body: Any) -> AsyncIterator[Line]:
        """A connection on which a request was sent. `room`: how much the system keeps for a client that doesn't read."""
        sock = socket.socket()
        sock.setblocking(False)
        if room:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        await asyncio.get_running_loop().sock_connect(sock, (self.host, self.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        line = Line(reader, writer, [])
        content = json.dumps((CHAT_WITH_M if path == CHAT else {}) | body).encode() if method == "POST" else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        await line.send(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        try:
            yield line
        finally:
            await line.close()

    async def ask(self, path: str = CHAT, method: str = "POST", **body: Any) -> Answer:
        async with self.asked(path, method, **body) as line:
            return await line.answer()

    async def resident(self) -> int:
        """Bytes of memory that it has when all rows are moved, and the database has given back what that took."""
        assert (await self.ask("/usage/sql", sql="SELECT 1")).status == 200
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def case(self, up: Misbehaving) -> Case:
        """Its requests and connections; what is inside the gateway can't be seen from here."""
        return Case(Running(cast("App", None), Address(self.host, self.port), Kept()), up, Log(), KEY)

    async def reloaded(self, yaml: str) -> None:
        """Write a configuration, and wait until it is in use."""
        before = await self._version()
        (self.folder / "spangate.yaml").write_text(yaml, encoding="utf-8")
        self.process.send(signal.SIGHUP)
        async with asyncio.timeout(5):
            while await self._version() == before:
                pass

    async def _version(self) -> str:
        return str((await self.ask("/readyz", "GET")).json()["config_version"])

    async def until_draining(self) -> None:
        async with asyncio.timeout(2):
            while (await self.ask("/readyz", "GET")).status == 200:
                pass

    async def end(self, patience: float = PATIENCE) -> tuple[Ran, list[dict[str, Any]]]:
        """What the process said at its end, and a line for each call."""
        ran = await asyncio.to_thread(self.process.end, patience)
        return ran, [json.loads(line) for line in ran.out.splitlines()]


@contextmanager
def serving(folder: Path, base_url: str, *options: str, **sections: Any) -> Iterator[Program]:
    (folder / "spangate.yaml").write_text(settings(base_url, **sections), encoding="utf-8")
    with running("serve", "--port", "0", *options, folder=folder) as process:
        address = process.until("listens on").split()[-1].removeprefix("http://").removesuffix("/v1")
        process.until("export OPENAI_BASE_URL=")
        host, _, port = address.partition(":")
        yield Program(process, folder, host, int(port))
