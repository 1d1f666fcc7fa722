"""The wire to a provider: one HTTP/1.1 request out, its answer back as the network gives it.

Here belong connections: making, pooling, pacing and dropping them, and the framing of HTTP. Not here: what the bytes mean,
content codings, redirects, cookies, retries (one resend apart, below), any time limit but connect's.

A provider's connection is used again only if nothing of the last exchange can still be in it. Whatever else happens to
an exchange (cancelled, half read, half sent, bytes left over) its connection is aborted there and then: the next caller must never
read somebody else's answer, and a provider should stop generating for a caller who left.

The one resend: a connection that waited in the pool and turns out closed before any byte of the answer came had been closed by the
peer before our request arrived, so the same request goes out once more, on a fresh one. It is the same attempt.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import aiohappyeyeballs

from ..call.errors import UpstreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from .connection import ABANDONED, Body, Connection, Unheard, first
from .origin import Key, Origin, printable

__all__ = ["Answer", "Body", "Headers", "Origin", "Reply", "Sender", "Upstream"]

Headers = Sequence[tuple[bytes, bytes]]

READ_LIMIT = 64 * 1024  # bytes of an answer that wait for their reader before the provider has to

OURS = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection"))


class Reply(Protocol):
    """What a provider answered: the head, and the body as it comes."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def header(self, name: bytes) -> bytes | None: ...
    async def read(self) -> bytes: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class Sender(Protocol):
    """Who can send a request to an origin: Upstream, and the variant that goes through a proxy."""

    @property
    def resends(self) -> int: ...
    async def send(
        self, method: bytes, origin: Origin, path: str, headers: Headers, body: Body, *, connect: float, more: Headers = ()
    ) -> Reply: ...
    async def aclose(self) -> None: ...


class Answer:
    """The head of an answer, and its body as it comes. Header names are lower-case, in order, repeats kept."""

    __slots__ = ("_connection", "_ended", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self.status = connection.status
        self.headers = connection.head
        self._connection: Connection | None = connection
        self._ended = False

    def header(self, name: bytes) -> bytes | None:
        """The first value of that name."""
        return first(self.headers, name)

    async def read(self) -> bytes:
        """What the network gave since the last time; b"" at the clean end. UpstreamIncomplete if the peer dies early."""
        if self._ended:
            return b""
        if self._connection is None:
            raise UpstreamIncomplete(ABANDONED)
        data = await self._connection.read()
        self._ended = not data
        return data

    def release(self) -> None:
        """The body has said all it had to: without anybody waiting, the connection goes back once the framing of the answer ends too, or
        is aborted. `close` does nothing after it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ended = True
            connection.let_end()

    def close(self) -> None:
        """Give the connection back if the answer was read to its end and can be trusted, else abort it. Idempotent, no I/O awaited."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._ended = connection.release() or self._ended


class Upstream:
    """Sends requests to origins over pooled connections, last in, first out. One event loop; nothing is shared between loops."""

    def __init__(self, *, keepalive: float = 30.0, max_idle: int = 256, read_limit: int = READ_LIMIT) -> None:
        self.resends = 0
        self._keepalive = keepalive
        self._max_idle = max_idle
        self._read_limit = read_limit
        self._open: set[Connection] = set()
        self._closing: set[Connection] = set()
        self._idle: dict[Connection, float] = {}  # since when; in that order
        self._stacks: dict[Key, dict[Connection, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def open(self) -> int:
        """Connections that live: idle and in use (not those being closed)."""
        return len(self._open)

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def in_use(self) -> int:
        return len(self._open) - len(self._idle)

    async def send(
        self, method: bytes, origin: Origin, path: str, headers: Headers, body: Body, *, connect: float, more: Headers = ()
    ) -> Answer:
        """Send a request and return when the head of its answer is here. `connect` limits DNS, TCP and TLS together; `headers` are those
        of every request to this path, `more` those of this one.
        """
        length = sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in body])
        head = request_head(method, origin, path, headers, length, more=more)
        connection = self._take(origin.key)
        if connection is not None:
            try:
                await connection.exchange(head, body, length)
                return Answer(connection)
            except Unheard:
                self.resends += 1
        connection = await self._connect(origin, connect)
        await connection.exchange(head, body, length)
        return Answer(connection)

    async def aclose(self) -> None:
        """Abort what is idle or only ending, and wait until its transports are gone. Answers in use stay their readers' until closed."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in [each for each in self._open if each in self._idle or each.ending]:
            connection.abort()
        while self._closing:
            self._all_gone = asyncio.get_running_loop().create_future()
            await self._all_gone

    async def _connect(self, origin: Origin, limit: float) -> Connection:
        connection = Connection(self, origin.key, self._read_limit)
        made = False
        try:
            async with asyncio.timeout(limit):
                await open_transport(connection, origin, limit)
            made = True
        except TimeoutError as error:
            text = f"The provider can't be reached: no connection within {limit:g} seconds."
            raise UpstreamTimeout(text, limit="connect", detail=f"{origin.host}:{origin.port}") from error
        except OSError as error:
            raise unreachable(error, origin) from error
        finally:
            if not made:
                connection.abort()
                self.gone(connection)  # a connect that is cancelled at its last moment is closed by uvloop without connection_lost
        return connection

    # the pool

    def _take(self, key: Key) -> Connection | None:
        stack = self._stacks.get(key)
        while stack:
            connection = next(reversed(stack))
            if connection.usable() and asyncio.get_running_loop().time() - self._idle[connection] < self._keepalive:
                del stack[connection], self._idle[connection]
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        """Keep a connection whose exchange ended well."""
        if self._closed or not self._max_idle or not connection.usable():
            connection.abort()
            return
        if len(self._idle) >= self._max_idle:
            next(iter(self._idle)).abort()
        loop = asyncio.get_running_loop()
        self._idle[connection] = now = loop.time()
        self._stacks.setdefault(connection.key, {})[connection] = None
        if self._timer is None:
            self._timer = loop.call_at(now + self._keepalive, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for connection, since in list(self._idle.items()):
            if loop.time() - since < self._keepalive:
                self._timer = loop.call_at(since + self._keepalive, self._sweep)
                return
            connection.abort()
        self._stacks = {key: stack for key, stack in self._stacks.items() if stack}

    # what a connection tells

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def forget(self, connection: Connection) -> None:
        """It is being closed: never hand it out again."""
        if connection in self._open:
            self._open.discard(connection)
            self._closing.add(connection)
        if self._idle.pop(connection, None) is not None:
            self._stacks[connection.key].pop(connection, None)

    def gone(self, connection: Connection) -> None:
        """Its transport is closed."""
        self._closing.discard(connection)
        if not self._closing and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)


def request_head(method: bytes, origin: Origin, path: str, headers: Headers, length: int, *, more: Headers = ()) -> bytes:
    """Request line and headers. `path` is one of ours, `headers` are complete but for those of framing, which are made here."""
    fixed = _fixed_head(method, origin, path, tuple(headers))
    if more:
        fixed += _lines(more)
    return b"%bcontent-length: %d\r\n\r\n" % (fixed, length) if length or method != b"GET" else fixed + b"\r\n"


def _lines(headers: Headers) -> bytes:
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if not lines.count(b"\r") == lines.count(b"\n") == len(headers) or b"\0" in lines:
        raise ValueError("A header holds a line break or a NUL.")
    return lines


@lru_cache(maxsize=256)
def _fixed_head(method: bytes, origin: Origin, path: str, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """All of a head but its length: the same for every request to one path of a provider."""
    assert path.startswith("/"), path
    assert printable(path), path
    assert method.isalpha(), method
    lines = [b"%b %b%b HTTP/1.1\r\nhost: %b" % (method, origin.path.encode(), path.encode(), origin.authority)]
    for name, value in headers:
        if name.lower() in OURS:
            raise ValueError(f"The header {name.decode('latin-1')} is made by the client.")
        lines.append(b"%b: %b" % (name, value))
    head = b"\r\n".join(lines)
    if not head.count(b"\r") == head.count(b"\n") == len(lines) or b"\0" in head:
        raise ValueError("A header holds a line break or a NUL.")
    return head + b"\r\n"


async def open_transport(connection: Connection, origin: Origin, limit: float) -> None:
    """Races addresses (RFC 8305), so that a black hole behind one family doesn't use up the limit; uvloop can't by itself."""
    loop = asyncio.get_running_loop()
    sock = await aiohappyeyeballs.start_connection(await _resolve(origin.host, origin.port), happy_eyeballs_delay=0.25)
    name = origin.host if origin.ssl is not None else None
    handshake = limit if origin.ssl is not None else None
    await loop.create_connection(lambda: connection, sock=sock, ssl=origin.ssl, server_hostname=name, ssl_handshake_timeout=handshake)


async def _resolve(host: str, port: int) -> Sequence[aiohappyeyeballs.AddrInfoType]:
    try:  # a literal needs no thread
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def unreachable(error: OSError, origin: Origin) -> UpstreamUnreachable:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = "its TLS certificate is not trusted"
    elif isinstance(error, ssl.SSLError):
        reason = "the TLS handshake failed"
    elif isinstance(error, socket.gaierror):
        reason = "its host name does not resolve"
    elif isinstance(error, ConnectionRefusedError):
        reason = "connection refused"
    elif isinstance(error, ConnectionError):
        reason = "the connection broke while it was being made"
    elif error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        reason = "no route to it"
    else:
        reason = "a network error"
    return UpstreamUnreachable(f"The provider can't be reached: {reason}.", detail=f"{origin.host}:{origin.port}: {error}")
