"""Content codings of answers. We ask for `identity`; a provider that compresses all the same is decoded here, under a cap."""

from __future__ import annotations

import asyncio
import zlib
from typing import Protocol

from ..call.amounts import show_size
from ..call.errors import UpstreamError

KNOWN = ("gzip", "deflate")
_PIECE = 1 << 18  # most bytes that one step inflates: a bomb comes out a piece at a time


class Bytes(Protocol):
    """A body as it comes: `read` gives the next piece, b"" at the clean end."""

    async def read(self) -> bytes: ...


class Coded(Bytes, Protocol):
    """An answer: a body, and the headers that tell its coding."""

    def header(self, name: bytes) -> bytes | None: ...


def coding_of(header: bytes | None) -> str:
    """The content coding in lower case; "" for identity."""
    if not header:
        return ""
    name = header.decode("latin-1").strip().lower()
    return {"identity": "", "x-gzip": "gzip"}.get(name, name)


class Inflated:
    """A gzip or deflate body, decoded as it comes. A gzip body may be several, one after the other (RFC 1952, 2.2)."""

    def __init__(self, body: Bytes, coding: str) -> None:
        self._body = body
        self._coding = coding
        self._first = b""
        self._left = b""
        self._inflate: zlib._Decompress | None = None

    async def read(self) -> bytes:
        while data := self._left or await self._body.read():
            if self._left:  # nobody waits for the network: others get their turn
                await asyncio.sleep(0)
            piece = self._step(data)
            if piece:
                return piece
        return self._ended()

    def _step(self, data: bytes) -> bytes:
        if self._inflate is None or self._inflate.eof:
            self._first, self._left = self._first + data, b""
            if len(self._first) < 2:
                return b""  # the form shows in the first two bytes
            data, self._first = self._first, b""
            self._inflate = zlib.decompressobj(wbits=_form(self._coding, data))
        try:
            piece = self._inflate.decompress(data, _PIECE)
        except zlib.error:
            raise UpstreamError("The provider's answer is not what its Content-Encoding says.") from None
        self._left = self._inflate.unconsumed_tail or self._inflate.unused_data
        return piece

    def _ended(self) -> bytes:
        rest = self._inflate.flush() if self._inflate else b""  # a few bytes, if the last piece was full to the brim
        if self._first or self._inflate is None or not self._inflate.eof:
            raise UpstreamError("The provider's compressed answer stopped before its end.")
        return rest


def _form(coding: str, start: bytes) -> int:
    """The wbits of zlib: many servers send deflate without the wrapper that RFC 9110 asks for."""
    if coding == "gzip":
        return 31
    wrapped = start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    return 15 if wrapped else -15


async def whole(body: Bytes, limit: int) -> bytes:
    """All of a body.

    Raises:
        UpstreamError: it is longer than `limit` bytes.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := await body.read():
        size += len(piece)
        if size > limit:
            raise UpstreamError(f"The provider's answer is longer than {show_size(limit)}.")
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def plain_body(answer: Coded) -> Bytes:
    """The body of an answer that we have to read, decoded.

    Raises:
        UpstreamError: it is in a coding that we don't know.
    """
    coding = coding_of(answer.header(b"content-encoding"))
    if coding and coding not in KNOWN:
        raise UpstreamError(f"The provider's answer is coded as {coding[:20]!r}, which was not asked for.")
    return Inflated(answer, coding) if coding else answer
