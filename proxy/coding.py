"""Content codings of answers. We ask for `identity`; a provider that compresses all the same is decoded here, under a cap."""

from __future__ import annotations

import zlib
from typing import Protocol

from ..call.errors import UpstreamError

KNOWN = ("gzip", "deflate")
_PIECE = 1 << 20  # most bytes that one step inflates: a bomb comes out a piece at a time


class Bytes(Protocol):
    """A body as it comes: `read` gives the next piece, b"" at the clean end."""

    async def read(self) -> bytes: ...


class Coded(Bytes, Protocol):
    """An answer: a body, and the headers that tell its coding."""

    def header(self, name: bytes) -> bytes | None: ...


def coding_of(header: bytes | None) -> str:
    """The content coding in lower case; "" for identity."""
    name = (header or b"").decode("latin-1").strip().lower()
    return "" if name == "identity" else name.removeprefix("x-")


class Inflated:
    """A gzip or deflate body, decoded as it comes."""

    def __init__(self, body: Bytes, coding: str) -> None:
        self._body = body
        self._inflate = zlib.decompressobj(wbits=31 if coding == "gzip" else 15)
        self._left = b""
        self._raw_deflate = coding == "deflate"  # many servers send it without the zlib wrapper that RFC 9110 asks for

    async def read(self) -> bytes:
        while True:
            if self._left:
                return self._step(self._left) or await self.read()
            data = await self._body.read()
            if not data:
                return self._ended()
            piece = self._step(data)
            if piece:
                return piece

    def _step(self, data: bytes) -> bytes:
        try:
            piece = self._inflate.decompress(data, _PIECE)
        except zlib.error:
            if not self._raw_deflate:
                raise UpstreamError("The provider's answer is not what its Content-Encoding says.") from None
            self._inflate, self._raw_deflate = zlib.decompressobj(wbits=-15), False
            return self._step(data)
        self._raw_deflate = False
        self._left = self._inflate.unconsumed_tail
        return piece

    def _ended(self) -> bytes:
        if not self._inflate.eof:
            raise UpstreamError("The provider's compressed answer stopped before its end.")
        return b""


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
            raise UpstreamError(f"The provider's answer is longer than {limit >> 20} MiB.")
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def plain_body(answer: Coded) -> Bytes:
    """The body of an answer, decoded where its coding is one that we know."""
    coding = coding_of(answer.header(b"content-encoding"))
    return Inflated(answer, coding) if coding in KNOWN else answer
