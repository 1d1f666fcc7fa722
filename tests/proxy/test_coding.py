"""Content codings: an answer that comes compressed all the same."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.errors import UpstreamError
from spangate.proxy.coding import Inflated, coding_of, plain_body, whole


class Pieces:
    """An answer that comes in these pieces."""

    def __init__(self, *pieces: bytes, coding: bytes | None = None) -> None:
        self.left = [piece for piece in pieces if piece]
        self.coding = coding

    async def read(self) -> bytes:
        return self.left.pop(0) if self.left else b""

    def header(self, name: bytes) -> bytes | None:
        return self.coding if name == b"content-encoding" else None


def bare(data: bytes) -> bytes:
    """Deflate without its wrapper, as many servers send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "deflate, bare": bare}


@given(st.binary(max_size=200), st.sampled_from(sorted(PACKERS)), st.data())
async def test_a_body_is_read_whatever_its_pieces(body: bytes, form: str, data: st.DataObject) -> None:
    packed = PACKERS[form](body)
    cuts = data.draw(st.lists(st.integers(0, len(packed)), max_size=5))
    pieces = [packed[start:end] for start, end in pairwise([0, *sorted(cuts), len(packed)])]
    assert await whole(Inflated(Pieces(*pieces), form.split(",")[0]), 1000) == body


@pytest.mark.parametrize("form", PACKERS)
async def test_byte_by_byte(form: str) -> None:
    packed = PACKERS[form](b"Hello, " * 50)
    assert await whole(Inflated(Pieces(*(packed[at : at + 1] for at in range(len(packed)))), form.split(",")[0]), 1000) == b"Hello, " * 50


@pytest.mark.parametrize("form", PACKERS)
async def test_what_has_come_is_given_at_once(form: str) -> None:
    """A compressed stream is still a stream: a flushed piece doesn't wait for the next."""
    packer = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}.get(form, -15))
    first = packer.compress(b"data: a\n\n") + packer.flush(zlib.Z_SYNC_FLUSH)
    answer = Pieces(first, packer.compress(b"data: b\n\n") + packer.flush())
    body = Inflated(answer, form.split(",")[0])
    assert await body.read() == b"data: a\n\n"
    assert len(answer.left) == 1
    assert [await body.read(), await body.read(), await body.read()] == [b"data: b\n\n", b"", b""]


@pytest.mark.parametrize("form", PACKERS)
async def test_a_bomb_comes_out_in_pieces(form: str) -> None:
    body = Inflated(Pieces(PACKERS[form](bytes(20 << 20))), form.split(",")[0])
    sizes = []
    while piece := await body.read():
        sizes.append(len(piece))
    assert sum(sizes) == 20 << 20
    assert max(sizes) <= 1 << 18


@pytest.mark.parametrize("packed", [gzip.compress(bytes(20 << 20)), gzip.compress(b"") * 500], ids=["a bomb", "nothing, often"])
async def test_what_comes_out_of_one_piece_leaves_the_loop_to_others(packed: bytes) -> None:
    reading = asyncio.create_task(whole(Inflated(Pieces(packed), "gzip"), 30 << 20))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.wait([reading], timeout=0)
    assert len(await reading) in (0, 20 << 20)
    assert turns > 10


async def test_a_bomb_ends_at_the_cap() -> None:
    answer = Pieces(gzip.compress(bytes(50 << 20)))
    with pytest.raises(UpstreamError, match="longer than 1MiB"):
        await whole(Inflated(answer, "gzip"), 1 << 20)


async def test_gzip_in_several_members_is_one_body() -> None:
    packed = gzip.compress(b"Hel") + gzip.compress(b"") + gzip.compress(b"lo")
    assert await whole(Inflated(Pieces(packed), "gzip"), 100) == b"Hello"
    assert await whole(Inflated(Pieces(*(packed[at : at + 1] for at in range(len(packed)))), "gzip"), 100) == b"Hello"


@pytest.mark.parametrize("form", PACKERS)
async def test_a_body_cut_short_says_so(form: str) -> None:
    packed = PACKERS[form](b"Hello")
    for end in range(len(packed)):
        with pytest.raises(UpstreamError, match="stopped before its end"):
            await whole(Inflated(Pieces(packed[:end]), form.split(",")[0]), 100)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b'{"choices":[]}', b"\xff" * 20, gzip.compress(b"Hello") + b"rubbish", gzip.compress(b"Hello") + b"\x1f"])
async def test_a_body_that_is_something_else_says_so(coding: str, body: bytes) -> None:
    with pytest.raises(UpstreamError, match=r"not what its Content-Encoding says|stopped before its end"):
        await whole(Inflated(Pieces(body), coding), 100)


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        (None, ""),
        (b"", ""),
        (b"identity", ""),
        (b" GZIP ", "gzip"),
        (b"x-gzip", "gzip"),
        (b"deflate", "deflate"),
        (b"br", "br"),
        (b"gzip, br", "gzip, br"),
        (b"x-own", "x-own"),
        (b"\xff", "\xff"),
    ],
)
def test_the_name_of_a_coding(header: bytes | None, coding: str) -> None:
    assert coding_of(header) == coding


async def test_only_a_known_coding_is_decoded() -> None:
    for coding in (None, b"identity"):
        answer = Pieces(b"as it is", coding=coding)
        assert plain_body(answer) is answer
    with pytest.raises(UpstreamError, match="coded as 'br'"):
        plain_body(Pieces(b"as it is", coding=b"br"))
    assert await whole(plain_body(Pieces(gzip.compress(b"Hi"), coding=b"gzip")), 10) == b"Hi"


async def test_a_whole_body_is_joined_up_to_its_limit() -> None:
    assert await whole(Pieces(), 0) == b""
    assert await whole(Pieces(b"Hel", b"lo"), 5) == b"Hello"
    with pytest.raises(UpstreamError, match="longer than 4"):
        await whole(Pieces(b"Hel", b"lo"), 4)
