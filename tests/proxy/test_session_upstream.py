"""Through a forward proxy: which origins go there, and that an answer is the same as one that came directly."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Self

import pytest

from spangate.call.errors import UpstreamError, UpstreamIncomplete, UpstreamTimeout, UpstreamUnreachable
from spangate.proxy.coding import whole
from spangate.proxy.session_upstream import ProxiedUpstream, ProxyRules, SessionAnswer, SessionUpstream, covers, upstream_for
from spangate.proxy.upstream import Body, Headers, Origin, Reply, Sender, Upstream

from upstream import (
    LAST_CHUNK,
    C,
    D,
    End,
    F,
    Misbehaving,
    Request,
    Step,
    chunk,
    error,
    http,
    play,
    raw_head,
    refusing_port,
    self_signed,
    sse,
    sse_head,
)

JSON = ("Content-Type", "application/json")
OK = http(200, [JSON], b"ok")
NOWHERE = Origin.parse("http://models.example:8080/v1")  # only a proxy can reach it
HEADERS = [(b"authorization", b"Bearer sk-1"), (b"content-type", b"application/json")]
MIB = 1024 * 1024


@asynccontextmanager
async def client(proxy: str) -> AsyncIterator[SessionUpstream]:
    upstream = SessionUpstream(proxy)
    try:
        yield upstream
    finally:
        await upstream.aclose()
        await asyncio.sleep(0)


def through(server: Misbehaving) -> str:
    return f"http://127.0.0.1:{server.port}"


async def ask(
    upstream: Sender, origin: Origin = NOWHERE, body: Body = (b"{}",), *, headers: Headers = HEADERS, connect: float = 5
) -> Reply:
    return await upstream.send(b"POST", origin, "/chat/completions", headers, body, connect=connect)


async def asked(upstream: Sender, origin: Origin = NOWHERE, body: Body = (b"{}",)) -> bytes:
    answer = await ask(upstream, origin, body)
    try:
        return await whole(answer, MIB)
    finally:
        answer.close()


class ConnectProxy:
    """A forward proxy that makes tunnels: CONNECT, then bytes both ways."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self.heads: list[bytes] = []
        self._to = port  # whatever host is asked for: the test's server
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            if self._answer.startswith(b"HTTP/1.1 200"):
                there, back = await asyncio.open_connection("127.0.0.1", self._to)
                async with asyncio.TaskGroup() as both:
                    both.create_task(pump(reader, back))
                    both.create_task(pump(there, writer))
        writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


# which origin goes where


@pytest.mark.parametrize(
    ("environ", "http", "https"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://p:1"}, None, "http://p:1"),
        ({"https_proxy": "http://q:2", "HTTPS_PROXY": "http://p:1"}, None, "http://q:2"),
        ({"HTTP_PROXY": "p:1"}, "http://p:1", None),
        ({"ALL_PROXY": "http://p:1"}, "http://p:1", "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "HTTPS_PROXY": "https://q:2"}, "http://p:1", "https://q:2"),
        ({"HTTPS_PROXY": " ", "all_proxy": ""}, None, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "api.example"}, None, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "other.example, Example"}, None, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "i.example"}, None, "http://p:1"),
    ],
)
def test_the_environment(environ: dict[str, str], http: str | None, https: str | None) -> None:
    rules = ProxyRules.parse(environ)
    for scheme, proxy in (("http", http), ("https", https)):
        assert rules.proxy_for(Origin.parse(f"{scheme}://api.example/v1")) == proxy
    assert isinstance(upstream_for(environ), ProxiedUpstream if rules.proxies else Upstream)


@pytest.mark.parametrize("proxy", ["socks5://user:secret@p:1", "http://", "http://user:secret@:1", "http://user:secret@p:x", "http://[::1"])
def test_a_proxy_that_cannot_be_used(proxy: str) -> None:
    with pytest.raises(ValueError, match="HTTPS_PROXY names no proxy") as caught:
        upstream_for({"HTTPS_PROXY": proxy})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "host", "port", "covered"),
    [
        ("*", "api.example", 443, True),
        ("example", "api.example", 443, True),
        (".example", "api.example", 443, True),
        ("*.example", "api.example", 443, True),
        ("api.example.", "api.example", 443, True),
        ("pi.example", "api.example", 443, False),
        ("api.example:443", "api.example", 443, True),
        ("api.example:8443", "api.example", 443, False),
        ("127.0.0.1", "127.0.0.1", 80, True),
        ("127.0.0.1:81", "127.0.0.1", 80, False),
        ("10.0.0.0/8", "10.1.2.3", 80, True),
        ("10.0.0.0/8", "11.1.2.3", 80, False),
        ("10.0.0.0/8", "api.example", 80, False),
        ("10.0.0.0/99", "10.1.2.3", 80, False),
        ("::1", "::1", 80, True),
        ("[::1]:80", "::1", 80, True),
        ("[::1]:81", "::1", 80, False),
        ("fd00::/8", "fd12::1", 80, True),
        (".", "api.example", 80, False),
    ],
)
def test_no_proxy(entry: str, host: str, port: int, covered: bool) -> None:
    assert covers(entry, host, port) == covered


async def test_each_origin_by_its_own_way() -> None:
    async with Misbehaving(play(OK)) as near, Misbehaving(play(OK)) as proxy:
        upstream = upstream_for({"HTTP_PROXY": through(proxy), "NO_PROXY": "127.0.0.0/8"})
        assert await asked(upstream, Origin.parse(near.base_url)) == b"ok"
        assert await asked(upstream) == b"ok"
        assert (near.requests[0].path, proxy.requests[0].path) == (
            "/v1/chat/completions",
            "http://models.example:8080/v1/chat/completions",
        )
        assert upstream.resends == 0
        await upstream.aclose()


# what goes out


@pytest.mark.parametrize("size", [0, 7, 3 * MIB + 7])
async def test_the_request(size: int) -> None:
    body = random.Random(size).randbytes(size)
    async with Misbehaving(play(OK)) as server, client(through(server)) as upstream:
        assert await asked(upstream, body=[body[:5], memoryview(body)[5:]]) == b"ok"
        request = server.requests[0]
        assert request.body == body
        assert {name.lower(): value for name, value in request.headers} == {
            b"host": b"models.example:8080",
            b"authorization": b"Bearer sk-1",
            b"content-type": b"application/json",
            b"content-length": str(size).encode(),
        }
        assert len(request.headers) == 4


async def test_authorization_for_a_proxy_without_a_tunnel() -> None:
    async with Misbehaving(play(OK)) as server, client(through(server).replace("http://", "http://user:pass@")) as upstream:
        await asked(upstream)
        assert server.requests[0].header(b"proxy-authorization") == b"Basic " + base64.b64encode(b"user:pass")


@pytest.mark.parametrize("header", [(b"authorization", b"a\r\nx: 1"), (b"host", b"evil")])
async def test_a_header_that_would_shape_the_request(header: tuple[bytes, bytes]) -> None:
    async with Misbehaving(play(OK)) as server, client(through(server)) as upstream:
        with pytest.raises(ValueError, match="header"):
            await ask(upstream, headers=[header])
        assert server.connections == []


async def test_a_tunnel() -> None:
    async with Misbehaving(play(sse(C("hi"), F("stop"), D)), tls=self_signed().server) as server, ConnectProxy(server.port) as proxy:
        origin = replace(Origin.parse("https://localhost:8443/v1"), ssl=self_signed().client)
        async with client(proxy.url.replace("http://", "http://user:p%40ss@")) as upstream:
            for _ in range(3):
                assert (await asked(upstream, origin)).endswith(D)
        assert [head.split(b"\r\n")[0] for head in proxy.heads] == [b"CONNECT localhost:8443 HTTP/1.1"]
        sent = re.search(rb"(?i)proxy-authorization: basic (\S+)", proxy.heads[0])
        assert sent is not None
        assert base64.b64decode(sent[1]) == b"user:p@ss"
        assert b"sk-1" not in proxy.heads[0]
        assert server.requests[0].header(b"proxy-authorization") is None


async def test_a_certificate_that_nobody_vouches_for() -> None:
    async with Misbehaving(play(OK), tls=self_signed().server) as server, ConnectProxy(server.port) as proxy, client(proxy.url) as upstream:
        with pytest.raises(UpstreamUnreachable, match="TLS certificate is not trusted"):
            await ask(upstream, Origin.parse("https://localhost:8443/v1"))
        assert server.requests == []


@pytest.mark.parametrize("status", [403, 407, 502])
async def test_a_proxy_that_refuses(status: int) -> None:
    async with ConnectProxy(1, b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status) as proxy:
        async with client(proxy.url.replace("http://", "http://user:secret@")) as upstream:
            with pytest.raises(UpstreamUnreachable, match=f"the proxy answered {status}") as caught:
                await ask(upstream, Origin.parse("https://models.example/v1"))
        assert "secret" not in caught.value.message + caught.value.detail


async def test_no_proxy_there() -> None:
    async with client(f"http://user:secret@127.0.0.1:{refusing_port()}") as upstream:
        with pytest.raises(UpstreamUnreachable, match="no connection to the proxy") as caught:
            await ask(upstream)
        assert "secret" not in caught.value.message + caught.value.detail


async def test_a_mute_proxy_takes_no_longer_than_the_connect_limit() -> None:
    async with Misbehaving(mute=True) as server, client(through(server)) as upstream:
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(upstream, Origin.parse("https://models.example/v1"), connect=0.1)
        assert caught.value.limit == "connect"


# what comes back


WHOLE: dict[str, tuple[list[Step], End, int, bytes]] = {
    "length": ([http(200, [JSON], b"hello")], "keep", 200, b"hello"),
    "chunks": ([sse(b"a", b"bc")], "keep", 200, b"abc"),
    "until the end": ([raw_head(200) + b"hel", (b"lo", 0.01)], "fin", 200, b"hello"),
    "204": ([raw_head(204)], "keep", 204, b""),
    "100 first": ([raw_head(100), OK], "keep", 200, b"ok"),
    "an error": ([error(429)], "keep", 429, b'{"error": {"message": "no", "type": "server_error", "param": null, "code": null}}'),
    "a redirect": ([http(302, [("Location", "http://127.0.0.1:1/")], b"")], "keep", 302, b""),
    "a coding": ([http(200, [JSON, ("Content-Encoding", "gzip")], b"\x1f\x8bnot")], "keep", 200, b"\x1f\x8bnot"),
}


@pytest.mark.parametrize(("steps", "end", "status", "body"), WHOLE.values(), ids=list(WHOLE))
async def test_a_whole_answer(steps: list[Step], end: End, status: int, body: bytes) -> None:
    async with Misbehaving(play(*steps, end=end)) as server, client(through(server)) as upstream:
        answer = await ask(upstream)
        assert answer.status == status
        assert await whole(answer, 1000) == body
        assert await answer.read() == b""
        answer.close()
        answer.close()
        assert len(server.requests) == 1


async def test_headers_keep_their_order_and_their_repeats() -> None:
    async with (
        Misbehaving(play(http(200, [("X-Trace", "1"), ("x-trace", "2"), JSON], b"{}"))) as server,
        client(through(server)) as upstream,
    ):
        answer = await ask(upstream)
        assert answer.headers[:2] == [(b"x-trace", b"1"), (b"x-trace", b"2")]
        assert answer.header(b"x-trace") == b"1"
        answer.close()


async def test_no_cookie_is_kept() -> None:
    async with Misbehaving(play(http(200, [JSON, ("Set-Cookie", "sid=A; Path=/")], b"{}"))) as server, client(through(server)) as upstream:
        await asked(upstream)
        await asked(upstream)
        assert server.requests[1].header(b"cookie") is None
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "steps",
    [
        [b"SSH-2.0-OpenSSH_9.6\r\n"],
        [raw_head(200, [("Content-Length", "5"), ("Content-Length", "6")])],
        [raw_head(200, [JSON, ("Content-Type", "text/html"), ("Content-Length", "9")])],
        [raw_head(200, [("X", "v" * 70_000)])],
    ],
    ids=["no HTTP", "two lengths", "two content types", "a large head"],
)
async def test_a_head_that_cannot_be_trusted(steps: list[Step]) -> None:
    async with Misbehaving(play(*steps, end="hold")) as server, client(through(server)) as upstream:
        with pytest.raises(UpstreamError):
            await ask(upstream)
        await server.connections[0].peer_closed.wait()


@pytest.mark.parametrize("end", ["fin", "rst"])
@pytest.mark.parametrize("head", [raw_head(200, [("Content-Length", "10")]) + b"hello", sse_head() + chunk(b"hello")])
async def test_an_answer_that_stops_early(head: bytes, end: End) -> None:
    async with Misbehaving(play(head, end=end)) as server, client(through(server)) as upstream:
        with pytest.raises(UpstreamIncomplete):
            await asked(upstream)
        assert len(server.requests) == 1


@pytest.mark.parametrize("end", ["fin", "rst"])
async def test_a_fresh_connection_that_ends_before_the_head(end: End) -> None:
    async with Misbehaving(play(end=end)) as server, client(through(server)) as upstream:
        with pytest.raises(UpstreamIncomplete):
            await asked(upstream)
        assert (len(server.requests), upstream.resends) == (1, 0)


async def test_an_answer_before_the_body_is_sent() -> None:
    async with Misbehaving(play(error(413), end="hold"), early=True) as server, client(through(server)) as upstream:
        answer = await ask(upstream, body=[bytes(30 * MIB)])
        assert answer.status == 413
        await whole(answer, 1000)
        answer.close()
        assert server.connections[0].received < 30 * MIB


# connections


async def test_a_reused_connection_found_closed() -> None:
    seen: set[object] = set()

    def script(request: Request) -> object:
        if request.connection in seen:
            return play(end="fin")
        seen.add(request.connection)
        return play(OK)

    async with Misbehaving(script) as server, client(through(server)) as upstream:  # type: ignore[arg-type]
        for _ in range(3):
            assert await asked(upstream, body=[bytes(MIB)]) == b"ok"
        assert upstream.resends == 1
        assert [len(request.body) for request in server.requests] == [MIB] * 4


async def test_an_answer_left_half_read() -> None:
    async with Misbehaving([play(sse_head() + chunk(b"half"), end="hold"), play(OK)]) as server, client(through(server)) as upstream:
        answer = await ask(upstream)
        assert await answer.read() == b"half"
        answer.close()
        await server.connections[0].peer_closed.wait()
        with pytest.raises(UpstreamIncomplete):
            await answer.read()
        assert await asked(upstream) == b"ok"


@pytest.mark.parametrize("steps", [[], [sse_head() + chunk(b"half")]], ids=["before the head", "in the body"])
async def test_cancelled(steps: list[Step]) -> None:
    async with Misbehaving(play(*steps, end="hold")) as server, client(through(server)) as upstream:
        task = asyncio.create_task(asked(upstream))
        request = await server.request()
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(0.2):
            await request.peer_closed.wait()


async def test_pieces_are_handed_on_when_they_come() -> None:
    gate = asyncio.Event()
    async with (
        Misbehaving(play(sse_head(), chunk(b"one"), gate, chunk(b"two") + LAST_CHUNK)) as server,
        client(through(server)) as upstream,
    ):
        answer = await ask(upstream)
        assert await answer.read() == b"one"
        gate.set()
        assert await answer.read() == b"two"
        assert await answer.read() == b""
        answer.close()


def test_they_are_senders() -> None:
    senders: list[type[Sender]] = [SessionUpstream, ProxiedUpstream]
    reply: type[Reply] = SessionAnswer
    assert senders
    assert reply
