"""proxy/upstream.py: an answer that has said all it had to is released, and nobody waits for the end of its framing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from spangate.proxy import connection
from spangate.proxy.coding import whole
from spangate.proxy.origin import Origin
from spangate.proxy.upstream import Answer, Upstream

from gateway import until
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, chat_answer, chunk, play, sse_head

SAID = sse_head() + chunk(C("a")) + chunk(F("stop")) + chunk(D)


@asynccontextmanager
async def released(script: Play) -> AsyncIterator[tuple[Upstream, Misbehaving]]:
    """An answer read until its [DONE], and released."""
    upstream = Upstream()
    async with Misbehaving([script, play(chat_answer("next"))]) as server:
        answer = await ask(upstream, server)
        said = b""
        while D not in said:
            said += await answer.read()
        answer.release()
        answer.close()  # does nothing more
        assert await answer.read() == b""
        try:
            yield upstream, server
        finally:
            await upstream.aclose()
            assert upstream.open == 0


async def ask(upstream: Upstream, server: Misbehaving) -> Answer:
    return await upstream.send(b"POST", Origin.parse(server.base_url), "/chat/completions", (), (b"{}",), connect=5)


async def until_free(upstream: Upstream) -> None:
    await until(lambda: not upstream.in_use, 3)


async def used_again(upstream: Upstream, server: Misbehaving) -> bool:
    await until_free(upstream)
    answer = await ask(upstream, server)
    assert b"next" in await whole(answer, 1000)
    answer.close()
    return len(server.connections) == 1


async def test_an_end_that_is_here_gives_the_connection_back_at_once() -> None:
    async with released(play(SAID + LAST_CHUNK)) as (upstream, server):
        assert upstream.idle == 1
        assert await used_again(upstream, server)


async def test_an_end_that_comes_later_gives_it_back_then() -> None:
    async with released(play(SAID, (b"0\r\n", 0.05), (b"\r\n", 0.05))) as (upstream, server):
        assert (upstream.idle, upstream.in_use) == (0, 1)
        assert await used_again(upstream, server)


@pytest.mark.parametrize(
    "rest",
    [
        play(SAID, (chunk(C("more")) + LAST_CHUNK, 0.05)),
        play(SAID, (LAST_CHUNK + b"HTTP/1.1 200 OK\r\n\r\n", 0.05)),
        play(SAID, (b"nonsense\r\n", 0.05)),
        play(SAID, (b"", 0.05), end="rst"),
        play(SAID, (b"", 0.05), end="fin"),
    ],
    ids=["more of a body", "more than the answer", "broken framing", "reset", "closed"],
)
async def test_what_else_comes_costs_the_connection(rest: Play) -> None:
    async with released(rest) as (upstream, server):
        assert not await used_again(upstream, server)


async def test_an_end_that_never_comes_is_not_waited_for_long() -> None:
    async with released(play(SAID, end="hold")) as (upstream, server):
        began = asyncio.get_running_loop().time()
        await until_free(upstream)
        assert asyncio.get_running_loop().time() - began < connection.LINGER + 0.5
        await server.connections[0].peer_closed.wait()


async def test_aclose_waits_for_no_end() -> None:
    async with released(play(SAID, end="hold")) as (upstream, _):
        async with asyncio.timeout(0.5):
            await upstream.aclose()
