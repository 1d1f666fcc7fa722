"""One case of the fault list: a gateway between a misbehaving provider and a client that sends any bytes.

    async with case(tmp_path, play(http(200, body=chat_completion("Hello")))) as it:
        answer = await it.ask({"messages": []})
        assert answer.status == 200

Model `m` is answered by the script (tests/upstream.py), `ok` by the scripted provider. Whatever the case did, at its end each call has
ended exactly once, nothing unhandled was logged, no key is in anything that was told, and a normal request still works within a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spangate.call.clock import SYSTEM, Clock
from spangate.exporters.console import json_line, text_after_status

from gateway import Running, gateway
from upstream import Misbehaving, Script

KEY = "sg-CANARY-search-0123456789abcdefghijklmnopqrstu"
OTHER = "sg-CANARY-other-0123456789abcdefghijklmnopqrstuv"
PROVIDER_KEY = "sk-CANARY-provider-0123456789"
SECRETS = (KEY, OTHER, PROVIDER_KEY)
CHAT = "/v1/chat/completions"
MODEL_PATHS = (CHAT, "/v1/completions", "/v1/embeddings")

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """An answer as it came; `interim` are the heads of the 1xx before it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    interim: list[bytes] = field(default_factory=list)

    def header(self, name: str) -> str | None:
        return next((value for each, value in self.headers if each == name), None)

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object. Its answer is JSON, says so, and has the four fields of OpenAI's."""
        assert self.header("content-type") == "application/json"
        error: dict[str, Any] = self.json()["error"]
        assert {"message", "type", "param", "code", "source", "doc_url"} <= set(error)
        return error


class Line:
    """A client's connection, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: list[bytes]) -> None:
        self.reader = reader
        self.writer = writer
        self._heard = heard

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, method: str = "POST") -> Answer:
        """The next answer, to a request of that method."""
        interim = []
        while True:
            head = await self._until(b"\r\n\r\n")
            first, *lines = head[:-4].decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            if status >= 200:
                break
            interim.append(head)
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        bodiless = method == "HEAD" or status in (204, 304)
        return Answer(status, headers, b"" if bodiless else await self._body(dict(headers)), interim)

    async def rest(self) -> bytes:
        """Everything until the gateway closes the connection."""
        return self._kept(await self.reader.read())

    async def closed(self) -> bool:
        """Wait until the gateway has closed the connection; whether nothing more came."""
        try:
            return not await self.rest()
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)

    def abort(self) -> None:
        self.writer.transport.abort()

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if "content-length" in headers:
            return self._kept(await self.reader.readexactly(int(headers["content-length"])))
        if headers.get("transfer-encoding") != "chunked":
            return await self.rest()
        body = b""
        while size := int(await self._until(b"\r\n"), 16):
            body += self._kept(await self.reader.readexactly(size + 2))[:-2]
        assert await self._until(b"\r\n") == b"\r\n"
        return body

    async def _until(self, mark: bytes) -> bytes:
        return self._kept(await self.reader.readuntil(mark))

    def _kept(self, data: bytes) -> bytes:
        self._heard.append(data)
        return data


class Case:
    """`rows`: how many calls of a model operation must have ended by the end. Raw requests add their own."""

    def __init__(self, running: Running, up: Misbehaving, log: Log, key: str | None) -> None:
        self.running = running
        self.up = up
        self.log = log
        self.key = key
        self.rows = 0
        self.heard: list[bytes] = []

    @asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        address = self.running.address
        line = Line(*await asyncio.open_connection(address.host, address.port, limit=1 << 20), self.heard)
        try:
            yield line
        finally:
            await line.close()

    async def raw(self, data: bytes, *, rows: int = 0, method: str = "POST") -> Answer:
        """Send these bytes on a connection of their own. `rows`: how many calls of a model operation they are."""
        self.rows += rows
        async with self.line() as line:
            await line.send(data)
            return await line.answer(method)

    async def ask(
        self,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        path: str = CHAT,
        method: str = "POST",
        headers: Pairs = (),
        key: str | None = None,
        version: str = "1.1",
    ) -> Answer:
        """One request with this case's key. Of a mapping, what a chat with `m` lacks is filled in."""
        data = self.request(body, path=path, method=method, headers=headers, key=key, version=version)
        return await self.raw(data, rows=int(method == "POST" and path.partition("?")[0] in MODEL_PATHS), method=method)

    def request(
        self,
        body: Mapping[str, Any] | bytes | None = None,
        *,
        path: str = CHAT,
        method: str = "POST",
        headers: Pairs = (),
        key: str | None = None,
        version: str = "1.1",
    ) -> bytes:
        """A whole request. Its length, Host, content type and key are written unless `headers` name them."""
        filled = CHAT_WITH_M | dict(body or {}) if not isinstance(body, bytes) else body
        content = b"" if method != "POST" else filled if isinstance(filled, bytes) else json.dumps(filled).encode()
        named = {name.lower() for name, _ in headers}
        pairs = [("Host", self.running.address.url.removeprefix("http://")), *headers]
        key = self.key if key is None else key
        if key and "authorization" not in named:
            pairs.append(("Authorization", f"Bearer {key}"))
        if method == "POST" and "content-type" not in named:
            pairs.append(("Content-Type", "application/json"))
        if method == "POST" and not named & {"content-length", "transfer-encoding"}:
            pairs.append(("Content-Length", str(len(content))))
        lines = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        return f"{method} {path} HTTP/{version}\r\n{lines}\r\n".encode("latin-1") + content

    async def works(self) -> None:
        """A normal request is answered within a second."""
        async with asyncio.timeout(1.0):
            answer = await self.ask({"model": "ok", "messages": [{"role": "user", "content": "still there"}]})
        assert answer.status == 200, answer
        assert answer.json()["choices"][0]["message"]["content"] == "still there"

    async def holds(self) -> None:
        """What must be true after each case."""
        await self.works()
        await self.running.settled()
        seen = await self.running.kept.count(self.rows)
        assert [each.model for each in seen if each.outcome is None] == []
        assert len({each.id for each in seen}) == len(seen) == self.rows
        assert self.log.unhandled == []
        told = [*map(repr, seen), *map(json_line, seen), *map(text_after_status, seen), *self.log.lines]
        told.append(b"".join(self.heard).decode("latin-1"))
        assert [secret for secret in SECRETS if any(secret in each for each in told)] == []


CHAT_WITH_M: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Log(logging.Handler):
    """Everything that is logged, from DEBUG up."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.unhandled: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = logging.Formatter().format(record)
        self.lines.append(line)
        if record.exc_info or record.levelno >= logging.ERROR:
            self.unhandled.append(line)


class Stumbling:
    """A clock that fails once."""

    def __init__(self) -> None:
        self.asked = 0
        self.stumbles_at = 0

    def wall(self) -> int:
        self.asked += 1
        if self.asked == self.stumbles_at:
            raise RuntimeError("the clock stands still")
        return SYSTEM.wall()


@asynccontextmanager
async def logged() -> AsyncIterator[Log]:
    log, root = Log(), logging.getLogger()
    level = root.level
    root.addHandler(log)
    root.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        root.removeHandler(log)
        root.setLevel(level)


def key_hash(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def settings(base_url: str, **sections: Any) -> str:
    """A spangate.yaml (JSON is YAML); each section that is given stands in place of the usual one."""
    usual: dict[str, Any] = {
        "providers": {"up": {"kind": "openai", "base_url": base_url, "api_key": PROVIDER_KEY}, "script": {"kind": "scripted"}},
        "models": {"m": {"targets": [{"provider": "up"}]}, "ok": {"targets": [{"provider": "script"}]}},
        "teams": {
            "search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}]},
            "other": {"keys": [{"name": "ci", "hash": key_hash(OTHER)}]},
        },
    }
    return json.dumps(usual | sections, indent=1)


@asynccontextmanager
async def case(
    folder: Path,
    script: Script | Misbehaving = (),
    *,
    key: str | None = KEY,
    clock: Clock = SYSTEM,
    environ: Mapping[str, str] | None = None,
    **sections: Any,
) -> AsyncIterator[Case]:
    """A gateway on that script, or on that provider. `key`: what requests show; None for an open gateway."""
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(logged())
        up = script if isinstance(script, Misbehaving) else await stack.enter_async_context(Misbehaving(script))
        running = await stack.enter_async_context(gateway(settings(up.base_url, **sections), folder, environ=environ, clock=clock))
        it = Case(running, up, log, key)
        yield it
        await it.holds()
