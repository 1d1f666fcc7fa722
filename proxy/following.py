"""What follows a request on its connection: where each one ends among the bytes that came. Pure.

aiohttp's parser keeps that to itself, and two things depend on it: the patience with a head that began before the request in front of
it was answered, and what its parser throws away behind an `Upgrade` to a protocol that it doesn't know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .callers import Headers

_END = b"\r\n\r\n"


class Message(Protocol):
    """The head of a request, parsed."""

    headers: Headers
    chunked: bool


class Payload(Protocol):
    """Its body, as far as it has come."""

    def is_eof(self) -> bool: ...


class Following:
    """Told of all bytes of one connection, and of the heads that they completed."""

    __slots__ = ("_chunks", "_due", "_seam")

    def __init__(self) -> None:
        self._seam = b""  # the last bytes of a head that has begun: its end may lie across two reads
        self._due = 0  # bytes of a body that are still to come
        self._chunks: Payload | None = None  # a body whose length only its end tells

    def feed(self, data: bytes, heads: Sequence[tuple[Message, Payload]]) -> bytes | None:
        """What of `data` stands behind the last request that it completed; None: something does, but not even the parser can be asked
        where that begins."""
        behind = self._behind_these(data, heads) if heads else self._behind_the_body(data)
        self._seam = b"" if behind is None else (behind if heads else self._seam + behind)[-len(_END) :]
        return behind

    def _behind_the_body(self, data: bytes) -> bytes | None:
        if self._chunks is not None:
            return self._behind_chunks(data, self._chunks)
        due, self._due = self._due, max(self._due - len(data), 0)
        return data[due:]

    def _behind_chunks(self, data: bytes, body: Payload) -> bytes | None:
        if not body.is_eof():
            self._chunks = body
            return b""
        self._chunks = None
        return b"" if _END.endswith(data[-len(_END) :]) else None  # what has only begun ends otherwise

    def _behind_these(self, data: bytes, heads: Sequence[tuple[Message, Payload]]) -> bytes | None:
        self._chunks, self._due = None, 0
        text, at = self._seam + data, 0
        for number, (head, body) in enumerate(heads, 1):
            while text.startswith(b"\r\n", at):  # RFC 9112, 2.2: to be ignored before a request
                at += 2
            at = text.find(_END, at) + len(_END)
            if head.chunked:
                return self._behind_chunks(data, body) if number == len(heads) else None
            if at < len(_END):
                return None
            at += int(head.headers.get("Content-Length") or 0)
        self._due = max(at - len(text), 0)
        return text[at:]
