"""proxy/intake.py: how much may come in. What goes over the wire with it is in tests/journeys/test_bodies.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from multidict import CIMultiDict

from spangate.call.errors import CallerFault
from spangate.proxy.callers import Headers
from spangate.proxy.intake import Full, Guest, House, read_all
from spangate.proxy.settings import Server

SMALL = Server(max_calls=2, max_body=100, max_bodies=150, body_timeout=0.05)


class Arriving:
    """A request whose body comes in these pieces; None: nothing more ever comes."""

    method, path, has_body, started, events, gone = "POST", "/", True, False, False, False
    extra: Mapping[str, str] = {}

    def __init__(self, *pieces: bytes | None, length: int | None = None, **headers: str) -> None:
        self.pieces = list(pieces)
        self.length = length
        self.headers: Headers = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
        self.asked = 0
        self.read_pieces = 0

    @property
    def arrived(self) -> bool:
        return None not in self.pieces

    async def read(self) -> bytes:
        self.read_pieces += 1
        piece = self.pieces.pop(0) if self.pieces else b""
        if piece is None:
            await asyncio.get_running_loop().create_future()
        return piece or b""

    def ask_for_body(self, *, within: float) -> None:
        self.asked += 1
        self.within = within

    async def start(self, status: int, headers: Mapping[str, str]) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def end(self, last: bytes = b"") -> None: ...
    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None: ...
    def close_after(self) -> None: ...
    def abort(self) -> None: ...


async def taken(exchange: Arriving, house: House | None = None) -> bytes:
    guest = Guest(house or House(), SMALL)
    try:
        return await read_all(exchange, guest, SMALL)
    finally:
        guest.leave()


def test_a_guest_gives_everything_back() -> None:
    house = House()
    first, second = Guest(house, SMALL), Guest(house, SMALL)
    first.take(60)
    first.take(40)
    second.take(50)
    assert (house.calls, house.body_bytes) == (2, 150)
    first.leave()
    assert (house.calls, house.body_bytes) == (1, 50)
    second.leave()
    assert (house.calls, house.body_bytes) == (0, 0)


def test_a_full_house_has_no_room() -> None:
    house = House()
    guests = [Guest(house, SMALL) for _ in range(2)]
    with pytest.raises(Full) as full:
        Guest(house, SMALL)
    assert (full.value.code, full.value.headers) == ("overloaded", {"retry-after": "1"})
    assert house.calls == 2
    guests[0].take(100)
    with pytest.raises(Full):
        guests[1].take(51)
    assert (house.body_bytes, guests[1].size) == (100, 0)


async def test_a_body_of_known_and_of_unknown_length() -> None:
    house = House()
    assert await taken(Arriving(b"ab", b"cd", length=4), house) == b"abcd"
    assert await taken(Arriving(b"abcd", length=4), house) == b"abcd"
    assert await taken(Arriving(b"ab", b"cd"), house) == b"abcd"
    assert await taken(Arriving(), house) == b""
    assert house == House()


async def test_a_body_too_large_is_refused_by_its_length_or_its_count() -> None:
    told, counted = Arriving(b"x" * 101, length=101), Arriving(b"x" * 60, b"x" * 60, b"x" * 60)
    for exchange, read in ((told, 0), (counted, 2)):
        with pytest.raises(CallerFault) as fault:
            await taken(exchange)
        assert fault.value.code == "request_too_large"
        assert exchange.read_pieces == read


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "br", "deflate, gzip", "x"])
async def test_a_coding_is_refused_before_anything_is_read(coding: str) -> None:
    exchange = Arriving(b"x", None, length=1, content_encoding=coding)
    with pytest.raises(CallerFault) as fault:
        await taken(exchange)
    assert (fault.value.code, exchange.read_pieces, exchange.asked) == ("unsupported_encoding", 0, 0)


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
async def test_identity_is_no_coding(coding: str) -> None:
    assert await taken(Arriving(b"x", length=1, content_encoding=coding)) == b"x"


async def test_chunked_is_the_only_transfer_coding() -> None:
    assert await taken(Arriving(b"x", transfer_encoding=" Chunked")) == b"x"
    for coding in ("gzip, chunked", "chunked, chunked", "x"):
        with pytest.raises(CallerFault) as fault:
            await taken(Arriving(b"x", None, transfer_encoding=coding))
        assert fault.value.param == "transfer-encoding"


class Coming(Arriving):
    """One whose body isn't all here yet."""

    arrived = False  # type: ignore[assignment]


async def test_the_rest_of_a_body_is_asked_for_within_the_limit() -> None:
    exchange = Coming(b"x", b"y", length=2)
    assert await taken(exchange) == b"xy"
    assert (exchange.asked, exchange.within) == (1, SMALL.body_timeout)
