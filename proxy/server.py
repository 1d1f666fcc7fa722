"""HTTP to clients, by aiohttp: connections and their patience, exchanges, start and drain. What a request means is said in endpoints.py.

aiohttp parses and frames. What it lacks stands here: a time limit and a size limit for heads, a limit for readers that take nothing,
an answer in our shape for what its parser refuses, and `100 Continue` only when the body is wanted.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from ..call.errors import CallerFault, SpangateError
from .endpoints import Running, draining
from .errors import error_body, status_of
from .exchange import Exchange
from .following import Following
from .http_exchange import LAST, HttpExchange, head_of
from .listener import Listener, bound
from .settings import Server as Limits

log = logging.getLogger("spangate.proxy")

READ = 256 * 1024  # bytes of a body that may wait to be read, as many as the loop reads at once
FIELDS = 256  # header fields of a request
IDLE = 75.0  # seconds that a kept connection may stay without a request
LINGER = 2.0  # seconds for which what a refused client still sends is read and thrown away
PARTING = 0.5  # seconds that a step of closing may take


class Connection(RequestHandler):
    """A client's connection. The sweep looks at it every now and then; the times here are the loop's."""

    __slots__ = (
        "answered",
        "body",
        "body_due",
        "following",
        "gone",
        "head_bytes",
        "head_since",
        "limits",
        "refused",
        "stuck_since",
        "taken",
        "waiting",
        "wire",
        "written",
    )

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.answered = 0
        self.body: StreamReader | None = None
        self.body_due = 0.0
        self.following = Following()
        self.head_bytes = 0
        self.head_since = 0.0
        self.refused = 0.0
        self.stuck_since = 0.0
        self.taken = 0
        self.waiting = 0
        self.wire: asyncio.Transport | None = None
        self.written = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.head_since = self._loop.time()
        self.wire = transport  # type: ignore[assignment]
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.wire = None
        if not self.gone.done():
            self.gone.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        between = self._request_count == self.answered
        lost = self._parse(data)
        while lost:
            lost = self._parse(lost)
        if not between:
            return
        if self._request_count != self.answered:
            self.head_since, self.head_bytes = 0.0, 0
        else:
            self.head_since = self.head_since or self._loop.time()
            self.head_bytes += len(data)
            if self.head_bytes > self.limits.max_header:
                self.refuse(_head_too_large())

    def _parse(self, data: bytes) -> bytes:
        """Feed aiohttp's parser, and count what waits behind the requests that came. What it throws away is given back."""
        count = self._request_count
        super().data_received(data)
        heads: list[Any] = [*self._messages][count - self._request_count :] if self._request_count != count else []
        if self._upgraded or (heads and isinstance(heads[-1][0], _ErrInfo)):
            self.waiting, self.following = 0, Following()  # the rest is aiohttp's to parse, or nobody's
            return b""
        behind = self.following.feed(data, heads)
        size = 1 if behind is None else len(behind.lstrip(b"\r\n"))  # which some send behind a body, and which mean nothing
        self.waiting = size if heads else self.waiting + size
        if not heads or not heads[-1][0].upgrade or not size:
            return b""
        if behind is None or len(self._messages) >= self._max_msg_queue_size:
            self.close()  # what was thrown away can't be told: the answers under way are the last
            return b""
        self.waiting, self.following = 0, Following()
        return behind

    def done(self) -> None:
        """An exchange is over; what comes next is a head, which may have begun before."""
        self.answered += 1
        self.body = None
        begun = self.waiting if self.answered == self._request_count else 0
        self.head_since, self.head_bytes = self._loop.time() if begun else 0.0, begun

    def refuse(self, error: SpangateError) -> None:
        """Answer a request that never came to be one, and close: our side now, all of it when the client does or after LINGER,
        for a reset would take the answer from a client that is still sending."""
        if self.wire is None or self.refused:
            return
        self.refused = self._loop.time()
        body = error_body(error, base=_base(self.wire))
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        self.wire.write(head_of(status_of(error), headers) + body)
        self.wire.write_eof()
        self.close()

    async def room(self) -> None:
        """Wait while the client is slow."""
        if self._drain_waiter is not None and self._drain_waiter.cancelled():
            self._drain_waiter = None  # of a wait that was cancelled: the next one is not
        await self._drain_helper()

    def expect(self, body: StreamReader, within: float) -> None:
        """A request's body is being read, and must be here in so many seconds."""
        self.body, self.body_due = body, self._loop.time() + within

    def drop(self) -> None:
        """Close at once, whatever was still to be written."""
        if self.wire is not None:
            self.wire.abort()

    def look(self, now: float) -> None:
        """Lose patience with a head that doesn't come to its end, and with a reader that takes nothing."""
        wire = self.wire
        if wire is None:
            return
        if self.refused and now - self.refused > LINGER:
            wire.abort()
        elif self.head_since and now - self.head_since > self.limits.header_timeout:
            self._give_up()
        if self.body is not None and now > self.body_due and not self.body.is_eof():
            self.body.set_exception(TimeoutError("The request body did not arrive in time."))
            self.body = None
        waiting = wire.get_write_buffer_size()
        taken = self.written - waiting - _in_the_system(wire) if waiting else 0  # what waits is soon as much again
        if not waiting or taken > self.taken or not self.stuck_since:
            self.stuck_since = now if waiting else 0.0
        elif now - self.stuck_since > self.limits.write_timeout:
            wire.abort()
        self.taken = taken

    def _give_up(self) -> None:
        if self.head_bytes:
            self.refuse(CallerFault("The request's head did not arrive in time.", code="request_timeout"))
        else:
            self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What aiohttp's parser refuses, in our shape. Of anything else the endpoints have made an answer, unless that failed too."""
        if isinstance(exc, HttpProcessingError):
            self.refuse(_parser_error(exc))
            self.transport = None  # aiohttp would close it at once
        else:
            if not isinstance(exc, ConnectionError):  # which says that the client has left
                log.error("an answer failed: %s", type(exc).__name__, exc_info=exc)
            self.drop()
        return LAST


def _base(wire: asyncio.Transport) -> str:
    """Where this client has reached us; nowhere by a socket in the file system."""
    name = wire.get_extra_info("sockname")
    return Address(name[0], name[1]).url if isinstance(name, tuple) else ""


def _in_the_system(wire: asyncio.Transport) -> int:
    """Bytes that the system has and the client's system has not: for a slow client, megabytes that we would not see move."""
    try:
        return int.from_bytes(ioctl(wire.get_extra_info("socket").fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:  # not told everywhere
        return 0


def _parser_error(exc: BaseException | None) -> CallerFault:
    if isinstance(exc, LineTooLong) or "Too many headers" in str(exc):  # of which aiohttp makes no class
        return _head_too_large()
    return CallerFault("This is not a request of HTTP/1.1 that can be answered safely.")


def _head_too_large() -> CallerFault:
    return CallerFault("The request's head is too large.", code="headers_too_large")


def _head_size(message: RawRequestMessage) -> int:
    return len(message.path) + sum([len(name) + len(value) + 4 for name, value in message.raw_headers])


class _Http(web.Server):
    """aiohttp's server with our connections."""

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = limits

    def __call__(self) -> RequestHandler:
        most = self.limits.max_header
        return Connection(self, loop=self._loop, limits=self.limits, max_line_size=most, max_field_size=most, **self._kwargs)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class Answering(Protocol):
    """What answers requests. `running` are the calls that a drain waits for."""

    draining: bool
    running: set[Running]

    async def __call__(self, exchange: Exchange) -> None: ...


class Server:
    """Something that answers, on a port or a socket. `start`, or `bind` and `listen`, or `start_on`; then `drain` once."""

    def __init__(self, endpoints: Answering, limits: Limits) -> None:
        self.endpoints = endpoints
        self._limits = limits
        self._http: _Http | None = None
        self._listener: Listener | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        return len(self._http._connections) if self._http else 0  # the other makes a list of them

    @property
    def refused(self) -> int:
        """How many connections were shut for want of files."""
        return self._listener.refused if self._listener else 0

    async def start(self, host: str, port: int) -> Address:
        """Listen; port 0 takes a free one.

        Raises:
            OSError: the address can't be had.
        """
        address = await self.bind(host, port)
        await self.listen()
        return address

    async def bind(self, host: str, port: int) -> Address:
        """Take the address, which nobody else gets from now on, and answer nobody yet.

        Raises:
            OSError: it can't be had.
        """
        self._listener = Listener(await bound(host, port), self._begun(), lambda: self.connections)
        return _address(self._listener.sockets, host)

    async def listen(self) -> None:
        """Answer at the address that is bound.

        Raises:
            OSError: another process, which had bound it at the same time, was quicker.
        """
        assert self._listener is not None
        self._listener.start()
        self._look_around()

    async def start_on(self, sock: socket.socket) -> None:
        """Listen on a Unix socket that is bound."""
        self._listener = Listener([sock], self._begun(), None)
        await self.listen()

    def _begun(self) -> _Http:
        limits = self._limits
        self._http = _Http(
            self._exchange,
            limits=limits,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=IDLE,
            lingering_time=LINGER,
            max_headers=FIELDS,
            read_bufsize=READ,
        )
        return self._http

    def limit(self, limits: Limits) -> None:
        """New limits, for connections that come from now on."""
        self._limits = limits
        if self._http is not None:
            self._http.limits = limits

    async def _exchange(self, request: web.BaseRequest) -> web.StreamResponse:
        if _head_size(request._message) > self._limits.max_header:  # it came at once, so that nobody had counted
            return self._refused(request)
        exchange = HttpExchange(request)
        await self.endpoints(exchange)
        return exchange.finished()

    def _refused(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.refuse(_head_too_large())
        connection.transport = None
        return LAST

    def _look_around(self) -> None:
        """The sweep: every connection is looked at four times per shortest time limit, at least once a second."""
        loop = asyncio.get_running_loop()
        assert self._http is not None
        now = loop.time()
        for connection in self._http.connections:
            if isinstance(connection, Connection):
                connection.look(now)
        limits = self._limits
        every = min(1.0, min(limits.header_timeout, limits.body_timeout, limits.write_timeout) / 4)
        self._sweep = loop.call_later(max(every, 0.01), self._look_around)

    async def drain(self, patience: float) -> None:
        """Refuse new calls, give running ones `patience` seconds, end the rest with an error, close everything. It takes two seconds
        longer than `patience` at most, and so long only for clients that don't read."""
        endpoints = self.endpoints
        endpoints.draining = True
        until = asyncio.get_running_loop().time() + patience
        await _wait({running.task for running in endpoints.running}, patience)
        left = list(endpoints.running)
        for running in left:
            running.stop(draining())
        await _wait({running.task for running in left}, PARTING)
        await self._close(until)

    async def _close(self, until: float) -> None:
        """Stop listening, and close every connection once its client has taken what was written, or else at `until`."""
        if self._listener is not None:
            self._listener.close()
        if self._http is not None:
            connections = [each for each in self._http.connections if isinstance(each, Connection)]
            self._http.pre_shutdown()
            await self._http.shutdown(PARTING / 2)
            await _wait({each.gone for each in connections}, max(until - asyncio.get_running_loop().time(), PARTING))
            for each in connections:
                each.drop()
        if self._sweep is not None:
            self._sweep.cancel()


async def _wait(futures: Collection[asyncio.Future[Any]], longest: float) -> None:
    if futures:
        await asyncio.wait(futures, timeout=longest)


def _address(sockets: Sequence[socket.socket], host: str) -> Address:
    name = sockets[0].getsockname()
    return Address(host, name[1])
