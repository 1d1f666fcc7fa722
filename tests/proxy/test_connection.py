"""Framing: what counts as an answer, where it ends, and what a connection is good for after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spangate.call.errors import ProviderFault, UpstreamError, UpstreamIncomplete
from spangate.proxy.coding import whole
from spangate.proxy.upstream import READ_LIMIT, Answer, Origin, Upstream

from upstream import LAST_CHUNK, C, D, End, F, Misbehaving, Step, U, chunk, chunked, cut, http, play, raw_head, sse, sse_head

JSON = ("Content-Type", "application/json")
CHUNKED = ("Transfer-Encoding", "chunked")


@asynccontextmanager
async def client(*, read_limit: int = READ_LIMIT) -> AsyncIterator[Upstream]:
    upstream = Upstream(read_limit=read_limit)
    try:
        yield upstream
        assert upstream.in_use == 0
    finally:
        await upstream.aclose()
    assert upstream.open == 0


async def ask(upstream: Upstream, server: Misbehaving) -> Answer:
    return await upstream.send(b"POST", Origin.parse(server.base_url), "/chat/completions", [], [b"{}"], connect=5)


async def all_of(answer: Answer) -> tuple[bytes, ProviderFault | None]:
    """Every byte that came, and how it failed."""
    got = b""
    try:
        while piece := await answer.read():
            got += piece
    except ProviderFault as failure:
        return got, failure
    return got, None


WHOLE: dict[str, tuple[list[Step], End, int, bytes, bool]] = {
    # what comes, how it ends: status, body, whether the connection may be used again
    "length": ([http(200, [JSON], b"hello")], "keep", 200, b"hello", True),
    "length 0": ([http(200, [JSON])], "keep", 200, b"", True),
    "an error": ([http(503, [JSON], b"{}")], "keep", 503, b"{}", True),
    "two segments": ([*cut(http(200, [JSON], b"hello"), 30)], "keep", 200, b"hello", True),
    "chunks": ([sse(b"a", b"bc")], "keep", 200, b"abc", True),
    "chunks cut inside their lines": ([sse_head() + b"0", (b"2;e\r", 0.01), (b"\nhi\r\n0\r", 0.01), b"\n\r\n"], "keep", 200, b"hi", True),
    "chunks and a trailer": ([raw_head(200, [CHUNKED]) + b"2\r\nhi\r\n0\r\nX-Trace: 1\r\n\r\n"], "keep", 200, b"hi", True),
    "Chunked in capitals": ([raw_head(200, [("transfer-encoding", "Chunked")]) + chunked(b"hi")], "keep", 200, b"hi", True),
    "until the end": ([raw_head(200, [JSON]) + b"hel", (b"lo", 0.01)], "fin", 200, b"hello", False),
    "until the end, empty": ([raw_head(200)], "fin", 200, b"", False),
    "Connection: close": ([http(200, [JSON, ("Connection", "close")], b"x")], "fin", 200, b"x", False),
    "Connection: Close, not done": ([http(200, [JSON, ("Connection", "Close")], b"x")], "hold", 200, b"x", False),
    "HTTP/1.0": ([http(200, [JSON], b"x", version="1.0")], "hold", 200, b"x", False),
    "HTTP/1.0 keep-alive": ([http(200, [JSON, ("Connection", "keep-alive")], b"x", version="1.0")], "keep", 200, b"x", True),
    "204": ([raw_head(204)], "keep", 204, b"", True),
    "205 with length 0": ([http(205)], "keep", 205, b"", True),
    "304 with a length": ([raw_head(304, [("Content-Length", "5")])], "keep", 304, b"", True),
    "100 first": ([raw_head(100), http(200, [JSON], b"x")], "keep", 200, b"x", True),
    "103 in the same segment": ([raw_head(103, [("Link", "</a>")]) + http(200, [JSON], b"x")], "keep", 200, b"x", True),
    "an upgrade offered": ([http(200, [JSON, ("Upgrade", "h2c"), ("Connection", "Upgrade")], b"x")], "keep", 200, b"x", True),
    "a redirect": ([http(302, [("Location", "http://127.0.0.1:1/")], b"")], "keep", 302, b"", True),
    "bytes beyond a length": ([http(200, [JSON], b"hello") + b"junk"], "hold", 200, b"hello", False),
    "a second answer": ([http(200, [JSON], b"hello") + http(200, [JSON], b"other")], "hold", 200, b"hello", False),
    "bytes beyond the last chunk": ([sse(b"a") + b"HTTP/1.1"], "hold", 200, b"a", False),
    "bytes after Connection: close": ([http(200, [JSON, ("Connection", "close")], b"x") + b"y"], "hold", 200, b"x", False),
    "no reason phrase": ([b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx"], "keep", 200, b"x", True),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "end", "status", "body", "kept"), WHOLE.values(), ids=list(WHOLE))
async def test_a_whole_answer(steps: list[Step], end: End, status: int, body: bytes, kept: bool) -> None:
    async with Misbehaving(play(*steps, end=end)) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert answer.status == status
        assert await whole(answer, 1000) == body
        assert await answer.read() == b""
        answer.close()
        answer.close()
        assert (upstream.open, upstream.idle) == ((1, 1) if kept else (0, 0))
        if not kept:
            await server.connections[0].gone.wait() if end == "fin" else await server.connections[0].peer_closed.wait()


@pytest.mark.fault("HDR-07")
@pytest.mark.parametrize(
    "bodiless",
    [raw_head(204), raw_head(204, [CHUNKED]), raw_head(304, [("Content-Length", "5")]), raw_head(304), http(205), raw_head(204, [JSON])],
)
async def test_the_next_answer_after_one_without_a_body(bodiless: bytes) -> None:
    async with Misbehaving([play(bodiless), play(http(200, [JSON], b"next"))]) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await whole(answer, 10) == b""
        answer.close()
        answer = await ask(upstream, server)
        assert (answer.status, await whole(answer, 10)) == (200, b"next")
        answer.close()
        assert len(server.connections) == 1


@pytest.mark.parametrize("answer", [sse(C("日本🙂é"), F("stop"), U(7, 2), D), http(200, [JSON], C("x") * 2)], ids=["chunks", "length"])
async def test_an_answer_cut_at_every_byte(answer: bytes) -> None:
    def script(request: object) -> object:
        return play(*cut(answer, len(server.requests), 0.0005))

    async with Misbehaving(script) as server, client() as upstream:  # type: ignore[arg-type]
        reply = await ask(upstream, server)
        right = await whole(reply, 10_000)
        reply.close()
        for _ in range(2, len(answer)):
            reply = await ask(upstream, server)
            assert await whole(reply, 10_000) == right
            reply.close()
        assert len(server.connections) == 1


async def test_headers_keep_their_order_and_their_repeats() -> None:
    head = [("X-Trace", "1"), ("x-trace", "2"), ("X-Empty", ""), ("X-Odd", "\xff a  b")]
    async with Misbehaving(play(http(200, [*head, JSON], b"x"))) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert answer.headers[:4] == [(b"x-trace", b"1"), (b"x-trace", b"2"), (b"x-empty", b""), (b"x-odd", b"\xff a  b")]
        assert answer.header(b"x-trace") == b"1"
        assert answer.header(b"x-none") is None
        await whole(answer, 10)
        answer.close()


async def test_a_trailer_is_no_header() -> None:
    trailed = raw_head(200, [CHUNKED]) + b"2\r\nhi\r\n0\r\nX-Late: 1\r\n\r\n"
    async with Misbehaving(play(trailed)) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await whole(answer, 10) == b"hi"
        assert answer.headers == [(b"transfer-encoding", b"chunked")]
        answer.close()


MANY = [(f"X-{number}", "v" * 90) for number in range(700)]

BAD: dict[str, tuple[list[Step], str]] = {
    "no HTTP": ([b"SSH-2.0-OpenSSH_9.6\r\n"], "not HTTP"),
    "HTTP/0.9": ([b"<html>busy</html>"], "not HTTP"),
    "bare LF": ([b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"], "not HTTP"),
    "status 000": ([b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"], "not HTTP"),
    "status of two digits": ([b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"], "not HTTP"),
    "NUL in a value": ([b"HTTP/1.1 200 OK\r\nA: \0\r\nContent-Length: 0\r\n\r\n"], "not HTTP"),
    "space in a name": ([b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"], "not HTTP"),
    "a folded header": ([b"HTTP/1.1 200 OK\r\nA: 1\r\n b\r\nContent-Length: 0\r\n\r\n"], "not HTTP"),
    "switching protocols": ([raw_head(101, [("Upgrade", "x"), ("Connection", "Upgrade")])], "not HTTP"),
    "two lengths that differ": ([raw_head(200, [("Content-Length", "5"), ("Content-Length", "6")])], "not HTTP"),
    "a signed length": ([raw_head(200, [("Content-Length", "+5")])], "not HTTP"),
    "a list of lengths": ([raw_head(200, [("Content-Length", "5, 5")])], "not HTTP"),
    "length and chunks": ([raw_head(200, [("Content-Length", "5"), CHUNKED])], "not HTTP"),
    "chunks and length": ([raw_head(200, [CHUNKED, ("Content-Length", "5")])], "not HTTP"),
    "an unknown transfer coding": ([raw_head(200, [("Transfer-Encoding", "xchunked")])], "transfer coding"),
    "a transfer coding not asked for": ([raw_head(200, [("Transfer-Encoding", "gzip, chunked")])], "transfer coding"),
    "chunked twice": ([raw_head(200, [CHUNKED, CHUNKED])], "transfer coding"),
    "two content types that differ": ([http(200, [JSON, ("Content-Type", "text/html")], b"x")], "content types"),
    "a head of 70 KB in one header": ([raw_head(200, [("X", "v" * 70_000)])], "too large"),
    "a head of 70 KB in many headers": ([raw_head(200, MANY)], "too large"),
    "a header line without end": ([b"HTTP/1.1 200 OK\r\nX: ", *[(b"v" * 10_000, 0.001)] * 8], "too large"),
    "informational answers without end": ([(raw_head(100) * 1000, 0.001)] * 4, "too large"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "says"), BAD.values(), ids=list(BAD))
async def test_a_head_that_cannot_be_trusted(steps: list[Step], says: str) -> None:
    async with Misbehaving(play(*steps, end="hold")) as server, client() as upstream:
        with pytest.raises(UpstreamError, match=says) as caught:
            await ask(upstream, server)
        assert caught.value.status is None
        assert "\n" not in caught.value.message
        await (await server.connection()).peer_closed.wait()
        assert (upstream.open, upstream.resends, len(server.requests)) == (0, 0, 1)


async def test_a_head_just_within_its_limit() -> None:
    async with Misbehaving(play(*cut(http(200, [("X", "v" * 60_000), JSON], b"x"), 40_000))) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await whole(answer, 10) == b"x"
        answer.close()


async def test_equal_content_types_are_one() -> None:
    async with Misbehaving(play(http(200, [JSON, JSON], b"x"))) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await whole(answer, 10) == b"x"
        answer.close()


UNANSWERED: dict[str, tuple[list[Step], End]] = {
    "closed": ([], "fin"),
    "reset": ([], "rst"),
    "closed in the head": ([b"HTTP/1.1 200 OK\r\nContent-"], "fin"),
    "reset in the head": ([b"HTTP/1.1 200 OK\r\nContent-"], "rst"),
    "closed after 100": ([raw_head(100)], "fin"),
}


@pytest.mark.parametrize(("steps", "end"), UNANSWERED.values(), ids=list(UNANSWERED))
async def test_a_fresh_connection_that_ends_before_the_head(steps: list[Step], end: End) -> None:
    async with Misbehaving(play(*steps, end=end)) as server, client() as upstream:
        with pytest.raises(UpstreamIncomplete, match="before it answered"):
            await ask(upstream, server)
        assert (upstream.open, upstream.resends, len(server.requests)) == (0, 0, 1)


SHORT: dict[str, tuple[list[Step], End, bytes]] = {
    "a length cut": ([raw_head(200, [("Content-Length", "10")]) + b"hello"], "fin", b"hello"),
    "a length reset": ([raw_head(200, [("Content-Length", "10")]) + b"hello"], "rst", b"hello"),
    "a length without a byte": ([raw_head(200, [("Content-Length", "10")])], "fin", b""),
    "chunks cut": ([sse_head() + chunk(b"hello")], "fin", b"hello"),
    "chunks reset": ([sse_head() + chunk(b"hello")], "rst", b"hello"),
    "chunks cut in a chunk": ([sse_head() + chunk(b"hello")[:5]], "fin", b"he"),
    "chunks cut before the last line": ([sse_head() + chunk(b"hello") + LAST_CHUNK[:3]], "fin", b"hello"),
    "no chunk size": ([sse_head() + chunk(b"hello") + b"zz\r\n"], "hold", b"hello"),
    "a chunk longer than it says": ([sse_head() + b"5\r\nhello!\r\n"], "hold", b"hello"),
    "a trailer without end": ([sse_head() + chunk(b"hello") + b"0\r\nX: ", *[(b"v" * 10_000, 0.001)] * 8], "hold", b"hello"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "end", "came"), SHORT.values(), ids=list(SHORT))
async def test_an_answer_that_stops_early(steps: list[Step], end: End, came: bytes) -> None:
    async with Misbehaving(play(*steps, end=end)) as server, client() as upstream:
        answer = await ask(upstream, server)
        got, failure = await all_of(answer)
        assert got == came
        assert isinstance(failure, UpstreamIncomplete)
        with pytest.raises(UpstreamIncomplete):
            await answer.read()
        answer.close()
        assert upstream.open == 0


async def test_a_reset_where_only_the_end_says_how_long() -> None:
    go = asyncio.Event()
    async with Misbehaving(play(raw_head(200) + b"half", go, end="rst")) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await answer.read() == b"half"
        go.set()
        with pytest.raises(UpstreamIncomplete):
            await answer.read()
        answer.close()


async def test_pieces_that_came_together_are_one() -> None:
    async with Misbehaving(play(sse(*[b"event"] * 50))) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await answer.read() == b"event" * 50
        answer.close()  # read, and known to have ended
        assert upstream.idle == 1


async def test_each_piece_is_handed_on_when_it_comes() -> None:
    gates = [asyncio.Event() for _ in range(10)]
    steps = [step for gate in gates for step in (chunk(b"event"), gate)]
    async with Misbehaving(play(sse_head(), *steps, LAST_CHUNK)) as server, client() as upstream:
        answer = await ask(upstream, server)
        for gate in gates:
            assert await answer.read() == b"event"
            gate.set()
        assert await answer.read() == b""
        answer.close()


@pytest.mark.parametrize("size", [1000, 5_000_000])
async def test_a_whole_has_a_limit(size: int) -> None:
    async with Misbehaving(play(http(200, [JSON], b"x" * size))) as server, client() as upstream:
        answer = await ask(upstream, server)
        with pytest.raises(UpstreamError, match="longer than 999"):
            await whole(answer, 999)
        answer.close()


async def test_a_slow_reader_slows_its_upstream() -> None:
    offered, limit, receive = 20_000_000, 65536, 262144
    async with Misbehaving(play(http(200, [JSON], b"x" * offered))) as server, client(read_limit=limit) as upstream:
        answer = await ask(upstream, server)
        sizes = []
        while True:
            for _ in range(20):  # the loop may read as much as it wants
                await asyncio.sleep(0)
            if not (piece := await answer.read()):
                break
            sizes.append(len(piece))
        answer.close()
        assert sum(sizes) == offered
        assert max(sizes) <= limit + receive, "never more than the limit and one receive"
        assert upstream.idle == 1


async def test_a_reader_that_stops_leaves_the_rest_with_its_provider() -> None:
    async with Misbehaving(play(http(200, [JSON], b"x" * 200_000_000))) as server, client() as upstream:
        answer = await ask(upstream, server)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(await answer.read()) <= 2 * 262144
        answer.close()
        await server.connections[0].peer_closed.wait()
