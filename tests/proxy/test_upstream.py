"""Sending: what goes out, which connection it goes out on, and that nothing stays open."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import uvloop

from spangate.call.errors import ProviderFault, UpstreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from spangate.proxy.coding import whole
from spangate.proxy.upstream import READ_LIMIT, Answer, Body, Headers, Origin, Reply, Sender, Upstream

from upstream import (
    LAST_CHUNK,
    C,
    D,
    End,
    F,
    Misbehaving,
    Play,
    Request,
    Script,
    chat_answer,
    chunk,
    echo,
    error,
    http,
    play,
    refusing_port,
    self_signed,
    sse,
    sse_head,
)

JSON = ("Content-Type", "application/json")
OK = http(200, [JSON], b"ok")
HEADERS = [(b"authorization", b"Bearer sk-1"), (b"content-type", b"application/json"), (b"accept-encoding", b"identity")]
MIB = 1024 * 1024


@asynccontextmanager
async def client(*, keepalive: float = 30.0, max_idle: int = 256, read_limit: int = READ_LIMIT) -> AsyncIterator[Upstream]:
    """An Upstream that is seen to leave nothing open."""
    upstream = Upstream(keepalive=keepalive, max_idle=max_idle, read_limit=read_limit)
    try:
        yield upstream
        assert upstream.in_use == 0
    finally:
        await upstream.aclose()
    assert (upstream.open, upstream.idle) == (0, 0)


async def ask(upstream: Upstream, server: Misbehaving, body: Body = (b"{}",), *, headers: Headers = (), connect: float = 5) -> Answer:
    return await upstream.send(b"POST", Origin.parse(server.base_url), "/chat/completions", headers, body, connect=connect)


async def asked(upstream: Upstream, server: Misbehaving, body: Body = (b"{}",)) -> bytes:
    """One exchange from its beginning to its end."""
    answer = await ask(upstream, server, body)
    try:
        return await whole(answer, MIB)
    finally:
        answer.close()


def within(seconds: float) -> asyncio.Timeout:
    return asyncio.timeout(seconds)


# what goes out


async def test_the_request_on_the_wire() -> None:
    async with Misbehaving(play(OK)) as server, client() as upstream:
        answer = await ask(upstream, server, [b'{"a":', memoryview(b"1}")], headers=HEADERS)
        await whole(answer, 10)
        answer.close()
        host = f"127.0.0.1:{server.port}".encode()
        assert server.requests[0].raw == (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: %b\r\nauthorization: Bearer sk-1\r\ncontent-type: application/json\r\n"
            b'accept-encoding: identity\r\ncontent-length: 7\r\n\r\n{"a":1}' % host
        )


@pytest.mark.parametrize(("method", "length"), [(b"GET", None), (b"POST", b"0"), (b"DELETE", b"0")])
async def test_a_request_without_a_body(method: bytes, length: bytes | None) -> None:
    async with Misbehaving(play(OK)) as server, client() as upstream:
        answer = await upstream.send(method, Origin.parse(server.base_url), "/models?limit=1", [], [], connect=5)
        await whole(answer, 10)
        answer.close()
        assert (server.requests[0].path, server.requests[0].header(b"content-length")) == ("/v1/models?limit=1", length)


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer a\r\nX-Admin: 1"),
        (b"authorization", b"Bearer a\n"),
        (b"authorization", b"Bearer\ra"),
        (b"authorization", b"Bearer \0"),
        (b"x\r\nx-admin", b"1"),
        (b"Host", b"evil.example"),
        (b"content-length", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"connection", b"close"),
    ],
)
async def test_a_header_that_would_shape_the_request(header: tuple[bytes, bytes]) -> None:
    async with Misbehaving(play(OK)) as server, client() as upstream:
        with pytest.raises(ValueError, match="header"):
            await ask(upstream, server, headers=[*HEADERS, header])
        assert (server.connections, upstream.open) == ([], 0)


@pytest.mark.parametrize("path", ["models", "/a b", "/a\r\nx: y", "/\x00", "/é", ""])
async def test_a_path_that_is_none_of_ours(path: str) -> None:
    async with client() as upstream:
        with pytest.raises(AssertionError):
            await upstream.send(b"GET", Origin.parse("http://127.0.0.1:1"), path, [], [], connect=1)


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1, 256 * 1024 - 1, 3 * MIB + 7])
async def test_bodies_of_any_size(size: int) -> None:
    body = random.Random(size).randbytes(size)
    async with Misbehaving(play(OK)) as server, client() as upstream:
        bodies: list[Body] = [[body], [memoryview(body)], [body[:5], memoryview(body)[5:70_000], b"", body[70_000:]]]
        for parts in bodies:
            assert await asked(upstream, server, parts) == b"ok"
            assert server.requests[-1].body == body
        assert (len(server.connections), upstream.idle) == (1, 1)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_large_body_is_not_copied(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    body = memoryview(bytes(30 * MIB))

    async def sent_to_nobody() -> int:
        async with Misbehaving(mute=True) as server, client() as upstream:
            tracemalloc.start()
            sending = asyncio.create_task(ask(upstream, server, [body]))
            await server.connection()
            for _ in range(500):
                await asyncio.sleep(0)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert upstream.in_use == 1
            sending.cancel()
            await asyncio.wait([sending])
            return peak

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(sent_to_nobody()) < 2 * MIB


# answers that come early


@pytest.mark.parametrize("status", [401, 413])
@pytest.mark.parametrize("end", ["hold", "fin"])
async def test_an_answer_before_the_body_is_sent(status: int, end: End) -> None:
    async with Misbehaving(play(error(status), end=end), early=True) as server, client() as upstream:
        for round in range(30):
            answer = await ask(upstream, server, [bytes(30 * MIB)])
            assert answer.status == status
            assert b'"error"' in await whole(answer, 1000)
            answer.close()
            assert upstream.open == 0
            assert (await server.connection(round)).received < 30 * MIB


async def test_a_refusal_that_resets_us_while_we_send() -> None:
    """The server runs in a thread of its own, so that its answer and its reset may come between a read and a write."""
    port, stop = asyncio.get_running_loop().create_future(), threading.Event()
    loop = asyncio.get_running_loop()

    async def serve() -> None:
        async with Misbehaving(play(error(413), end="fin"), early=True) as server:
            loop.call_soon_threadsafe(port.set_result, server.port)
            await asyncio.to_thread(stop.wait)

    async def lane(origin: Origin) -> None:
        for _ in range(25):
            answer = await upstream.send(b"POST", origin, "/x", [], [bytes(30 * MIB)], connect=5)
            assert answer.status == 413
            assert b'"error"' in await whole(answer, 1000)
            answer.close()

    serving = asyncio.create_task(asyncio.to_thread(asyncio.run, serve()))
    try:
        async with client() as upstream, asyncio.TaskGroup() as lanes:
            origin = Origin.parse(f"http://127.0.0.1:{await port}")
            for _ in range(8):
                lanes.create_task(lane(origin))
    finally:
        stop.set()
        await serving


async def test_an_early_answer_with_its_own_body_to_come() -> None:
    async with (
        Misbehaving(play(sse_head(), chunk(b"more"), (chunk(b" later"), 0.02), LAST_CHUNK, end="hold"), early=True) as server,
        client() as upstream,
    ):
        answer = await ask(upstream, server, [bytes(30 * MIB)])
        assert await whole(answer, 1000) == b"more later"
        answer.close()
        assert upstream.open == 0


# the pool


async def test_the_last_connection_in_is_the_first_out() -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    def script(request: Request) -> Play:
        return play(gates[int(request.body)], OK) if request.body.isdigit() else play(OK)

    async with Misbehaving(script) as server, client() as upstream:
        first = asyncio.create_task(asked(upstream, server, [b"0"]))
        await server.request(0)
        second = asyncio.create_task(asked(upstream, server, [b"1"]))
        await server.request(1)
        assert (upstream.open, upstream.in_use, upstream.idle) == (2, 2, 0)
        gates[0].set()
        await first
        gates[1].set()
        await second
        assert (upstream.open, upstream.in_use, upstream.idle) == (2, 0, 2)
        await asked(upstream, server)
        await asked(upstream, server)
        assert [server.connections.index(request.connection) for request in server.requests] == [0, 1, 1, 1]


async def test_origins_do_not_share_connections() -> None:
    async with Misbehaving(play(OK)) as one, Misbehaving(play(OK)) as other, client() as upstream:
        for server in (one, other, one, other):
            await asked(upstream, server)
        assert (len(one.connections), len(other.connections), upstream.idle) == (1, 1, 2)


async def test_no_more_wait_than_max_idle() -> None:
    async with Misbehaving(play(OK)) as one, Misbehaving(play(OK)) as other, client(max_idle=1) as upstream:
        await asked(upstream, one)
        await asked(upstream, other)
        assert upstream.idle == 1
        await one.connections[0].peer_closed.wait()
        await asked(upstream, other)
        assert len(other.connections) == 1


async def test_an_idle_connection_expires() -> None:
    async with Misbehaving(play(OK)) as server, client(keepalive=0.05) as upstream:
        await asked(upstream, server)
        assert upstream.idle == 1
        await server.connections[0].peer_closed.wait()
        assert upstream.open == 0
        await asked(upstream, server)
        assert (len(server.connections), upstream.resends) == (2, 0)


@pytest.mark.parametrize("steps", [[(b"HTTP/1.1 200 OK\r\n", 0.01)], [(b"x", 0.01)]], ids=["an answer", "a byte"])
async def test_bytes_that_nobody_asked_for(steps: list[tuple[bytes, float]]) -> None:
    async with Misbehaving([play(OK, *steps, end="hold"), play(OK)]) as server, client() as upstream:
        await asked(upstream, server)
        assert upstream.idle == 1
        await server.connections[0].peer_closed.wait()
        assert upstream.idle == 0
        assert await asked(upstream, server) == b"ok"
        assert upstream.resends == 0


async def test_an_answer_left_half_read() -> None:
    async with Misbehaving([play(sse_head() + chunk(b"half"), end="hold"), play(OK)]) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert await answer.read() == b"half"
        answer.close()
        assert upstream.open == 0
        await server.connections[0].peer_closed.wait()
        with pytest.raises(UpstreamIncomplete):
            await answer.read()
        assert await asked(upstream, server) == b"ok"


async def test_aclose_leaves_an_answer_to_its_reader() -> None:
    go = asyncio.Event()
    async with Misbehaving(play(sse_head(), go, b"2\r\nhi\r\n0\r\n\r\n")) as server, client() as upstream:
        answer = await ask(upstream, server)
        await upstream.aclose()
        assert upstream.in_use == 1
        go.set()
        assert await whole(answer, 10) == b"hi"
        answer.close()
        assert upstream.open == 0, "a closed pool keeps nothing"


async def test_aclose_waits_until_the_sockets_are_gone() -> None:
    async with Misbehaving(play(OK)) as server, client() as upstream:
        await asyncio.gather(*[asked(upstream, server) for _ in range(5)])
        assert upstream.idle == 5
        await upstream.aclose()
        for connection in server.connections:
            await connection.peer_closed.wait()


# the one resend


@pytest.mark.fault("RET-08")
async def test_an_upstream_that_closes_idle_connections() -> None:
    async with Misbehaving(play(OK), idle_close=0.01) as server, client() as upstream:
        for number in range(50):
            assert await asked(upstream, server) == b"ok"
            await server.connections[-1].gone.wait()  # closed there: whether we have seen it is the race
            assert len(server.requests) == number + 1


@pytest.mark.fault("RET-08")
async def test_an_upstream_that_says_keep_alive_and_closes() -> None:
    async with Misbehaving(play(OK, end="fin")) as server, client() as upstream:
        for _ in range(50):
            assert await asked(upstream, server) == b"ok"


def second_time(what: Play) -> Script:
    """A good answer to the first request of each connection; `what` to the second."""
    seen: set[object] = set()

    def script(request: Request) -> Play:
        if request.connection in seen:
            return what
        seen.add(request.connection)
        return play(OK)

    return script


@pytest.mark.fault("RET-08")
@pytest.mark.parametrize("end", ["fin", "rst"])
@pytest.mark.parametrize("body", [b"{}", bytes(3 * MIB)], ids=["small", "large"])
async def test_a_reused_connection_found_closed(end: End, body: bytes) -> None:
    async with Misbehaving(second_time(play(end=end))) as server, client() as upstream:
        assert await asked(upstream, server, [body]) == b"ok"
        assert await asked(upstream, server, [body]) == b"ok"
        assert (upstream.resends, len(server.connections)) == (1, 2)
        assert [len(request.body) for request in server.requests] == [len(body)] * 3


async def test_no_resend_once_a_byte_of_the_answer_came() -> None:
    async with Misbehaving(second_time(play(b"H", end="fin"))) as server, client() as upstream:
        await asked(upstream, server)
        with pytest.raises(UpstreamIncomplete):
            await asked(upstream, server)
        assert (upstream.resends, len(server.requests)) == (0, 2)


async def test_one_resend_and_no_more() -> None:
    async with Misbehaving([play(OK), play(end="fin")]) as server, client() as upstream:
        await asked(upstream, server)
        with pytest.raises(UpstreamIncomplete, match="before it answered"):
            await asked(upstream, server)
        assert (upstream.resends, len(server.requests), upstream.open) == (1, 3, 0)


async def test_a_resend_passes_over_the_other_idle_connections() -> None:
    async with Misbehaving(second_time(play(end="rst"))) as server, client() as upstream:
        await asyncio.gather(*[asked(upstream, server) for _ in range(4)])
        assert await asked(upstream, server) == b"ok"
        assert (upstream.resends, len(server.connections)) == (1, 5)


async def test_a_slow_answer_is_never_asked_for_twice() -> None:
    async with Misbehaving(play(end="hold")) as server, client() as upstream:
        with pytest.raises(TimeoutError):
            async with within(0.05):
                await ask(upstream, server)
        await server.requests[0].peer_closed.wait()
        assert len(server.requests) == 1


# no connection


async def test_a_refused_connection() -> None:
    async with client() as upstream:
        port = refusing_port()
        with pytest.raises(UpstreamUnreachable) as caught:
            await upstream.send(b"POST", Origin.parse(f"http://127.0.0.1:{port}"), "/x", HEADERS, [], connect=1)
        assert caught.value.message == "The provider can't be reached: connection refused."
        assert str(port) in caught.value.detail
        assert upstream.open == 0


async def test_a_name_that_both_families_refuse() -> None:
    async with client() as upstream:
        with pytest.raises(UpstreamUnreachable, match="connection refused"):
            await upstream.send(b"POST", Origin.parse(f"http://localhost:{refusing_port()}"), "/x", [], [], connect=5)


async def test_a_name_that_does_not_resolve() -> None:
    async with client() as upstream:
        with pytest.raises(UpstreamUnreachable, match="host name does not resolve"):
            await upstream.send(b"POST", Origin.parse("http://nobody.invalid"), "/x", [], [], connect=10)


async def test_a_black_hole_takes_no_longer_than_the_connect_limit() -> None:
    loop = asyncio.get_running_loop()
    async with Misbehaving(black_hole=True) as hole, Misbehaving(play(OK)) as server, client() as upstream:
        began = loop.time()
        lost = asyncio.create_task(ask(upstream, hole, connect=0.3))
        assert await asked(upstream, server) == b"ok"
        assert loop.time() - began < 0.25, "others are not held up"
        with pytest.raises(UpstreamTimeout) as caught:
            await lost
        assert caught.value.limit == "connect"
        assert 0.25 < loop.time() - began < 1


async def test_a_mute_tls_server_takes_no_longer_than_the_connect_limit() -> None:
    async with Misbehaving(play(end="hold")) as server, client() as upstream:
        origin = Origin.parse(server.base_url.replace("http", "https"))
        with pytest.raises(UpstreamTimeout) as caught:
            await upstream.send(b"POST", origin, "/x", [], [], connect=0.2)
        assert caught.value.limit == "connect"
        await server.connections[0].peer_closed.wait()


# TLS


def trusting(server: Misbehaving, host: str = "127.0.0.1") -> Origin:
    return replace(Origin.parse(server.base_url), host=host, ssl=self_signed().client)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_tls(host: str) -> None:
    body = random.Random(1).randbytes(3 * MIB)
    async with Misbehaving(play(sse(C("hi"), F("stop"), D)), tls=self_signed().server) as server, client() as upstream:
        for _ in range(3):
            answer = await upstream.send(b"POST", trusting(server, host), "/x", HEADERS, [memoryview(body)], connect=5)
            assert (await whole(answer, 1000)).endswith(D)
            answer.close()
        assert (len(server.connections), upstream.idle) == (1, 1)
        assert server.requests[-1].body == body


async def test_a_certificate_that_nobody_vouches_for() -> None:
    async with Misbehaving(play(OK), tls=self_signed().server) as server, client() as upstream:
        with pytest.raises(UpstreamUnreachable, match="TLS certificate is not trusted"):
            await ask(upstream, server)
        assert (server.requests, upstream.open) == ([], 0)


async def test_a_certificate_for_another_host() -> None:
    async with Misbehaving(play(OK), tls=self_signed().server) as server, client() as upstream:
        with pytest.raises(UpstreamUnreachable, match="TLS certificate is not trusted"):
            await upstream.send(b"POST", trusting(server, "0.0.0.0"), "/x", [], [], connect=5)


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_a_server_without_tls(end: End) -> None:
    async with Misbehaving(play(end=end)) as server, client() as upstream:
        origin = Origin.parse(server.base_url.replace("http", "https"))
        asking = asyncio.create_task(upstream.send(b"POST", origin, "/x", [], [], connect=5))
        (await server.connection()).hang_up()
        with pytest.raises(UpstreamUnreachable):
            await asking


async def test_a_stream_cut_under_tls() -> None:
    async with Misbehaving(play(sse_head() + chunk(C("hi")), end="rst"), tls=self_signed().server) as server, client() as upstream:
        answer = await upstream.send(b"POST", trusting(server), "/x", [], [], connect=5)
        with pytest.raises(UpstreamIncomplete):
            await whole(answer, 1000)
        answer.close()


# cancellation


@asynccontextmanager
async def stuck(server: Misbehaving, body: Sequence[bytes] = (b"{}",), origin: Origin | None = None) -> AsyncIterator[asyncio.Task[bytes]]:
    """A task that asks and waits; cancelled at the end, its provider must see the connection close at once."""

    async def asking() -> bytes:
        answer = await upstream.send(b"POST", origin or Origin.parse(server.base_url), "/x", [], body, connect=30)
        try:
            return await whole(answer, 10 * MIB)
        finally:
            answer.close()

    async with client() as upstream:
        task = asyncio.create_task(asking())
        yield task
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert upstream.open == 0


async def sees_the_close(server: Misbehaving) -> None:
    async with within(0.1):
        await server.connections[0].peer_closed.wait()


async def test_cancelled_while_it_waits_for_the_head() -> None:
    async with Misbehaving(play(end="hold")) as server:
        async with stuck(server):
            await server.request()
        await sees_the_close(server)


async def test_cancelled_while_it_reads() -> None:
    sent = asyncio.Event()
    async with Misbehaving(play(sse_head() + chunk(b"x"), sent, end="hold")) as server:
        async with stuck(server):
            await server.request()
            sent.set()
            await asyncio.sleep(0)
        await sees_the_close(server)


async def test_cancelled_in_the_tls_handshake() -> None:
    async with Misbehaving(play(end="hold")) as server:
        async with stuck(server, origin=Origin.parse(server.base_url.replace("http", "https"))):
            await (await server.connection()).some_bytes()
        await sees_the_close(server)


async def test_cancelled_while_it_sends_a_large_body() -> None:
    slow = asyncio.Event()
    async with Misbehaving(play(slow, OK), early=True) as server:  # reads the head, and of the body what came with it
        async with stuck(server, [bytes(30 * MIB)]):
            await server.request()
        connection = server.connections[0]
        connection.read_on()
        async with within(1):
            await connection.peer_closed.wait()
        assert connection.received < 30 * MIB


async def test_cancelled_while_it_connects() -> None:
    async with Misbehaving(black_hole=True) as server, stuck(server):
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize("max_idle", [0, 1], ids=["connecting", "reusing"])
async def test_cancelled_at_any_moment(max_idle: int) -> None:
    """From the first step to the last: wherever the cancellation strikes, nothing stays open."""
    async with Misbehaving(echo()) as server, client(max_idle=max_idle) as upstream:
        for steps in range(60):
            task = asyncio.create_task(asked(upstream, server, [b"nonce-%d" % steps]))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert upstream.in_use == 0
            assert b"nonce-next" in await asked(upstream, server, [b"nonce-next"])


async def test_cancelled_at_any_moment_of_tls() -> None:
    async with Misbehaving(play(OK), tls=self_signed().server) as server, client(max_idle=0) as upstream:
        for steps in range(60):
            task = asyncio.create_task(upstream.send(b"POST", trusting(server), "/x", [], [], connect=5))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result().close()
            assert upstream.in_use == 0


@pytest.mark.fault("CAN-12")
async def test_no_byte_of_a_cancelled_exchange_reaches_the_next() -> None:
    chance = random.Random(12)

    async def lane(name: int) -> None:
        for number in range(50):
            a, b = b"nonce-a%d-%d" % (name, number), b"nonce-b%d_%d" % (name, number)
            team_a = asyncio.create_task(asked(upstream, server, [b'{"stream":true,"m":"%b"}' % a]))
            await asyncio.sleep(chance.uniform(0, 0.05))
            team_a.cancel()
            answer = await asked(upstream, server, [b'{"m":"%b"}' % b])
            assert b'"%b"' % b in answer
            await asyncio.wait([team_a])

    async with Misbehaving(echo(rb"nonce-\w+", delay=0.02)) as server, client() as upstream:
        async with asyncio.TaskGroup() as lanes:
            for name in range(10):
                lanes.create_task(lane(name))
        assert upstream.resends == 0


# what it leaves to others


@pytest.mark.fault("INJ-06")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer(status: int) -> None:
    async with Misbehaving(play(OK)) as canary:
        away = http(status, [("Location", f"{canary.base_url}/models")], b"moved")
        async with Misbehaving(play(away)) as server, client() as upstream:
            answer = await ask(upstream, server, headers=[(b"authorization", b"Bearer a"), (b"api-key", b"b")])
            assert (answer.status, await whole(answer, 10)) == (status, b"moved")
            answer.close()
            assert (len(server.requests), canary.connections) == (1, [])


@pytest.mark.fault("HDR-08")
async def test_a_cookie_stays_with_nobody() -> None:
    async with Misbehaving(play(http(200, [JSON, ("Set-Cookie", "sid=A; Path=/")], b"{}"))) as server, client() as upstream:
        await asked(upstream, server)
        await asked(upstream, server)
        assert server.requests[1].header(b"cookie") is None


async def test_codings_are_left_as_they_come() -> None:
    async with Misbehaving(play(http(200, [JSON, ("Content-Encoding", "gzip")], b"\x1f\x8bnot"))) as server, client() as upstream:
        answer = await ask(upstream, server)
        assert answer.header(b"content-encoding") == b"gzip"
        assert await whole(answer, 10) == b"\x1f\x8bnot"
        answer.close()


def test_upstream_is_a_sender() -> None:
    sender: type[Sender] = Upstream
    reply: type[Reply] = Answer
    assert sender
    assert reply


async def test_many_at_once() -> None:
    async with Misbehaving(lambda request: play(chat_answer(request.body.decode()))) as server, client(max_idle=20) as upstream:
        answers = await asyncio.gather(*[asked(upstream, server, [b"%d" % number]) for number in range(200)])
        assert all(b'"content":"%d"' % number in answer for number, answer in enumerate(answers))
        assert upstream.idle == 20


async def test_a_failure_tells_no_secret() -> None:
    async with Misbehaving(play(b"garbage sk-1", end="fin")) as server, client() as upstream:
        with pytest.raises(ProviderFault) as caught:
            await ask(upstream, server, headers=HEADERS)
        assert "sk-1" not in caught.value.message + caught.value.detail


def test_the_default_context_verifies() -> None:
    context = Origin.parse("https://host").ssl
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
