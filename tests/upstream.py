"""The tests' one fake below HTTP: a provider that misbehaves on script.

A small TCP server with its own framing and no HTTP library, so that it can send what no library would: bytes cut anywhere, wrong
lengths, resets, silence. It is one of two seams that tests fake at (the other is the scripted provider).

    async with Misbehaving(play(http(200, body=chat_completion("Hello")))) as up:
        … up.base_url …
        request = await up.request(0)          # waits for the first request
        assert request.body == b"…"
        await request.peer_closed.wait()       # the moment the client left

A **script** says what to do with a request, as soon as it is whole (`early=True`: as soon as its head is):
  - a Play: that, each time
  - a list of Plays: the first for the first request, and so on; the last one repeats
  - a function from Request to Play

A **Play** is steps and an end. A step is bytes, `(bytes, seconds to wait before them)`, or an asyncio.Event to wait for. Ends: `keep` (wait
for the next request on this connection), `fin` (close), `rst` (SO_LINGER 0), `hold` (stay silent until the peer or the test leaves). An
upstream that "answers keep-alive, then closes" is a plain answer with the end `fin`.

Options: `mute` accepts and never reads; `black_hole` has a full backlog; `idle_close` closes a connection that waited so long for
a request; `tls` is a server context of `self_signed()`; `early` answers without reading the body.

Two scripts come ready: `echo()` answers with a word found in the request (whose answer did I get?), `Counting` counts requests and the
tokens that it charged (the truth for accounting).

A delay is part of a scenario; to wait for something, wait for an event: `request()`, `peer_closed`, `connection()`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import socket
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, cast

from hypothesis import strategies as st

End = Literal["keep", "fin", "rst", "hold"]
Step = bytes | tuple[bytes, float] | asyncio.Event


@dataclass(frozen=True)
class Play:
    steps: tuple[Step, ...]
    end: End = "keep"


def play(*steps: Step, end: End = "keep") -> Play:
    return Play(steps, end)


@dataclass(eq=False)
class Request:
    """One request as it came."""

    raw: bytes
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]  # as written, in order
    body: bytes
    arrived: float  # the loop's time when the script was asked
    connection: Connection

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header, whatever its case."""
        return next((value for each, value in self.headers if each.lower() == name.lower()), None)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def peer_closed(self) -> asyncio.Event:
        """Set when the client closed its connection, or reset it."""
        return self.connection.peer_closed


Script = Play | Sequence[Play] | Callable[[Request], Play]


class Misbehaving:
    def __init__(
        self,
        script: Script = (),
        *,
        early: bool = False,
        mute: bool = False,
        black_hole: bool = False,
        idle_close: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.script = script
        self.early = early
        self.mute = mute
        self.idle_close = idle_close
        self.requests: list[Request] = []
        self.connections: list[Connection] = []
        self._black_hole = black_hole
        self._tls = tls
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._fillers: list[socket.socket] = []

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def open(self) -> int:
        """Connections that no side has closed."""
        return sum(not each.peer_closed.is_set() and not each.gone.is_set() for each in self.connections)

    async def request(self, number: int = 0) -> Request:
        """The request of that number, once it is here."""
        await self._until(lambda: len(self.requests) > number)
        return self.requests[number]

    async def connection(self, number: int = 0) -> Connection:
        await self._until(lambda: len(self.connections) > number)
        return self.connections[number]

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._news.clear()
            await self._news.wait()

    def tell(self) -> None:
        self._news.set()

    def next_play(self, request: Request) -> Play:
        self.requests.append(request)
        self.tell()
        script = self.script
        if isinstance(script, Play):
            return script
        if callable(script):
            return script(request)
        return script[min(len(self.requests), len(script)) - 1]

    async def __aenter__(self) -> Self:
        sock = socket.create_server(("127.0.0.1", 0), backlog=0 if self._black_hole else 1024)
        self.port: int = sock.getsockname()[1]
        if self._black_hole:
            self._fillers = [sock, *fill_backlog(self.port)]
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: Connection(self), sock=sock, ssl=self._tls, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._fillers:
            each.close()
        if self._server is not None:
            self._server.close()
        for connection in self.connections:
            await connection.stop()


def fill_backlog(port: int) -> list[socket.socket]:
    """Linux completes backlog + 1 handshakes that nobody accepts, then drops each SYN."""
    fillers = []
    for _ in range(4):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        fillers.append(sock)
    return fillers


def refusing_port() -> int:
    """A port that refuses connections (nobody listens there)."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Connection(asyncio.Protocol):
    """One connection of the server: reads requests, plays the script, notices that its peer left."""

    def __init__(self, server: Misbehaving) -> None:
        self.peer_closed = asyncio.Event()
        self.peer_closed_at: float | None = None
        self.gone = asyncio.Event()  # the socket is closed, whoever closed it
        self.received = 0
        self._server = server
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._we_closed = False

    # asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=1, low=0)  # so that _flushed means flushed (0 would never resume under TLS)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.connections.append(self)
        self._server.tell()
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._buffer += data
        self._changed.set()

    def eof_received(self) -> bool:
        self._left()
        return not self._server_is_tls()  # half open: the script goes on writing

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._we_closed:
            self._left()
        self.gone.set()
        self._flushed.set()
        self._changed.set()

    def pause_writing(self) -> None:
        self._flushed.clear()

    def resume_writing(self) -> None:
        self._flushed.set()

    # the script

    def hang_up(self) -> None:
        """Close now, whatever the script says."""
        self._we_closed = True
        if self._transport is not None:
            self._transport.abort()

    def read_on(self) -> None:
        """Read again after an early answer."""
        if self._transport is not None and not self.gone.is_set():
            self._transport.resume_reading()

    async def some_bytes(self) -> None:
        """Wait until anything came."""
        while not self.received and await self._more():
            pass

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None and not self.gone.is_set():
            self._we_closed = True
            self._transport.abort()
            await self.gone.wait()

    async def _serve(self) -> None:
        if self._server.mute and self._transport is not None:
            self._transport.pause_reading()  # not in connection_made: uvloop begins to read after it
        while (request := await self._next_request()) is not None:
            what = self._server.next_play(request)
            for step in what.steps:
                await self._step(step)
            if what.end != "keep":
                await self._finish(what.end)
                return
        await self._finish("fin")

    async def _step(self, step: Step) -> None:
        if isinstance(step, asyncio.Event):
            await step.wait()
            return
        data, delay = (step, 0.0) if isinstance(step, bytes) else step
        if delay:
            await asyncio.sleep(delay)
        assert self._transport is not None
        if not self.gone.is_set():
            self._transport.write(data)
            await self._flushed.wait()

    async def _finish(self, end: End) -> None:
        assert self._transport is not None
        if end == "hold":
            await self.peer_closed.wait()
        elif end == "rst":
            linger = struct.pack("ii", 1, 0)
            self._we_closed = True
            if not self.gone.is_set():
                self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
            return
        self._we_closed = True
        self._transport.close()

    async def _next_request(self) -> Request | None:
        """The next request, or None if the peer closes first or the idle limit passes."""
        head = await self._read_until(b"\r\n\r\n", self._server.idle_close)
        if head is None:
            return None
        method, path, headers = parse_head(head)
        body: bytes | None = b""
        if self._server.early:
            assert self._transport is not None
            self._transport.pause_reading()
        elif (length := find(headers, b"content-length")) is not None:
            body = await self._read_exactly(int(length))
        elif find(headers, b"transfer-encoding") is not None:
            body = await self._read_chunks()
        if body is None:
            return None
        return Request(head + body, method, path, headers, body, asyncio.get_running_loop().time(), self)

    async def _read_until(self, mark: bytes, limit: float | None = None) -> bytes | None:
        try:
            while (at := self._buffer.find(mark)) < 0:
                async with asyncio.timeout(None if self._buffer else limit):
                    if not await self._more():
                        return None
        except TimeoutError:
            return None
        return self._cut(at + len(mark))

    async def _read_exactly(self, size: int) -> bytes | None:
        while len(self._buffer) < size:
            if not await self._more():
                return None
        return self._cut(size)

    async def _read_chunks(self) -> bytes | None:
        body = b""
        while (line := await self._read_until(b"\r\n")) is not None:
            piece = await self._read_exactly(int(line.split(b";")[0], 16) + 2)
            if piece is None or len(piece) == 2:
                return body
            body += piece[:-2]
        return None

    def _cut(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def _more(self) -> bool:
        """Whether more bytes came, rather than the end."""
        if self.peer_closed.is_set() or self.gone.is_set():
            return False
        self._changed.clear()
        await self._changed.wait()
        return True

    def _left(self) -> None:
        if not self.peer_closed.is_set():
            self.peer_closed.set()
            self.peer_closed_at = asyncio.get_running_loop().time()
        self._changed.set()

    def _server_is_tls(self) -> bool:
        assert self._transport is not None
        return self._transport.get_extra_info("ssl_object") is not None


def parse_head(head: bytes) -> tuple[str, str, list[tuple[bytes, bytes]]]:
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    method, path, _ = first.decode("latin-1").split(" ", 2)
    pairs = [line.partition(b":") for line in lines]
    return method, path, [(name, value.strip()) for name, _, value in pairs]


def find(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for each, value in headers if each.lower() == name), None)


# ---- HTTP, as bytes


def http(status: int = 200, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", *, version: str = "1.1") -> bytes:
    """An answer. It is framed by Content-Length and called JSON unless `headers` say otherwise."""
    names = {name.lower() for name, _ in headers}
    pairs = list(headers)
    if body and "content-type" not in names:
        pairs.append(("Content-Type", "application/json"))
    if not names & {"content-length", "transfer-encoding"} and status not in (204, 304):
        pairs.append(("Content-Length", str(len(body))))
    return raw_head(status, pairs, version=version) + body


def raw_head(status: int = 200, headers: Sequence[tuple[str, str]] = (), *, version: str = "1.1") -> bytes:
    """A head with exactly these headers: one without length or chunking runs until the end of the connection."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/{version} {status} Scripted\r\n{lines}\r\n".encode("latin-1")


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


LAST_CHUNK = b"0\r\n\r\n"


def chunked(*pieces: bytes) -> bytes:
    """A whole chunked body, one chunk a piece."""
    return b"".join(map(chunk, pieces)) + LAST_CHUNK


def sse_head(headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """The head of a chunked event stream."""
    return raw_head(200, [("Content-Type", "text/event-stream; charset=utf-8"), ("Transfer-Encoding", "chunked"), *headers])


def sse(*events: bytes, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """A whole event stream that ends cleanly, one chunk an event."""
    return sse_head(headers) + chunked(*events)


def cut(data: bytes, at: int, delay: float = 0.02) -> tuple[Step, Step]:
    """The same bytes in two segments."""
    return data[:at], (data[at:], delay)


# ---- OpenAI, as bytes: the shorthand of the fault list


def event(payload: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def chat_chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more})


def C(content: str) -> bytes:
    """A delta of text."""
    return chat_chunk([{"index": 0, "delta": {"content": content}, "finish_reason": None}])


def F(reason: str) -> bytes:
    """An empty delta with a finish_reason."""
    return chat_chunk([{"index": 0, "delta": {}, "finish_reason": reason}])


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def U(prompt: int, completion: int) -> bytes:
    """The usage chunk."""
    return chat_chunk([], usage=usage(prompt, completion))


D = b"data: [DONE]\n\n"


def chat_completion(text: str, tokens: tuple[int, int] | None = (7, 2), *, finish: str = "stop") -> bytes:
    """The body of a whole answer; `tokens` None: without usage."""
    message = {"role": "assistant", "content": text}
    whole: dict[str, Any] = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    if tokens is not None:
        whole["usage"] = usage(*tokens)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def chat_answer(
    text: str, tokens: tuple[int, int] | None = (7, 2), *, stream: bool = False, headers: Sequence[tuple[str, str]] = ()
) -> bytes:
    """A whole good answer, as JSON or as a stream."""
    if not stream:
        return http(200, headers, chat_completion(text, tokens))
    return sse(C(text), F("stop"), *([U(*tokens)] if tokens else []), D, headers=headers)


def error(
    status: int, message: str = "no", *, type: str = "server_error", code: str | None = None, headers: Sequence[tuple[str, str]] = ()
) -> bytes:
    """An answer that is an OpenAI error."""
    body = json.dumps({"error": {"message": message, "type": type, "param": None, "code": code}})
    return http(status, headers, body.encode())


def wants_stream(request: Request) -> bool:
    return re.search(rb'"stream"\s*:\s*true', request.body) is not None


def junk(*keys: str, leaves: int = 6, most: int | None = None) -> st.SearchStrategy[Any]:
    """JSON in place of what a provider should say: small values of every kind, within one another. Objects have some of these keys, and
    `most` of them at the most."""
    return st.recursive(
        st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(keys), inner, max_size=most),
        max_leaves=leaves,
    )


# ---- scripts that come ready


def echo(pattern: bytes = rb"nonce-\w+", *, delay: float = 0.0) -> Callable[[Request], Play]:
    """Answers with the word found in the request, half at once and half after `delay`, so that an answer can be left half read."""

    def script(request: Request) -> Play:
        found = re.search(pattern, request.raw)
        answer = chat_answer(found[0].decode() if found else "", stream=wants_stream(request))
        return play(*cut(answer, len(answer) // 2, delay))

    return script


class Counting:
    """Answers, and counts what it would charge for: every request that reached it whole, whether or not its client stayed."""

    def __init__(self, text: str = "Hello", tokens: tuple[int, int] = (7, 2), *, delay: float = 0.0) -> None:
        self.text = text
        self.tokens = tokens
        self.delay = delay
        self.requests = 0

    @property
    def prompt_tokens(self) -> int:
        return self.requests * self.tokens[0]

    @property
    def completion_tokens(self) -> int:
        return self.requests * self.tokens[1]

    def __call__(self, request: Request) -> Play:
        self.requests += 1
        return play((chat_answer(self.text, self.tokens, stream=wants_stream(request)), self.delay))


# ---- TLS


@dataclass(frozen=True)
class SelfSigned:
    """A certificate for localhost and 127.0.0.1 that its own client context trusts, and no other."""

    server: ssl.SSLContext = field(repr=False)
    client: ssl.SSLContext = field(repr=False)
    pem: str = field(repr=False)


@functools.cache
def self_signed() -> SelfSigned:
    """Made by the openssl command, once a process."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
        command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        client = ssl.create_default_context(cafile=str(certificate))
        client.set_alpn_protocols(["http/1.1"])
        server.set_alpn_protocols(["http/1.1"])
        return SelfSigned(server, client, certificate.read_text())
