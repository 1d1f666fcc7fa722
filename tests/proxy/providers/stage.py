"""What provider tests stand on: the scenarios that a provider is put into, the calls that it gets, and what is read from its answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any, cast

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op, Target
from spangate.call.errors import ProviderFault
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.proxy.providers.provider import Provider

TEXT = "Hello brave world"
PIECES = ("Hello", " brave", " world")  # as a stream: one chunk each, after one that tells the role
USAGE = Usage(input=7, output=3, cached=2, reasoning=1)
TOOL = {"name": "get_weather", "arguments": {"city": "Rome"}}
MODEL = "m-1"  # what the provider is asked for, and what it calls itself in its answer

SCENARIOS = {
    "answers": "TEXT, USAGE, finish stop; as many choices as are asked for",
    "answers slowly": "the same, with a pause before each chunk",
    "answers without usage": "the same, and no usage",
    "usage comes late": "the same; as a stream, the usage chunk comes after a pause",
    "usage comes twice": "the same; as a stream, two usage chunks",
    "usage grows": "the same; as a stream, usage on every chunk",
    "calls a tool": "TOOL, finish tool_calls",
    "refuses": "status 429, retry-after 2, type requests, code rate_limit_exceeded, message Slow down.",
    "errs in a 200": "an error where content was due",
    "is empty": "nothing, ended cleanly",
    "is silent": "at most the role, then nothing for ever",
    "falls silent": "two chunks of content, then nothing for ever; a whole answer never comes",
    "breaks before content": "at most the role, then the connection breaks",
    "breaks": "two chunks of content, then the connection breaks; a whole answer breaks in its middle",
    "is cut": "two chunks of content and a clean end without a finish_reason; a whole answer breaks in its middle",
    "embeds": "two vectors of length 3, usage of 7 tokens",
    "completes": "TEXT, USAGE, finish stop, as a legacy completion",
}


@dataclass(frozen=True)
class Stage:
    """`in_use`: connections that an answer holds, or that are just being given back. `left` waits until the other side has noticed that
    its caller left. `usage`: what it reports, where its figures can't be chosen."""

    provider: Provider
    usage: Usage = USAGE
    in_use: Callable[[], int] = lambda: 0
    left: Callable[[], Awaitable[object]] | None = None


OnStage = Callable[[str], AbstractAsyncContextManager[Stage]]


def asking(op: Op = "chat", *, stream: bool = False, n: int = 1, usage_frame: bool = False, **body: Any) -> Call:
    """A call as the gateway hands it to a provider."""
    given: dict[str, Any] = {"model": "asked"}
    given |= {"messages": [{"role": "user", "content": "Say hello"}]} if op == "chat" else {}
    given |= {"stream": True} if stream else {}
    given |= {"stream_options": {"include_usage": True}} if usage_frame else {}
    given |= {"n": n} if n > 1 else {}
    head = Head(stream=stream, n=n, usage_frame=usage_frame)
    return Call(op, "asked", Body.of(given | body), head=head, target=Target("under-test", MODEL))


async def told(provider: Provider, call: Call) -> list[Event]:
    """All events of an answer."""
    async with aclosing(cast("Any", provider.answer(call))) as events:
        return [event async for event in events]


async def failing(provider: Provider, call: Call) -> tuple[list[Event], ProviderFault]:
    """What came before the failure, and the failure."""
    before: list[Event] = []
    try:
        async with aclosing(cast("Any", provider.answer(call))) as events:
            async for event in events:
                before.append(event)  # noqa: PERF401 - it is the point that these survive
    except ProviderFault as fault:
        return before, fault
    raise AssertionError("it did not fail")


def deltas(events: list[Event]) -> list[Delta]:
    return [event for event in events if isinstance(event, Delta)]


def chunks(events: list[Event]) -> list[dict[str, Any]]:
    return [chunk for delta in deltas(events) for chunk in delta.chunks]


def raw(events: list[Event]) -> bytes:
    """What goes to the caller, but for the tail."""
    return b"".join(delta.raw for delta in deltas(events))


def text(events: list[Event]) -> str:
    return "".join(delta.text for delta in deltas(events))


def closed(events: list[Event]) -> Closed:
    assert isinstance(events[-1], Closed)
    return events[-1]


def whole(events: list[Event]) -> dict[str, Any]:
    """The body of a whole answer, which is exactly Opened, Delta, Closed."""
    assert [type(event) for event in events] == [Opened, Delta, Closed]
    return cast("dict[str, Any]", json.loads(deltas(events)[0].raw))


async def given_back(stage: Stage) -> None:
    """After a good end: nobody waits for it, and it takes but a moment."""
    async with asyncio.timeout(1):
        while stage.in_use():  # noqa: ASYNC110 - a pool tells nobody what comes back
            await asyncio.sleep(0.001)


async def comes_in_spite(answer: Coroutine[Any, Any, list[Event]], step: int) -> bool:
    """Run in a task that is cancelled the `step`-th time it waits; whether it ended before that."""
    task = asyncio.create_task(_cancelled_at(answer, step))
    await asyncio.wait([task])
    return not task.cancelled() and bool(task.result())


async def _cancelled_at(answer: Coroutine[Any, Any, list[Event]], step: int) -> list[Event]:
    return await _Cancelling(answer, step)


@dataclass(frozen=True)
class _Cancelling:
    inner: Coroutine[Any, Any, list[Event]]
    step: int

    def __await__(self) -> Generator[Any, Any, list[Event]]:
        steps = self.inner.__await__()
        waited, task = 0, asyncio.current_task()
        assert task is not None
        throw: BaseException | None = None
        while True:
            try:
                waits_for = steps.throw(throw) if throw is not None else next(steps)
            except StopIteration as end:
                return cast("list[Event]", end.value)
            waited += 1
            if waited == self.step:
                task.cancel()
            throw = None
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on to the inside
                throw = error
