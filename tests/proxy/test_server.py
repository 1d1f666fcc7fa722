"""proxy/server.py: connections and the patience with them, start and drain."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from spangate.proxy.endpoints import Running
from spangate.proxy.exchange import Exchange
from spangate.proxy.server import Address, Connection, Server
from spangate.proxy.settings import Server as Limits

from case import CHAT_WITH_M, Case, case
from gateway import until
from upstream import LAST_CHUNK, C, D, F, Play, chat_answer, chunk, echo, play, sse_head

HELLO = play(chat_answer("Hello"))
STREAM = {"stream": True}


def endless(size: int = 65536) -> Play:
    return play(sse_head(), *[chunk(C("x" * size))] * 2000)


async def full(it: Case) -> None:
    """Wait until a client's connection can take no more."""
    await until(lambda: any(isinstance(each, Connection) and each.writing_paused for each in it.running.app.server._http.connections))  # type: ignore[union-attr]


# ---- connections


async def test_a_connection_is_used_again(tmp_path: Path) -> None:
    async with case(tmp_path, HELLO) as it, it.line() as line:
        for body in ({}, STREAM, {}):
            it.rows += 1
            await line.send(it.request(body))
            answer = await line.answer()
            assert answer.status == 200
            assert answer.header("connection") != "close"
        assert it.running.app.server.connections == 1


async def test_requests_in_a_row_are_answered_in_order(tmp_path: Path) -> None:
    async with case(tmp_path, echo(rb"nonce-\d")) as it, it.line() as line:
        it.rows += 5
        await line.send(b"".join(it.request({"user": f"nonce-{number}"}) for number in range(5)))
        for number in range(5):
            assert b"nonce-%d" % number in (await line.answer()).body


async def test_a_reader_that_takes_nothing_is_dropped(tmp_path: Path) -> None:
    async with case(tmp_path, endless(), server={"write_timeout": "300ms"}) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request(STREAM))
        line.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (seen,) = await it.running.kept.count(1)
        assert (seen.outcome, seen.status) == ("aborted", 499)
        await it.up.requests[0].peer_closed.wait()


async def test_a_reader_that_takes_a_little_is_not(tmp_path: Path) -> None:
    pieces = [chunk(C("x" * 65536))] * 300
    async with (
        case(
            tmp_path,
            play(sse_head(), *pieces, chunk(F("stop")) + chunk(D) + LAST_CHUNK),
            server={"write_timeout": "300ms"},
        ) as it,
        it.line() as line,
    ):
        it.rows += 1
        await line.send(it.request(STREAM))
        read = b""
        while not read.endswith(LAST_CHUNK):
            read = read[-100:] + await line.reader.read(1 << 20)
            await asyncio.sleep(0.03)  # part of the scenario: it takes several times write_timeout in all
        assert D in read


async def test_a_reader_that_is_always_behind_is_not(tmp_path: Path) -> None:
    """Whenever somebody looks, as much waits for it as before, or more."""
    async with case(tmp_path, endless()) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request(STREAM))
        (connection,) = it.running.app.server._http.connections  # type: ignore[union-attr]
        assert isinstance(connection, Connection)
        now = asyncio.get_running_loop().time()
        for late in range(10):
            line.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await full(it)
            connection.look(now + late * 2 * connection.limits.write_timeout)
            assert connection.wire is not None
            assert not connection.wire.is_closing()
            line.writer.transport.resume_reading()  # type: ignore[attr-defined]
            written = connection.written
            while connection.written < written + (4 << 20):
                await line.reader.read(1 << 20)


async def test_a_reader_of_what_the_system_holds_is_not(tmp_path: Path) -> None:
    """The system takes megabytes for a slow client at a time; meanwhile nothing moves on our side."""
    loop, size = asyncio.get_running_loop(), 8 << 20
    async with case(tmp_path, play(chat_answer("x" * size)), server={"write_timeout": "100ms"}) as it:
        it.rows += 1
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            slow.setblocking(False)
            await loop.sock_connect(slow, (it.running.address.host, it.running.address.port))
            await loop.sock_sendall(slow, it.request())
            read = 0
            while read < size:
                piece = await loop.sock_recv(slow, 32768)
                assert piece, f"dropped after {read} bytes"
                read += len(piece)
                await asyncio.sleep(0.005)  # part of the scenario: it takes many times write_timeout in all


async def test_new_limits_are_for_new_connections(tmp_path: Path) -> None:
    async with case(tmp_path, HELLO) as it, it.line() as old:
        await old.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        await until(lambda: it.running.app.server.connections == 1)
        limits = it.running.app.config.server.model_copy(update={"header_timeout": 0.2})
        it.running.app.server.limit(limits)
        async with it.line() as new:
            await new.send(b"GET /healthz HTTP/1.1\r\n")
            assert (await new.answer()).status == 408
        await old.send(b"\r\n")
        assert (await old.answer()).status == 200


async def test_a_client_that_closes_its_side_has_left(tmp_path: Path) -> None:
    async with case(tmp_path, play(end="hold")) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request())
        await it.up.request(0)
        line.writer.write_eof()
        (seen,) = await it.running.kept.count(1)
        assert seen.outcome == "aborted"


# ---- what is no request

GARBLED = {
    "no version": b"GET /healthz HTTP/x\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a long line": b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "many lines": b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    "a long head": b"GET / HTTP/1.1\r\nHost: h\r\n" + b"".join(b"a: %b\r\n" % (b"x" * 5000) for _ in range(8)) + b"\r\n",
}


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("name", GARBLED)
async def test_what_the_parser_refuses_is_answered_in_our_shape(tmp_path: Path, name: str, version: bytes) -> None:
    async with case(tmp_path) as it, it.line() as line:
        await line.send(GARBLED[name].replace(b"HTTP/1.1", b"HTTP/" + version))
        told = await line.rest()
        if name == "no host" and version == b"1.0":
            assert told.startswith(b"HTTP/1.1 200 OK\r\n")
            return
        head, _, body = told.partition(b"\r\n\r\n")
        large = name in {"a long line", "many lines", "a long head"}
        status, code = (b"431 Request Header Fields Too Large", "headers_too_large") if large else (b"400 Bad Request", "invalid_request")
        assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert {b"server: spangate", b"content-type: application/json", b"connection: close"} <= set(head.split(b"\r\n"))
        error = json.loads(body)["error"]
        assert (error["code"], error["type"]) == (code, "invalid_request_error")
        assert error["doc_url"] == f"{it.running.address.url}/docs/errors/{code}"


async def test_a_refused_client_that_goes_on_sending_still_reads_why(tmp_path: Path) -> None:
    """Bytes that nobody takes would make the system reset the connection, and the answer would be lost."""
    async with case(tmp_path) as it, it.line() as line:
        await line.send(GARBLED["no host"])
        for _ in range(20):
            await line.send(b"x" * 50_000)
        assert (await line.answer()).status == 400
        assert await line.closed()


async def test_what_is_garbled_behind_a_request_is_refused_after_its_answer(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with case(tmp_path, play(go, chat_answer("Hello"))) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request())
        await it.up.request(0)
        await line.send(b"nothing of the kind\r\n\r\n")
        await until(lambda: any(each._messages for each in it.running.app.server._http.connections))  # type: ignore[union-attr]
        go.set()
        assert (await line.answer()).status == 200
        assert (await line.answer()).error["code"] == "invalid_request"
        assert await line.closed()


# ---- what follows a request


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "while it is answered"])
@pytest.mark.parametrize("begun", [b"G", b"GET /healthz HTTP/1.1\r\nHost: h\r\n"])
async def test_a_head_that_begins_behind_a_request_has_its_time_too(tmp_path: Path, begun: bytes, apart: bool) -> None:
    go = asyncio.Event()
    async with case(tmp_path, play(go, chat_answer("Hello")), server={"header_timeout": "200ms"}) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request() + (b"" if apart else begun))
        await it.up.request(0)
        if apart:
            await line.send(begun)
            await until(lambda: any(isinstance(each, Connection) and each.waiting for each in it.running.app.server._http.connections))  # type: ignore[union-attr]
        go.set()
        assert (await line.answer()).status == 200
        late = await line.answer()
        assert (late.status, late.error["code"], late.header("connection")) == (408, "request_timeout", "close")
        assert await line.closed()


async def test_a_connection_between_requests_has_more_time_than_a_head(tmp_path: Path) -> None:
    async with case(tmp_path, HELLO, server={"header_timeout": "100ms"}) as it, it.line() as line:
        for end in (b"", b"\r\n"):  # which old clients write behind a body
            it.rows += 1
            await line.send(it.request() + end)
            assert (await line.answer()).status == 200
            (connection,) = it.running.app.server._http.connections  # type: ignore[union-attr]
            assert isinstance(connection, Connection)
            connection.look(asyncio.get_running_loop().time() + 60)


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.2"])
async def test_requests_behind_an_upgrade_that_is_not_taken_are_answered(tmp_path: Path, protocol: str) -> None:
    upgrade = [("Connection", "Upgrade"), ("Upgrade", protocol)]
    async with case(tmp_path, echo(rb"nonce-\d")) as it, it.line() as line:
        it.rows += 4
        await line.send(b"".join(it.request({"user": f"nonce-{number}"}, headers=upgrade * (number < 3)) for number in range(4)))
        for number in range(4):
            assert b"nonce-%d" % number in (await line.answer()).body


async def test_what_follows_chunks_and_an_upgrade_can_not_be_told(tmp_path: Path) -> None:
    """The parser throws it away and says nothing of where it began: better no answer than one to half a request."""
    framing = [("Connection", "Upgrade"), ("Upgrade", "h2c"), ("Transfer-Encoding", "chunked")]
    async with case(tmp_path, HELLO) as it, it.line() as line:
        it.rows += 1
        body = json.dumps(CHAT_WITH_M).encode()
        chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        await line.send(it.request(chunked, headers=framing) + it.request())
        assert (await line.answer()).status == 200
        assert await line.closed()


# ---- start


def test_an_address_as_a_url() -> None:
    assert Address("127.0.0.1", 80).url == "http://127.0.0.1:80"
    assert Address("::1", 80).url == "http://[::1]:80"


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        address = it.running.address
        with pytest.raises(OSError, match="in use"):
            await it.running.app.server.start(address.host, address.port)


class Silent:
    """Nobody is answered."""

    def __init__(self) -> None:
        self.draining = False
        self.running: set[Running] = set()

    async def __call__(self, exchange: Exchange) -> None:
        raise AssertionError("nobody asked")


async def test_an_address_that_is_bound_is_taken_and_answers_once_it_listens() -> None:
    first, second = Server(Silent(), Limits()), Server(Silent(), Limits())
    address = await first.bind("127.0.0.1", 0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.host, address.port)
    await first.listen()
    with pytest.raises(OSError, match="in use"):
        await second.bind(address.host, address.port)
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()
    await first.drain(0)


# ---- drain


@pytest.mark.fault("CAN-10")
async def test_a_whole_answer_that_outlasts_the_drain_is_a_503(tmp_path: Path) -> None:
    async with case(tmp_path, play(end="hold")) as it:
        it.rows += 1
        async with it.line() as line, it.line() as idle:
            await line.send(it.request())
            await it.up.request(0)
            drain = asyncio.create_task(it.running.app.server.drain(0.1))
            answer = await line.answer()
            assert (answer.status, answer.error["code"]) == (503, "draining")
            assert await idle.closed()
            await drain
        (seen,) = it.running.kept.seen
        assert (seen.outcome, seen.status, seen.error_code) == ("failed", 503, "draining")
        await restarted(it)


@pytest.mark.fault("CAN-09")
async def test_a_client_is_given_its_time_to_take_what_was_written(tmp_path: Path) -> None:
    large = play(chat_answer("x" * (8 << 20)))
    async with case(tmp_path, large) as it:
        it.rows += 1
        async with it.line() as line:
            line.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await line.send(it.request())
            await full(it)
            drain = asyncio.create_task(it.running.app.server.drain(5))
            await until(lambda: it.running.app.endpoints.draining)
            line.writer.transport.resume_reading()  # type: ignore[attr-defined]
            answer = await line.answer()
            assert (answer.status, len(answer.json()["choices"][0]["message"]["content"])) == (200, 8 << 20)
            await drain
        await restarted(it)


@pytest.mark.fault("CAN-10")
async def test_a_drain_lasts_no_longer_for_a_client_that_reads_nothing(tmp_path: Path) -> None:
    async with case(tmp_path, endless()) as it:
        it.rows += 1
        async with it.line() as line:
            line.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await line.send(it.request(STREAM))
            await full(it)
            began = asyncio.get_running_loop().time()
            await it.running.app.server.drain(0.2)
            assert asyncio.get_running_loop().time() - began < 2.2
            assert it.running.app.server.connections == 0
        (seen,) = it.running.kept.seen
        assert (seen.outcome, seen.error_code) == ("failed", "draining")
        await restarted(it)


async def test_a_second_drain_does_no_harm(tmp_path: Path) -> None:
    async with case(tmp_path, HELLO) as it:
        assert (await it.ask(CHAT_WITH_M)).status == 200
        await it.running.app.server.drain(0)
        await it.running.app.server.drain(0)
        await restarted(it)


async def restarted(it: Case) -> None:
    """Listen again, so that what must hold after each case can be looked at."""
    app = it.running.app
    app.endpoints.draining = False
    it.running.address = await app.server.start(it.running.address.host, 0)
    with socket.create_connection((it.running.address.host, it.running.address.port)):
        pass
