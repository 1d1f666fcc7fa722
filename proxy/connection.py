"""One TCP connection to a provider: paces what goes out, parses what comes in, knows whether it may be used again.

Here belongs the framing of HTTP/1.1 answers and nothing of its meaning. Whatever ends an exchange before its end (a cancelled wait, a
reset, a head that can't be trusted, bytes beyond the answer) aborts the connection there and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ..call.errors import ProviderFault, UpstreamError, UpstreamIncomplete
from .origin import Key

Body = Sequence[bytes | memoryview]

HEAD_LIMIT = 64 * 1024
JOINED = 256 * 1024  # up to here head and body go out in one write
COPIED = 8192  # up to here joining them is cheaper than naming the pieces
SLICE = 256 * 1024
LINGER = 1.0  # seconds that an answer which has said all it had to may take to end

CUT = "The provider's answer stopped before its end."
UNANSWERED = "The provider closed the connection before it answered."
NOT_HTTP = "The provider answered with something that is not HTTP."
TOO_LARGE = "The provider's answer has a head that is too large."
ABANDONED = "The answer was closed before its end."


class Pool(Protocol):
    """What a connection tells of itself, and to whom."""

    def opened(self, connection: Connection) -> None: ...
    def put(self, connection: Connection) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def gone(self, connection: Connection) -> None: ...


class Unheard(UpstreamIncomplete):
    """It closed before any byte of the answer came: found closed, if it had been waiting in the pool."""


class Connection(asyncio.Protocol):
    """One TCP connection: paces what goes out, parses what comes in, and knows whether it may be used again.

    The parser calls on_…; one task at a time sends, then reads; `_waiter` is what that task sleeps on.
    """

    __slots__ = (
        "_aborted", "_barren", "_buffered", "_busy", "_complete", "_failure", "_heard", "_keep", "_limit", "_loop", "_parser",
        "_pieces", "_pool", "_reading_paused", "_sent", "_transport", "_until_eof", "_waiter", "_writing_paused",
        "ending", "head", "key", "on_body", "status",
    )  # fmt: skip

    def __init__(self, pool: Pool, key: Key, limit: int) -> None:
        self.key = key
        self._pool = pool
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # no Python frame per piece
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._aborted = self._busy = False
        self._reading_paused = self._writing_paused = False
        self._failure: ProviderFault | None = None
        self._complete = False
        self.ending: asyncio.TimerHandle | None = None

    # what the pool and Answer ask

    async def exchange(self, head: bytes, body: Body, length: int) -> None:
        """Send a request and wait for the head of its answer. Nothing stays open if this raises or is cancelled."""
        self._begin()
        try:
            if length <= JOINED:
                self._send_at_once(head, body, length)
            else:
                await self._send_slices(head, body)
            while not self.status and self._failure is None:
                await self._change()
            if self._failure is not None and not self.status:
                raise self._failure
        except BaseException:  # whatever it was: half an exchange is in it
            self.abort()
            raise

    async def read(self) -> bytes:
        pieces = self._pieces
        while not pieces:
            if self._complete:
                return b""
            if self._failure is not None:
                raise self._failure
            try:
                await self._change()
            except BaseException:  # cancelled: what is still to come is nobody's
                self.abort()
                raise
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        return data

    def release(self) -> bool:
        """Back to the pool if nothing of this exchange can still come or go; whether the answer had been read to its end."""
        self._stop_ending()
        ended = self._complete and not self._pieces
        transport = self._transport
        if ended and self._keep and self._sent and transport is not None and not transport.get_write_buffer_size():
            self._busy = False
            self._pool.put(self)
        else:
            self.abort()
        return ended

    def let_end(self) -> None:
        """Nobody reads on: back to the pool once the framing of the answer has ended too. A connection that takes longer for that than
        LINGER, or brings more of a body, isn't worth the wait."""
        if not self._over():
            self.ending = self._loop.call_later(LINGER, self.abort)

    def _over(self) -> bool:
        over = self._complete or bool(self._pieces) or self._failure is not None
        if over:
            self.release()
        return over

    def _stop_ending(self) -> None:
        if self.ending is not None:
            self.ending.cancel()
            self.ending = None

    def abort(self) -> None:
        """Close at once, without waiting for anything to be flushed."""
        if self._aborted:
            return
        self._aborted = True
        self._stop_ending()
        if self._failure is None:
            self._failure = UpstreamIncomplete(ABANDONED)
        self._pool.forget(self)
        if self._transport is None:
            self._parser = None  # connection_lost will not come
        else:
            self._transport.abort()
        self._wake()

    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    # sending

    def _begin(self) -> None:
        self._busy = True
        self.status = 0
        self.head: list[tuple[bytes, bytes]] = []
        self._barren = self._buffered = 0
        self._heard = self._complete = self._sent = self._keep = self._until_eof = False

    def _send_at_once(self, head: bytes, body: Body, length: int) -> None:
        if length > COPIED and self._transport is not None:
            self._transport.writelines((head, *body))
        else:
            self._write(b"".join((head, *body)) if length else head)
        self._sent = True

    def _write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def _send_slices(self, head: bytes, body: Body) -> None:
        """A large body, without a copy of it: the transport keeps what the socket doesn't take, so it gets slices, and time."""
        self._write(head)
        for part in body:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), SLICE):
                if not await self._room():
                    return
                self._write(view[start : start + SLICE])
        self._sent = True

    async def _room(self) -> bool:
        """Whether to go on sending: not once the provider has answered (401, 413), it won't read the rest."""
        await asyncio.sleep(0)  # a fast reader never pauses us; others want the loop, and an early answer wants reading
        while self._writing_paused and not self.status and self._failure is None:
            await self._change()
        return not self.status and self._failure is None

    async def _change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._aborted:
            self._transport.abort()
        else:
            self._pool.opened(self)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        if not self._busy or self._complete or self._parser is None:  # bytes that nobody asked for
            self.abort()
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._garbled(error)
        if self._failure is not None:
            self.abort()
        self._take_in(len(data))
        self._wake()
        if self.ending is not None:
            self._over()

    def eof_received(self) -> None:
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, OSError) and self._busy and not self._complete:
            self._last_words()
        self._ended(exc)
        self._parser = None  # it holds our methods: break the circle
        self._pool.gone(self)

    def _last_words(self) -> None:
        """A provider that refuses a large body (401, 413) closes, which resets us while we send; a failed write ends the transport before
        it reads. The answer is still in the socket. (Under TLS it can't be read any more.)"""
        transport = self._transport
        if transport is not None and transport.get_extra_info("ssl_object") is None:
            with contextlib.suppress(OSError):
                while self._failure is None and (data := os.read(transport.get_extra_info("socket").fileno(), HEAD_LIMIT)):
                    self.data_received(data)

    def _take_in(self, size: int) -> None:
        """Count what came: too much unread pauses the peer; too much that is neither head nor body ends it."""
        if self._pieces:
            self._buffered += size
            self._barren = 0
            if self._buffered > self._limit and not self._complete and not self._reading_paused and self._transport is not None:
                self._reading_paused = True
                self._transport.pause_reading()
        elif not self._complete:
            self._barren += size
            if self._barren > HEAD_LIMIT:
                self._fail(UpstreamIncomplete(CUT, detail="trailer too large") if self.status else UpstreamError(TOO_LARGE))

    def _ended(self, exc: Exception | None) -> None:
        if self._busy and not self._complete and self._failure is None:
            if self._until_eof and exc is None:
                self._complete = True
            elif not self._heard:
                self._failure = Unheard(UNANSWERED, detail=repr(exc) if exc else "end of file")
            else:
                self._failure = UpstreamIncomplete(CUT if self.status else UNANSWERED, detail=repr(exc) if exc else "end of file")
        self.abort()

    def _fail(self, failure: ProviderFault) -> None:
        if self._failure is None and not self._complete:
            self._failure = failure
        self.abort()

    def _garbled(self, error: Exception) -> None:
        if self._complete:  # the answer is whole, and what came after it ends the connection
            self.abort()
        elif self.status:
            self._fail(UpstreamIncomplete(CUT, detail=f"broken framing: {error}"))
        else:
            self._fail(UpstreamError(NOT_HTTP, detail=str(error)))

    # httptools calls

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("bytes beyond the answer")  # stops the parser: no byte of them may join this body

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # after it: a trailer
            self.head.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if 100 <= status < 200:  # informational: the answer is still to come
            self.head = []
            return
        self._failure = head_fault(status, self.head)
        if self._failure is None:
            self.status = status
            self._keep = parser.should_keep_alive()
            self._until_eof = first(self.head, b"content-length") is None and first(self.head, b"transfer-encoding") is None

    def on_message_complete(self) -> None:
        if self.status:
            self._complete = True


def head_fault(status: int, headers: list[tuple[bytes, bytes]]) -> UpstreamError | None:
    """What makes a head that parses one that can't be trusted. (The parser refuses a second or malformed Content-Length, and one
    beside Transfer-Encoding.)"""
    types = coding = None
    size = 0
    for name, value in headers:
        size += len(name) + len(value) + 4
        if name == b"content-type":
            if types is not None and types != value:
                return UpstreamError("The provider's answer has two content types that differ.")
            types = value
        elif name == b"transfer-encoding":
            if coding is not None or value.strip().lower() != b"chunked":
                return UpstreamError("The provider's answer has a transfer coding that was not asked for.")
            coding = value
    if size > HEAD_LIMIT:
        return UpstreamError(TOO_LARGE)
    if status < 100:
        return UpstreamError(NOT_HTTP, detail=f"status {status}")
    return None


def first(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    for each, value in headers:
        if each == name:
            return value
    return None
