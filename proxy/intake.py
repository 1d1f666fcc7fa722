"""Taking a request in: who calls, how much may come, and the body, under every limit of `server`.

The order is the point: a bad key, a compressed or too large body and a full house are answered before the body is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..call.errors import CallerFault, Refused
from .exchange import Exchange
from .settings import Server


class Full(Refused):
    """No room for another call now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="overloaded", headers={"retry-after": "1"})


@dataclass(slots=True)
class House:
    """What is in it at the moment: calls in flight, and bytes of request bodies held."""

    calls: int = 0
    body_bytes: int = 0


class Guest:
    """One call's share of the house. `leave` gives everything back, once."""

    __slots__ = ("_house", "_server", "size")

    def __init__(self, house: House, server: Server) -> None:
        if house.calls >= server.max_calls:
            raise Full("The gateway has as many calls in flight as it may; try again.")
        house.calls += 1
        self._house = house
        self._server = server
        self.size = 0

    def take(self, size: int) -> None:
        """`size` more bytes of a body are held.

        Raises:
            CallerFault: request_too_large.
            Full: all bodies together are too large.
        """
        if self.size + size > self._server.max_body:
            raise too_large(self._server.max_body)
        if self._house.body_bytes + size > self._server.max_bodies:
            raise Full("The gateway holds as many request bodies as it may; try again.")
        self._house.body_bytes += size
        self.size += size

    def leave(self) -> None:
        self._house.calls -= 1
        self._house.body_bytes -= self.size
        self.size = 0


def too_large(limit: int) -> CallerFault:
    return CallerFault(f"The request body is larger than {limit} bytes.", code="request_too_large")


async def read_all(exchange: Exchange, guest: Guest, server: Server) -> bytes:
    """The request's body.

    Raises:
        CallerFault: unsupported_encoding, request_too_large, request_timeout, or broken framing.
        Full: no room for it.
    """
    if any(coding.strip().lower() not in ("", "identity") for coding in exchange.headers.getall("Content-Encoding", [])):
        raise CallerFault("A request body must not be compressed; send it without Content-Encoding.", code="unsupported_encoding")
    if exchange.length is not None:
        guest.take(exchange.length)
    elif any(coding.strip().lower() != "chunked" for coding in exchange.headers.getall("Transfer-Encoding", [])):
        raise CallerFault("The only transfer coding is chunked.", param="transfer-encoding")
    if not exchange.arrived:
        exchange.ask_for_body(within=server.body_timeout)
    return await _pieces(exchange, guest, counted=exchange.length is not None)


async def _pieces(exchange: Exchange, guest: Guest, *, counted: bool) -> bytes:
    first = await exchange.read()
    if not counted:
        guest.take(len(first))
    elif len(first) == exchange.length:
        return first
    pieces = [first]
    while piece := await exchange.read():
        if not counted:
            guest.take(len(piece))
        pieces.append(piece)
    return b"".join(pieces)
