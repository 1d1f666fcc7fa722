"""OTLP over HTTP: one request body to a collector, over a kept connection, again and again within its time limit where that may help.

Blocking, for a thread of its own. Nothing here raises for what a network or a collector does: `Result` says what became of it.

https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
import http.client
import io
import random
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from ... import __version__
from . import protobuf
from .config import Target

Reason = Literal["", "unreachable", "timeout", "unavailable", "rejected", "failed", "queue_full", "invalid"]
"""Why items were lost: five ways in which a collector didn't take them, and two in which they never got so far."""

RETRYABLE: Final = frozenset({429, 502, 503, 504})
TRIES: Final = 6
MAX_ANSWER: Final = 64 << 10
CONTENT_TYPE: Final = "application/x-protobuf"


class Result(msgspec.Struct, frozen=True):
    """What became of one body. `rejected`: how many of its items a collector took the rest without. `words`: for the log."""

    reason: Reason = ""
    words: str = ""
    rejected: int = 0


class Sender(Protocol):
    """Sends the encoded requests of one signal."""

    def send(self, body: bytes) -> Result: ...

    def close(self) -> None:
        """Nothing more comes; whatever waits for another try gives up."""
        ...


class HttpSender:
    """Sends to one URL. Belongs to one thread, save `close`. `heard`: the head of the last answer, names in lower case."""

    def __init__(self, target: Target, *, now: Callable[[], float] = time.monotonic) -> None:
        self.heard: Mapping[str, str] = {}
        self._target = target
        self._now = now
        self._closing = threading.Event()
        self._sending = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        parts = urlsplit(target.endpoint)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"content-type": CONTENT_TYPE, "user-agent": f"spangate/{__version__}", **target.headers}
        if target.compression != "none":
            self._headers["content-encoding"] = target.compression

    def send(self, body: bytes) -> Result:
        """Tries until it is taken, refused for good, or the time is over."""
        with self._sending:
            if self._closing.is_set():
                return Result("failed", "closed")
            result = self._tries(_compressed(body, self._target.compression), self._now() + self._target.timeout)
            if self._closing.is_set():
                self._drop()
            return result

    def close(self) -> None:
        """Nothing more is sent. What is under way is broken off."""
        self._closing.set()
        if self._sending.acquire(blocking=False):
            self._drop()
            self._sending.release()
        else:
            self._break_off()

    def _tries(self, body: bytes, until: float) -> Result:
        result = Result("timeout", "no time left")
        for number in range(TRIES):
            result, wait = self._try(body, until)
            if not wait and result.reason not in ("unreachable", "unavailable"):
                break
            wait = wait or 2**number * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            if self._now() + wait >= until or self._closing.wait(wait):
                break
        return result

    def _try(self, body: bytes, until: float) -> tuple[Result, float]:
        """One request, and how long the collector asks to wait. A kept connection may have been closed by its other side: once more."""
        kept = self._connection is not None
        try:
            return self._exchange(body, lambda: max(until - self._now(), 0.001))
        except TimeoutError:
            self._drop()
            return Result("timeout", "no answer in time"), 0.0
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            return self._try(body, until) if kept and not self._closing.is_set() else (Result("unreachable", type(error).__name__), 0.0)

    def _exchange(self, body: bytes, left: Callable[[], float]) -> tuple[Result, float]:
        connection = self._connected(left())
        connection.response_class = partial(_answer, left)  # type: ignore[assignment]
        connection.request("POST", self._path, body, self._headers)
        answer = connection.getresponse()
        self.heard = {name.lower(): value for name, value in answer.getheaders()}
        said = answer.read(MAX_ANSWER)
        if answer.will_close or not answer.isclosed():
            self._drop()
        if 200 <= answer.status < 300:
            return Result("", "", _rejected(said)), 0.0
        if answer.status in RETRYABLE:
            return Result("unavailable", f"status {answer.status}"), _retry_after(answer.getheader("retry-after") or "")
        return Result("rejected", f"status {answer.status}"), 0.0

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._new(seconds)
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        return connection

    def _new(self, seconds: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        target = self._target
        context = ssl.create_default_context(cafile=target.certificate or None)
        if target.client_certificate:
            context.load_cert_chain(target.client_certificate, target.client_key or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=context)

    def _break_off(self) -> None:
        """Wake the thread that waits for an answer."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Within(io.RawIOBase):
    """What a socket receives in the seconds that are `left`: its own time limit would begin anew with each byte that drips in."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left
        self._received = sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        """All that HTTPResponse wants of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


def _answer(left: Callable[[], float], sock: Any, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Within(sock, left), *args, **kwargs)  # type: ignore[arg-type]


def _compressed(body: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(body, 1)
    return zlib.compress(body) if how == "deflate" else body


def _retry_after(said: str) -> float:
    """Seconds; 0 where the collector names none."""
    try:
        return max(float(said), 0.0) if said[:1].isdigit() else max(parsedate_to_datetime(said).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _rejected(said: bytes) -> int:
    """`partial_success.rejected_…` of an answer to any of the three signals."""
    try:
        inside = [value for number, value in protobuf.fields(said) if number == 1 and isinstance(value, bytes)]
        return max(0, next(_counts(inside), 0))  # nobody can leave out less than nothing
    except ValueError:
        return 0


def _counts(messages: list[bytes]) -> Iterator[int]:
    for message in messages:
        yield from (protobuf.int64(value) for number, value in protobuf.fields(message) if number == 1 and isinstance(value, int))
