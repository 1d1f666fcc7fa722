"""A chain's events onto an exchange: when the status goes out, what keeps a silent stream alive, and what ends an answer.

The end of an answer (a stream's `[DONE]`, a whole answer's last piece) is written only when the chain is exhausted and `settled`
has been called: whoever has read it can rely on everything being accounted for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from ..call import sse
from ..call.call import Call
from ..call.chain import pulling
from ..call.errors import OurFault, UpstreamError
from ..call.events import Closed, Delta, Event, Opened
from ..call.seen import Outcome
from .exchange import Exchange
from .wire import header_text

Settled = Callable[[Outcome], None]
"""Called once all is accounted for, with how the call ended."""

_STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}


def ids(call: Call) -> dict[str, str]:
    """The headers that every answer to a call carries."""
    return {"x-request-id": call.seen.id, "x-spangate-trace-id": call.seen.trace_hex}


def opened_headers(call: Call, opened: Opened) -> dict[str, str]:
    """All headers of an answer that has begun well."""
    form = _STREAM if opened.stream else {}
    told = {
        "x-spangate-provider": call.seen.provider,
        "x-spangate-model": header_text(call.seen.target_model),
        "x-spangate-attempts": str(len(call.seen.attempts)),
    }
    return {**form, "content-type": header_text(opened.content_type), **ids(call), **told, **opened.headers}


async def stream(call: Call, events: AsyncIterator[Event], exchange: Exchange, keepalive: float, settled: Settled) -> None:
    """Answer with server-sent events as they come."""
    alive = KeepAlive(exchange, keepalive, {**_STREAM, **ids(call)})
    done: bytes = sse.DONE
    closed: Closed | None = None
    try:
        async with pulling(events) as pulled:
            async for event in pulled:
                if isinstance(event, Delta):
                    await exchange.write(event.raw)
                elif isinstance(event, Opened):
                    await alive.stop()
                    done = sse.DONE if event.stream else b""
                    await _begin(call, exchange, event)
                else:
                    closed = event
        ended = _ended(closed)
        settled("cut" if ended.cut else "completed")
        await exchange.end(done if ended.tail is None else ended.tail)
    finally:
        alive.drop()


async def _begin(call: Call, exchange: Exchange, opened: Opened) -> None:
    if not exchange.started:
        await exchange.start(200, opened_headers(call, opened))
    elif not opened.stream:  # a body in a coding of its own can't go on after comments
        raise UpstreamError("The provider answered a stream with something else, after the stream had begun.")


def _ended(closed: Closed | None) -> Closed:
    """No chain just stops: without Closed an answer isn't whole, and nobody may be told that it is."""
    if closed is None:
        raise OurFault("The gateway failed to end this answer.", detail="a layer ended its answer without Closed")
    return closed


async def whole(call: Call, events: AsyncIterator[Event], exchange: Exchange, settled: Settled) -> None:
    """Answer with one body. Its last piece is held back until all is settled; an answer of one piece gets its length."""
    headers: Mapping[str, str] = {}
    held = b""
    closed: Closed | None = None
    async with pulling(events) as pulled:
        async for event in pulled:
            if isinstance(event, Opened):
                headers = opened_headers(call, event)
            elif isinstance(event, Delta):
                if held:
                    await _go_on(exchange, headers, held)
                held = event.raw
            else:
                closed = event
    ended = _ended(closed)
    held += ended.tail or b""
    settled("cut" if ended.cut else "completed")
    if exchange.started:
        await exchange.end(held)
    else:
        await exchange.answer(200, headers, held)


async def _go_on(exchange: Exchange, headers: Mapping[str, str], piece: bytes) -> None:
    if not exchange.started:
        await exchange.start(200, headers)
    await exchange.write(piece)


class KeepAlive:
    """Comments on a stream that has no content yet, every `every` seconds (0: never).

    A timer, and a task only if it fires: the pulls stay in the task that answers, and a fast answer pays for the timer alone.
    """

    def __init__(self, exchange: Exchange, every: float, headers: Mapping[str, str]) -> None:
        self._exchange = exchange
        self._every = every
        self._headers = headers
        self._task: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(every, self._begin) if every > 0 else None

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._comment())

    async def _comment(self) -> None:
        try:
            if not self._exchange.started:
                await self._exchange.start(200, self._headers)
            while not self._enough.is_set():
                await self._exchange.write(sse.KEEP_ALIVE)
                await _within(self._every, self._enough)
        except ConnectionError:
            return  # the client has left; whoever answers will notice

    async def stop(self) -> None:
        """No comment after this. A comment that is being written is finished first."""
        self._enough.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await self._task

    def drop(self) -> None:
        """End at once, without waiting."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
