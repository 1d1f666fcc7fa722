"""An Exchange on paper: what a client was answered, without a network. For what only the pipeline's own timing can show."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from multidict import CIMultiDict

from spangate.proxy.http_exchange import are_events


class Paper:
    """`room`, `taken`: cleared, a write or the end waits for its reader; `gone`: the client has left, and a write says so."""

    def __init__(self, body: bytes = b"", *, path: str = "/v1/chat/completions", method: str = "POST", **headers: str) -> None:
        self.method = method
        self.path = path
        self.headers: Any = CIMultiDict({"Host": "127.0.0.1", "Content-Type": "application/json", **headers})
        self.length: int | None = len(body)
        self.has_body = bool(body)
        self.started = False
        self.events = False
        self.extra: Mapping[str, str] = {}
        self.gone = False
        self.client_address = "127.0.0.1"
        self.http_version = "1.1"
        self.arrived = True
        self.status = 0
        self.sent: Mapping[str, str] = {}
        self.written: list[bytes] = []
        self.ended = False
        self.cut = False
        self.closes = False
        self.room = asyncio.Event()
        self.room.set()
        self.taken = asyncio.Event()
        self.taken.set()
        self._body = body

    @property
    def body(self) -> bytes:
        return b"".join(self.written)

    async def read(self) -> bytes:
        piece, self._body = self._body, b""
        return piece

    def ask_for_body(self, *, within: float) -> None:
        """It is here."""

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        assert not self.started, "an answer begins once"
        self.started, self.events, self.status, self.sent = True, are_events(headers), status, headers

    async def write(self, data: bytes) -> None:
        assert self.started
        assert not self.ended, "nothing comes after the end"
        if self.gone:
            raise ConnectionResetError("The client has left.")
        self.written.append(data)
        await self.room.wait()

    async def end(self, last: bytes = b"") -> None:
        if last:
            await self.write(last)
        assert not self.ended, "an answer ends once"
        self.ended = True
        await self.taken.wait()

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self.start(status, headers)
        await self.end(body)

    def close_after(self) -> None:
        self.closes = True

    def abort(self) -> None:
        self.cut = True
