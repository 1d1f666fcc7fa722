"""Requests whose length two servers would read differently, with either of aiohttp's parsers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from case import CHAT, KEY, Case, case
from house.source import ROOT
from upstream import chat_answer, play

BODY = b'{"model":"m","messages":[]}'
NEXT = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def head(*lines: bytes, host: bytes = b"Host: 127.0.0.1\r\n") -> bytes:
    key = f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n".encode()
    return b"POST " + CHAT.encode() + b" HTTP/1.1\r\n" + host + key + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


LENGTH = b"Content-Length: %d" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked"
WHOLE = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

REFUSED = {
    "both": head(LENGTH, CHUNKED) + WHOLE,
    "both, reversed": head(CHUNKED, LENGTH) + WHOLE,
    "two lengths": head(b"Content-Length: 5", b"Content-Length: 6") + BODY,
    "a list of lengths": head(b"Content-Length: 5, 6") + BODY,
    "a signed length": head(b"Content-Length: +27") + BODY,
    "a negative length": head(b"Content-Length: -1") + BODY,
    "a length with an underscore": head(b"Content-Length: 2_7") + BODY,
    "a hexadecimal length": head(b"Content-Length: 0x1b") + BODY,
    "a length with a space": head(b"Content-Length: 2 7") + BODY,
    "an empty length": head(b"Content-Length:") + BODY,
    "a length of other digits": head("Content-Length: ²⁷".encode()) + BODY,
    "xchunked": head(b"Transfer-Encoding: xchunked") + WHOLE,
    "chunked, identity": head(b"Transfer-Encoding: chunked, identity") + WHOLE,
    "identity": head(b"Transfer-Encoding: identity", LENGTH) + BODY,
    "twice chunked": head(CHUNKED, CHUNKED) + WHOLE,
    "a space before the colon": head(b"Transfer-Encoding : chunked") + WHOLE,
    "a tab before the colon": head(b"Content-Length\t: 27") + BODY,
    "a folded header": head(b"Transfer-Encoding:", b" chunked") + WHOLE,
    "a header without a name": head(b": chunked", LENGTH) + BODY,
    "a header without a colon": head(b"Transfer-Encoding", LENGTH) + BODY,
    "a control character in a name": head(b"Transfer\x0b-Encoding: chunked", LENGTH) + BODY,
    "NUL in a value": head(b"X-A: a\x00b", LENGTH) + BODY,
    "a bare CR in a value": head(b"X-A: a\rX-B: b", LENGTH) + BODY,
    "two hosts": head(b"Host: evil", LENGTH) + BODY,
    "no host": head(LENGTH, host=b"") + BODY,
    "a space in the path": head(LENGTH).replace(b"completions HTTP", b"comple tions HTTP") + BODY,
    "another version": head(LENGTH).replace(b"HTTP/1.1", b"HTTP/1.10") + BODY,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
    "not HTTP": b"hello there\r\n\r\n",
    "bare line feeds": head(LENGTH).replace(b"\r\n", b"\n") + BODY,
}

# A head that is well, and a body whose chunks are not: it is answered as the call that it is.
BROKEN = {
    "0x before a size": b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "a plus before a size": b"+%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "a minus before a size": b"-1\r\n%b\r\n0\r\n\r\n" % BODY,
    "an underscore in a size": b"1_b\r\n%b\r\n0\r\n\r\n" % BODY,
    "no size": b"\r\n%b\r\n0\r\n\r\n" % BODY,
    "a size beyond all": b"ffffffffffffffffff\r\n%b\r\n0\r\n\r\n" % BODY,
    "a line feed in an extension": b"%x;a\nb\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "a line feed after a size": b"%x\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    "a chunk longer than its size": b"5\r\n%b\r\n0\r\n\r\n" % BODY,
    "a chunk shorter than its size": b"40\r\n%b\r\n0\r\n\r\n" % BODY,
}


@pytest.mark.fault("HDR-13")
@pytest.mark.parametrize("name", REFUSED)
async def test_what_could_be_read_two_ways_is_refused(tmp_path: Path, name: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        await refused(it, REFUSED[name], rows=0)


@pytest.mark.fault("HDR-13")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_body_of_broken_chunks_is_refused(tmp_path: Path, name: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), server={"body_timeout": "1s"}) as it:
        await refused(it, head(CHUNKED) + BROKEN[name], rows=None)


async def refused(it: Case, data: bytes, *, rows: int | None) -> None:
    """Answered with 400 in our shape (a body that never ends: 408), then closed: what comes after it is nobody's request."""
    async with it.line() as line:
        await line.send(data + NEXT)
        answer = await line.answer()
        assert answer.status in ({400} if rows == 0 else {400, 408})
        assert answer.error["code"] in {"invalid_request", "request_timeout"}
        assert answer.header("connection") == "close"
        assert await line.closed()
    it.rows += len(it.running.kept.seen) if rows is None else rows
    assert len(it.running.kept.seen) <= 1
    assert it.up.requests == []


@pytest.mark.fault("HDR-13")
async def test_a_length_beyond_all_is_refused(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        answer = await it.raw(head(b"Content-Length: 99999999999999999999999") + BODY)
        assert (answer.status, answer.header("connection")) in {(400, "close"), (413, "close")}  # one parser knows such a number
        it.rows += len(it.running.kept.seen)


@pytest.mark.fault("HDR-13")
async def test_what_can_be_read_one_way_only_is_taken(tmp_path: Path) -> None:
    good = [
        head(LENGTH) + BODY,
        head(CHUNKED) + WHOLE,
        head(b"transfer-ENCODING:   Chunked  ") + WHOLE,
        head(CHUNKED) + b"%x;name=value\r\n%b\r\n000\r\n\r\n" % (len(BODY), BODY),
        head(CHUNKED, b"Trailer: x-late") + WHOLE[:-2] + b"X-Late: 1\r\n\r\n",
        b"\r\n" + head(LENGTH) + BODY,
    ]
    async with case(tmp_path, play(chat_answer("Hello"))) as it, it.line() as line:
        for data in good:
            it.rows += 1
            await line.send(data)
            assert (await line.answer()).status == 200
        assert [request.body for request in it.up.requests] == [BODY] * len(good)
        assert {request.header(b"x-late") for request in it.up.requests} == {None}


@pytest.mark.fault("HDR-13")
@pytest.mark.timeout(120)
def test_the_same_without_aiohttps_extensions() -> None:
    """Where no C compiler was at hand aiohttp parses in Python, and reads some of these otherwise."""
    others = "not test_the_same_without_aiohttps_extensions"
    pytest_command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider", "-k", others, __file__]
    environment = os.environ | {"AIOHTTP_NO_EXTENSIONS": "1"}
    ran = subprocess.run(pytest_command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert int(ran.stdout.rpartition(" passed")[0].split()[-1]) > len(REFUSED)
