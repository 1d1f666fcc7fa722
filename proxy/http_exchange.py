"""An Exchange over aiohttp's server: aiohttp has parsed the request, and gets the connection back when the answer is on the wire.

The answer is framed here (RFC 9112, 6 and 7.1), since a general response object costs a short call more than its writes do. A head
goes out with the first bytes of its body, and the end of a stream with its last frame.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import StreamReader

from ..call.errors import CallerFault
from .callers import Headers

SLICE = 65536  # bytes of one write: of a large one the transport would keep a copy until its reader has it all
_BROKEN = "The request body stopped before its end, or its framing is broken."
_LAST_CHUNK = b"0\r\n\r\n"
_BODILESS = (204, 304)


class Wire(Protocol):
    """The connection, as an exchange writes to it. `wire` is None once it is lost; `written` counts its bytes."""

    wire: asyncio.Transport | None
    written: int

    @property
    def writing_paused(self) -> bool: ...
    async def room(self) -> None: ...
    def drop(self) -> None: ...
    def expect(self, body: StreamReader, within: float) -> None: ...
    def done(self) -> None: ...


class HttpExchange:
    """One exchange on a connection."""

    __slots__ = (
        "_chunked", "_close", "_connection", "_head", "_request",
        "events", "extra", "has_body", "headers", "length", "method", "path", "started",
    )  # fmt: skip

    def __init__(self, request: web.BaseRequest) -> None:
        message = request._message
        self._request = request
        self._connection: Wire = request.protocol  # type: ignore[assignment]
        self._close = False
        self._chunked = False
        self._head = b""
        self.method = message.method
        self.path = path_of(message.path)
        self.headers: Headers = message.headers
        self.length = request.content_length
        self.has_body = request.body_exists
        self.started = False
        self.events = False
        self.extra: Mapping[str, str] = {}

    @property
    def client_address(self) -> str:
        return self._request.remote or ""

    @property
    def http_version(self) -> str:
        version = self._request.version
        return "1.1" if version == HttpVersion11 else f"{version.major}.{version.minor}"

    @property
    def gone(self) -> bool:
        wire = self._connection.wire
        return wire is None or wire.is_closing()

    @property
    def arrived(self) -> bool:
        return self._request.content.is_eof()

    async def read(self) -> bytes:
        try:
            return await self._request.content.readany()
        except (BadHttpMessage, web.RequestPayloadError):
            raise CallerFault(_BROKEN) from None
        except TimeoutError as late:
            raise CallerFault(str(late), code="request_timeout") from None

    def ask_for_body(self, *, within: float) -> None:
        self._connection.expect(self._request.content, within)
        if self.headers.get("Expect") and self._request.version >= HttpVersion11 and not self.arrived:
            self._put(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.events = are_events(headers)
        self._chunked = self._request.version >= HttpVersion11
        self._close = self._close or not self._chunked  # which knows no other end of such an answer
        self._head = self._begun(status, {**headers, "transfer-encoding": "chunked"} if self._chunked else headers)

    async def write(self, data: bytes) -> None:
        if len(data) <= SLICE:
            await self._send(data)
            return
        view, sent = memoryview(data), 0
        try:
            while sent < len(data):
                piece = view[sent : sent + SLICE]
                sent += len(piece)
                await self._send(piece)
        except asyncio.CancelledError:
            if sent < len(data) and not self.gone:  # an event that was begun is whole, whatever is said after it
                self._put(self._framed(view[sent:]))
            raise

    async def end(self, last: bytes = b"") -> None:
        if len(last) > SLICE:
            await self.write(last)
            last = b""
        end = _LAST_CHUNK if self._chunked else b""
        head, self._head = self._head, b""
        self._put(b"".join((head, self._framed(last), end)))
        await self._room()

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {} if status in _BODILESS else {"content-length": str(len(body))}
        self._head = self._begun(status, {**headers, **length})
        if self.method == "HEAD" or status in _BODILESS:
            body = b""
        if len(body) > SLICE:
            await self.write(body)
        else:
            head, self._head = self._head, b""
            self._put(head + body)
            await self._room()

    def close_after(self) -> None:
        self._close = True

    def abort(self) -> None:
        self._connection.drop()

    def finished(self) -> web.StreamResponse:
        """What aiohttp wants back: whether to keep the connection."""
        self._connection.done()
        return _KEPT if self.started and self._keeps() else LAST

    def _keeps(self) -> bool:
        return self._request.keep_alive and not self._close

    def _begun(self, status: int, headers: Mapping[str, str]) -> bytes:
        """The head. A client whose body was not read is told that the connection ends: the rest of it is no next request."""
        self.started = True
        self._close = self._close or not self.arrived
        keeps = self._keeps()
        if not keeps:
            headers = {**headers, "connection": "close"}
        elif self._request.version < HttpVersion11:
            headers = {**headers, "connection": "keep-alive"}
        return head_of(status, {**headers, **self.extra} if self.extra else headers)

    async def _send(self, data: bytes | memoryview) -> None:
        """Write a piece of the body, with the head if it still waits; then wait while the client is slow."""
        if not data:
            return
        framed = self._framed(data)
        if self._head:
            framed, self._head = self._head + framed, b""
        self._put(framed)
        if self._connection.writing_paused:
            await self._connection.room()

    def _framed(self, data: bytes | memoryview) -> bytes:
        if not self._chunked or not data:
            return bytes(data)
        return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))

    def _put(self, data: bytes) -> None:
        wire = self._connection.wire
        if wire is None or wire.is_closing():
            raise ConnectionResetError("The client has left.")
        self._connection.written += len(data)
        wire.write(data)

    async def _room(self) -> None:
        if self._connection.writing_paused:
            await self._connection.room()


class _Sent(web.StreamResponse):
    """An answer that is on the wire: nothing is left for aiohttp to prepare or write."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self._keeps = keeps

    @property
    def keep_alive(self) -> bool:
        return self._keeps

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: Any = b"") -> None:
        return None


_KEPT, LAST = _Sent(keeps=True), _Sent(keeps=False)
_REASONS = {status.value: status.phrase for status in HTTPStatus}


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
    """Status line and header lines, with the blank line.

    Raises:
        ValueError: a header would break out of its line.
    """
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, '')}", f"date: {_date()}", "server: spangate"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError("a response header holds a line break")
    return text.encode("latin-1", "replace") + b"\r\n\r\n"


_dated = (0, "")


def _date() -> str:
    """RFC 9110, 6.6.1; made once a second."""
    global _dated  # noqa: PLW0603 - a memo of one value
    now = int(time.time())
    if _dated[0] != now:
        _dated = (now, formatdate(now, usegmt=True))
    return _dated[1]


def are_events(headers: Mapping[str, str]) -> bool:
    """Whether an answer with this head is a stream of events that can be added to; of one in a content coding nothing can."""
    return headers.get("content-type", "").startswith("text/event-stream") and "content-encoding" not in headers


def path_of(target: str) -> str:
    """The path of a request target, as it came; of the absolute form without its authority."""
    path = target.partition("?")[0].partition("#")[0]
    if path.startswith("/"):
        return path
    _, _, rest = path.partition("://")
    return "/" + rest.partition("/")[2]
