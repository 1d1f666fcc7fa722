"""policies/shadow.py: a policy that decides and records, and enforces nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call
from spangate.call.chain import Next, Policy, chain, pulling
from spangate.call.errors import Refused, SpangateError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.policies.access import Access, Most
from spangate.policies.shadow import Shadow

ANSWER = [Opened(), Delta(b"data: 1\n\n"), Delta(b"data: 2\n\n"), Closed()]


def call() -> Call:
    return Call(op="chat", model="m", body=Body.of({"messages": []}))


class Answering:
    """Answers, and keeps what it was asked."""

    def __init__(self, *events: Event | SpangateError) -> None:
        self.events = events or tuple(ANSWER)
        self.asked: list[Call] = []
        self.told = 0
        self.closed = False

    async def __call__(self, call: Call) -> AsyncIterator[Event]:
        self.asked.append(call)
        try:
            for event in self.events:
                if isinstance(event, SpangateError):
                    raise event
                self.told += 1
                yield event
        finally:
            self.closed = True


async def through(policy: Policy, asked: Call, answer: Answering | None = None) -> list[Event]:
    following = chain([Shadow("rule", policy)], answer or Answering())
    async with pulling(following(asked)) as events:
        return [event async for event in events]


def notes(asked: Call) -> list[tuple[str, dict[str, Any]]]:
    return [(note.name, note.figures) for note in asked.notes]


# ---- rules that look at the request


async def test_a_refusal_is_a_note() -> None:
    asked, answer = call(), Answering()
    assert await through(Access(models=("other",)), asked, answer) == ANSWER
    assert answer.asked == [asked]
    assert notes(asked) == [("access.refused", {"model": "m", "mode": "shadow"})]


async def test_a_refusal_that_nobody_told_of_is_told() -> None:
    def silent(call: Call, next: Next) -> AsyncIterator[Event]:
        raise Refused("no", code="content_blocked")

    asked = call()
    assert await through(silent, asked) == ANSWER
    assert notes(asked) == [("rule.refused", {"code": "content_blocked", "mode": "shadow"})]


async def test_a_rewritten_request_goes_nowhere() -> None:
    asked, answer = call(), Answering()
    assert await through(Access(max=Most(max_tokens=10)), asked, answer) == ANSWER
    assert answer.asked[0] is asked
    assert notes(asked) == [("access.capped", {"verdict": "modify", "asked": 0, "output_cap": 10, "mode": "shadow"})]


async def test_a_rule_that_lets_through_adds_no_layer() -> None:
    async def inside(call: Call) -> AsyncIterator[Event]:
        yield Closed()

    events = inside(call())
    assert Shadow("access", Access())(call(), lambda _: events) is events
    assert [event async for event in events] == [Closed()]


# ---- rules that read the answer


class Reading:
    """Reads every event, changes each, and says what it has read."""

    def __init__(self, *, until: int = 99, pause: bool = False) -> None:
        self.until = until
        self.pause = pause
        self.read: list[Event] = []
        self.ended: list[str] = []

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        try:
            if self.pause:
                await asyncio.sleep(0)
            async with pulling(next(call)) as events:
                async for event in events:
                    if self.pause:
                        await asyncio.sleep(0)
                    self.read.append(event)
                    if len(self.read) == self.until:
                        call.notes.add("reading.blocked", action="block")
                        raise Refused("no more", code="content_blocked")
                    yield Delta(b"data: other\n\n")
            self.ended.append("read all")
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        except UpstreamIncomplete:
            self.ended.append("incomplete")
            raise
        call.notes.add("reading.done", verdict="modify", events=len(self.read))


@pytest.mark.parametrize("pause", [False, True])
async def test_an_answer_is_read_and_not_changed(pause: bool) -> None:
    asked, rule = call(), Reading(pause=pause)
    assert await through(rule, asked) == ANSWER
    assert rule.read == ANSWER
    assert rule.ended == ["read all"]
    assert notes(asked) == [("reading.done", {"verdict": "modify", "events": 4, "mode": "shadow"})]


async def test_an_answer_that_would_be_blocked_goes_on() -> None:
    asked, rule = call(), Reading(until=2)
    assert await through(rule, asked) == ANSWER
    assert notes(asked) == [("reading.blocked", {"mode": "shadow"})]


async def test_each_event_goes_out_before_it_is_judged() -> None:
    rule, answer = Reading(), Answering()
    async with pulling(Shadow("rule", rule)(call(), answer)) as events:
        assert await anext(events) == ANSWER[0]
        assert (answer.told, rule.read) == (1, [])
        assert await anext(events) == ANSWER[1]
        assert (answer.told, rule.read) == (2, ANSWER[:1])
    assert answer.closed
    assert rule.ended == ["cancelled"]


async def test_the_answers_own_failure_is_the_answers() -> None:
    asked, rule, fault = call(), Reading(), UpstreamIncomplete("cut")
    with pytest.raises(UpstreamIncomplete) as caught:
        await through(rule, asked, Answering(Opened(), fault))
    assert caught.value is fault
    assert rule.ended == ["incomplete"]
    assert notes(asked) == []


async def test_a_rule_that_answers_itself_does_not() -> None:
    async def instead(call: Call, next: Next) -> AsyncIterator[Event]:
        call.notes.add("cache.hit", verdict="modify")
        yield Opened(model="cached")
        yield Closed()

    asked, answer = call(), Answering()
    assert await through(instead, asked, answer) == ANSWER
    assert answer.told == len(ANSWER)
    assert notes(asked) == [("cache.hit", {"verdict": "modify", "mode": "shadow"})]


async def test_a_rule_that_stops_early_stops_alone() -> None:
    async def early(call: Call, next: Next) -> AsyncIterator[Event]:
        async with pulling(next(call)) as events:
            yield await anext(events)
        yield Closed(finish="length")

    assert await through(early, call()) == ANSWER


async def test_a_caller_who_leaves_is_gone_for_both() -> None:
    waits = asyncio.Event()

    async def silent(call: Call) -> AsyncIterator[Event]:
        yield Opened()
        waits.set()
        await asyncio.Event().wait()

    rule = Reading()

    async def pull() -> None:
        async with pulling(Shadow("rule", rule)(call(), silent)) as events:
            async for _ in events:
                pass

    task = asyncio.ensure_future(pull())
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rule.ended == ["cancelled"]


async def test_a_caller_who_leaves_while_a_rule_thinks() -> None:
    thinks = asyncio.Event()

    async def slow(call: Call, next: Next) -> AsyncIterator[Event]:
        thinks.set()
        await asyncio.Event().wait()
        async with pulling(next(call)) as events:
            async for event in events:
                yield event

    task = asyncio.ensure_future(through(slow, call()))
    await thinks.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- rules with a defect


def fails_at_once(call: Call, next: Next) -> AsyncIterator[Event]:
    raise KeyError("secret")


def is_cancelled_at_once(call: Call, next: Next) -> AsyncIterator[Event]:
    raise asyncio.CancelledError


def gives_nothing(call: Call, next: Next) -> AsyncIterator[Event]:
    return None  # type: ignore[return-value]


async def fails_first(call: Call, next: Next) -> AsyncIterator[Event]:
    raise KeyError("secret")
    yield


async def fails_amid(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            if isinstance(event, Delta):
                raise ValueError("secret")
            yield event


async def cancels_itself(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        yield await anext(events)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async for event in events:
            yield event


async def is_impatient(call: Call, next: Next) -> AsyncIterator[Event]:
    async with asyncio.timeout(0.001):
        async with pulling(next(call)) as events:
            async for event in events:
                await asyncio.Event().wait()
                yield event


class Own(BaseException):
    """Nobody's."""


async def raises_its_own(call: Call, next: Next) -> AsyncIterator[Event]:
    raise Own
    yield


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        (fails_at_once, "KeyError"),
        (is_cancelled_at_once, "CancelledError"),
        (gives_nothing, "TypeError"),
        (fails_first, "KeyError"),
        (fails_amid, "ValueError"),
        (cancels_itself, "CancelledError"),
        (is_impatient, "TimeoutError"),
        (raises_its_own, "Own"),
    ],
)
async def test_a_defect_is_a_note(rule: Any, error: str, caplog: pytest.LogCaptureFixture) -> None:
    asked = call()
    assert await through(rule, asked) == ANSWER
    assert notes(asked) == [("rule.failed", {"verdict": "warn", "error": error, "mode": "shadow"})]
    assert caplog.text.count("rule in shadow failed") == 1


async def test_a_rule_may_read_the_answer_in_a_task_of_its_own() -> None:
    read: list[Event] = []

    async def aside(call: Call, next: Next) -> AsyncIterator[Event]:
        async def reading() -> None:
            async with pulling(next(call)) as events:
                read.extend([event async for event in events])

        await asyncio.create_task(reading())
        yield Closed()

    asked = call()
    assert await through(aside, asked) == ANSWER
    assert (read, notes(asked)) == (ANSWER, [])


async def test_a_rule_that_will_not_end_holds_up_nobody() -> None:
    over = asyncio.Event()

    async def stubborn(call: Call, next: Next) -> AsyncIterator[Event]:
        async with pulling(next(call)) as events:
            try:
                await anext(events)
                yield await anext(events)
            except asyncio.CancelledError:
                await over.wait()

    async with pulling(Shadow("rule", stubborn, parting=0.01)(call(), Answering())) as events:
        assert await anext(events) == ANSWER[0]
        assert await anext(events) == ANSWER[1]
    over.set()


async def test_what_a_rule_writes_about_the_call_is_its_own() -> None:
    def writing(call: Call, next: Next) -> AsyncIterator[Event]:
        call.seen.finish = "changed"
        call.seen.attempt("p", "m")
        return next(call)

    asked = call()
    await through(writing, asked)
    assert (asked.seen.finish, asked.seen.attempts) == (None, [])


def test_it_stands_where_its_policy_stands() -> None:
    assert Shadow("access", Access()).stage == 10
    assert Shadow("rule", Reading()).stage == 50
