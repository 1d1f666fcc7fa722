"""Large bodies: twenty of 30 MiB in the gateway at once, and what it does with more than it may hold.

All but the last piece of every body is sent before any is completed, and the mock reads on only after a while: each body is in
the gateway whole, first on its way in and then on its way out.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Barrier, Thread

from processes import MIB
from proxies import MODEL, Proxy

COUNT, SIZE = 20, 30 * MIB
LAST_PIECE = 1024
PATIENCE = 60.0  # seconds for any one read or write


@dataclass(frozen=True)
class Held:
    """What holding the bodies took. Memory in MiB."""

    in_flight: float
    at_rest: float
    peak: float
    answered: int
    asked: int
    seconds: float


@dataclass(frozen=True)
class Refusals:
    """What became of bodies that are together more than `max_bodies`."""

    asked: int
    fit: int
    refused: int
    answered: int
    room_again: bool

    @property
    def right(self) -> bool:
        return self.refused == self.asked - self.fit and self.answered == self.fit and self.room_again


def large_body(size: int, *, pause: int = 0) -> bytes:
    """A chat with one image in it, as large bodies are, of exactly this size."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,PAYLOAD"}}
    asked = {"model": MODEL, "user": f"bench:pause={pause}", "messages": [{"role": "user", "content": [image]}]}
    before, after = json.dumps(asked, separators=(",", ":")).encode().split(b"PAYLOAD")
    payload = b"iVBORw0KGgo/" * (size // 12 + 1)
    return before + payload[: size - len(before) - len(after)] + after


def head(proxy: Proxy, size: int) -> bytes:
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{proxy.port}",
        "Content-Type: application/json",
        f"Authorization: Bearer {proxy.key}",
        f"Content-Length: {size}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def begin(proxy: Proxy, size: int) -> socket.socket:
    """A connection on which the head of a request has been sent."""
    connection = socket.create_connection(("127.0.0.1", proxy.port), PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(head(proxy, size))
    return connection


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body; 0 for a connection that was closed without an answer."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = connection.recv(65536)
        if not more:
            return 0, got
        got += more
    said, _, body = got.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in said.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length and (more := connection.recv(65536)):
        body += more
    return int(said.split()[1]), body


def hold(proxy: Proxy, count: int = COUNT, size: int = SIZE, pause: int = 1500) -> Held:
    """Have `count` bodies in the proxy at once."""
    body = large_body(size, pause=pause)
    at_rest, began = proxy.peak_rss(), time.monotonic()
    together, statuses = Barrier(count), [0] * count

    def upload(index: int) -> None:
        with begin(proxy, size) as connection:
            try:
                connection.sendall(memoryview(body)[:-LAST_PIECE])
                together.wait(PATIENCE)
                connection.sendall(body[-LAST_PIECE:])
                statuses[index], _ = read_answer(connection)
            except OSError:
                together.abort()  # the others needn't wait for one that was turned away

    uploads = [Thread(target=upload, args=(index,)) for index in range(count)]
    for each in uploads:
        each.start()
    for each in uploads:
        each.join()
    in_flight = count * size / MIB
    return Held(in_flight, at_rest, proxy.peak_rss(), statuses.count(200), count, time.monotonic() - began)


def overfill(proxy: Proxy, limit: int, count: int = COUNT, size: int = SIZE) -> Refusals:
    """Announce more than the proxy may hold; the surplus has to be refused without a byte of its body having been sent."""
    body = large_body(size)
    waiting = [begin(proxy, size) for _ in range(count)]
    try:
        early = answered_within(waiting, 1.0)
        refused = sum(overloaded(each) for each in early)
        answered = sum(complete(each, body) for each in waiting if each not in early)
        with begin(proxy, size) as late:
            room_again = complete(late, body)
    finally:
        for each in waiting:
            each.close()
    return Refusals(count, limit // size, refused, answered, room_again)


def answered_within(connections: Sequence[socket.socket], seconds: float) -> list[socket.socket]:
    time.sleep(seconds)
    return select.select(connections, [], [], 0)[0]


def overloaded(connection: socket.socket) -> bool:
    status, body = read_answer(connection)
    return status == 503 and b'"overloaded"' in body


def complete(connection: socket.socket, body: bytes) -> bool:
    try:
        connection.sendall(body)
        return read_answer(connection)[0] == 200
    except OSError:
        return False
