"""The onion: what every layer sees when an answer comes, ends early, is cancelled or fails, anywhere."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call
from spangate.call.chain import Next, Policy, chain, in_order, is_layer, pulling, watching_dropped
from spangate.call.errors import Refused
from spangate.call.events import Closed, Delta, Event, Opened

OPENED, HEL, LO, CLOSED = Opened(model="m"), Delta(b"Hel"), Delta(b"lo"), Closed(finish="stop")
HELLO: list[Event] = [OPENED, HEL, LO, CLOSED]
CALL = Call(op="chat", model="m", body=Body.of({"model": "m"}))


@dataclass
class Diary:
    """Who opened and closed, in order, and in which task."""

    lines: list[tuple[str, str, asyncio.Task[Any] | None]] = field(default_factory=list)

    def opened(self, name: str) -> None:
        self.lines.append(("opened", name, asyncio.current_task()))

    def closed(self, name: str) -> None:
        self.lines.append(("closed", name, asyncio.current_task()))

    def names(self, what: str) -> list[str]:
        return [name for said, name, _ in self.lines if said == what]

    def tasks(self) -> set[asyncio.Task[Any] | None]:
        return {task for _, _, task in self.lines}

    def closed_inner_first(self) -> bool:
        """Everything that opened closed, in the reverse order, in one task."""
        return self.names("closed") == self.names("opened")[::-1] and len(self.tasks()) <= 1


class Steps:
    """Suspension points, counted. At the `cancel_at`-th the task that waits there is cancelled, as a server does it."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.count = 0
        self.cancel_at = cancel_at

    async def __call__(self) -> None:
        self.count += 1
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        task = asyncio.current_task()
        assert task is not None
        loop.call_soon(task.cancel if self.count == self.cancel_at else lambda: waiting.done() or waiting.set_result(None))
        await waiting


def answering(diary: Diary, step: Steps | None = None, events: Sequence[Event] = HELLO, fail_at: int | None = None) -> Next:
    """The innermost place. `fail_at`: it fails instead of giving that event."""
    step = step or Steps()

    async def answer(call: Call) -> AsyncIterator[Event]:
        diary.opened("provider")
        try:
            for number, event in enumerate(events):
                await step()
                if number == fail_at:
                    raise Mishap("provider")
                yield event
            await step()
            if fail_at == len(events):
                raise Mishap("provider")
        finally:
            diary.closed("provider")

    return answer


def layer(name: str, diary: Diary, step: Steps | None = None, fail: str = "") -> Policy:
    """A tidy layer that does nothing but live through a call. `fail`: where it fails: before, opened, delta, end or after."""
    step = step or Steps()

    async def policy(call: Call, next: Next) -> AsyncIterator[Event]:
        diary.opened(name)
        try:
            await step()
            fails(name, fail, "before")
            async with pulling(next(call)) as events:
                async for event in events:
                    await step()
                    fails(name, fail, type(event).__name__.lower())
                    yield event
            await step()
            fails(name, fail, "after")
        finally:
            diary.closed(name)

    return policy


class Mishap(Exception):
    """What a layer of a test fails with."""


def fails(name: str, wanted: str, here: str) -> None:
    if wanted == here:
        raise Mishap(name)


async def listen(next: Next, *, stop_after: int | None = None, call: Call = CALL, heard: list[Event] | None = None) -> list[Event]:
    """What a consumer hears, up to the end or as far as it cares to listen. `heard`: also what came before an error."""
    heard = [] if heard is None else heard
    async with pulling(next(call)) as events:
        async for event in events:
            heard.append(event)
            if len(heard) == stop_after:
                break
    return heard


# What a chain is


async def test_no_layer_is_the_answer_itself() -> None:
    assert await listen(chain([], answering(Diary()))) == HELLO


async def test_the_first_policy_is_the_outermost() -> None:
    diary = Diary()
    heard = await listen(chain([layer("outer", diary), layer("inner", diary)], answering(diary)))
    assert heard == HELLO
    assert diary.names("opened") == ["outer", "inner", "provider"]
    assert diary.closed_inner_first()


async def test_a_chain_is_built_once_and_called_often() -> None:
    diary = Diary()
    next = chain([layer("only", diary)], answering(diary))
    assert [await listen(next), await listen(next)] == [HELLO, HELLO]
    assert diary.names("opened") == ["only", "provider"] * 2


async def test_calls_at_the_same_time_do_not_meet() -> None:
    async def labelled(call: Call) -> AsyncIterator[Event]:
        await Steps()()
        yield Opened(model=call.model)
        await Steps()()
        yield CLOSED

    next = chain([layer("only", Diary())], labelled)
    both = await asyncio.gather(*(listen(next, call=Call(op="chat", model=name, body=Body.of({}))) for name in ("one", "two")))
    assert both == [[Opened(model="one"), CLOSED], [Opened(model="two"), CLOSED]]


async def test_a_layer_changes_what_goes_in_and_what_comes_out() -> None:
    async def shouting(call: Call, next: Next) -> AsyncIterator[Event]:
        async with pulling(next(call.with_body(call.body.changed(model="other")))) as events:
            async for event in events:
                yield Delta(event.raw.upper()) if isinstance(event, Delta) else event

    async def echo(call: Call) -> AsyncIterator[Event]:
        yield OPENED
        yield Delta(b"".join(call.body.pieces()))
        yield CLOSED

    assert await listen(chain([shouting], echo)) == [OPENED, Delta(b'{"MODEL":"OTHER"}'), CLOSED]
    assert CALL.body.get("model") == "m"


async def test_a_plain_function_stands_in_the_chain_and_costs_no_generator() -> None:
    def renaming(call: Call, next: Next) -> AsyncIterator[Event]:
        return next(call.with_body(call.body.changed(model="renamed")))

    async def echo(call: Call) -> AsyncIterator[Event]:
        yield Opened(model=call.body.get("model"))

    events = chain([renaming, renaming], echo)(CALL)
    assert getattr(events, "__name__", "") == "echo"
    async with pulling(events) as pulled:
        assert [event async for event in pulled] == [Opened(model="renamed")]


async def test_a_layer_that_never_calls_next_answers_itself() -> None:
    async def cached(call: Call, next: Next) -> AsyncIterator[Event]:
        yield OPENED
        yield CLOSED

    diary = Diary()
    assert await listen(chain([layer("outer", diary), cached], answering(diary))) == [OPENED, CLOSED]
    assert diary.names("opened") == ["outer"]
    assert diary.closed_inner_first()


async def test_a_layer_calls_next_twice() -> None:
    """As retry does: the first attempt is closed before the second begins."""
    diary, failures = Diary(), [0, None]

    def flaky(call: Call) -> AsyncIterator[Event]:
        return answering(diary, fail_at=failures.pop(0))(call)

    async def twice(call: Call, next: Next) -> AsyncIterator[Event]:
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event
        except Mishap:
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event

    assert await listen(chain([layer("outer", diary), twice, layer("inner", diary)], flaky)) == HELLO
    attempt = [("opened", "inner"), ("opened", "provider"), ("closed", "provider"), ("closed", "inner")]
    assert [line[:2] for line in diary.lines] == [("opened", "outer"), *attempt, *attempt, ("closed", "outer")]


async def test_an_iterator_without_aclose_fits_too() -> None:
    class Foreign:
        """What a third party's layer may return: an iterator, and nothing more."""

        def __init__(self) -> None:
            self.left = list(HELLO)

        def __aiter__(self) -> Foreign:
            return self

        async def __anext__(self) -> Event:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert await listen(lambda call: Foreign()) == HELLO
    assert await listen(lambda call: Foreign(), stop_after=2) == HELLO[:2]


# Ends before the end


@pytest.mark.parametrize("after", [1, 2, 3, 4])
async def test_a_consumer_that_leaves_closes_the_inside_first(after: int) -> None:
    diary = Diary()
    heard = await listen(chain([layer("a", diary), layer("b", diary), layer("c", diary)], answering(diary)), stop_after=after)
    assert heard == HELLO[:after]
    assert diary.names("closed") == ["provider", "c", "b", "a"]
    assert diary.tasks() == {asyncio.current_task()}


async def test_a_layer_that_stops_has_closed_its_inside_before_it_says_so() -> None:
    diary = Diary()

    async def cutting(call: Call, next: Next) -> AsyncIterator[Event]:
        async with pulling(next(call)) as events:
            async for event in events:
                yield event
                if isinstance(event, Delta):
                    break
        diary.opened("the end")
        yield Closed(finish="length")

    assert await listen(chain([layer("a", diary), cutting, layer("b", diary)], answering(diary))) == [OPENED, HEL, Closed(finish="length")]
    said = [line[:2] for line in diary.lines]
    assert said.index(("closed", "provider")) < said.index(("closed", "b")) < said.index(("opened", "the end"))
    assert diary.tasks() == {asyncio.current_task()}


async def test_cancelled_at_every_await() -> None:
    """The task is cancelled at its 1st suspension, at its 2nd, … until it gets through: each time all that opened has closed."""

    async def conversation(steps: Steps, diary: Diary) -> list[Event]:
        heard: list[Event] = []
        async with pulling(chain([layer("a", diary, steps), layer("b", diary, steps)], answering(diary, steps))(CALL)) as events:
            async for event in events:
                await steps()
                heard.append(event)
        return heard

    whole = Steps()
    assert await conversation(whole, Diary()) == HELLO
    for cancel_at in range(1, whole.count + 1):
        diary, steps = Diary(), Steps(cancel_at)
        task = asyncio.create_task(conversation(steps, diary))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps.count == cancel_at, "nothing waits while it closes"
        assert diary.closed_inner_first(), cancel_at
        assert diary.names("opened") == ["a", "b", "provider"][: min(cancel_at, 3)]
        assert diary.tasks() == {task}
    assert whole.count == 2 + 4 * 4 + 3  # before, each event through four hands, after


# Errors

PLACES = {"before": [], "opened": [], "delta": [OPENED], "closed": [OPENED, HEL, LO], "after": HELLO}


@pytest.mark.parametrize(("fail", "heard"), PLACES.items())
@pytest.mark.parametrize("culprit", ["a", "b", "c"])
async def test_an_error_of_any_layer_anywhere_closes_all_and_reaches_the_consumer(culprit: str, fail: str, heard: list[Event]) -> None:
    diary = Diary()
    layers = [layer(name, diary, fail=fail if name == culprit else "") for name in "abc"]
    got: list[Event] = []
    with pytest.raises(Mishap, match=culprit):
        await listen(chain(layers, answering(diary)), heard=got)
    assert got == heard
    assert diary.closed_inner_first()
    opened = "abc"[: "abc".index(culprit) + 1] if fail == "before" else "abc"
    assert diary.names("opened") == [*opened, *([] if fail == "before" else ["provider"])]
    assert diary.tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("fail_at", range(5))
async def test_an_error_of_the_provider_passes_all_layers(fail_at: int) -> None:
    diary = Diary()
    got: list[Event] = []
    with pytest.raises(Mishap, match="provider"):
        await listen(chain([layer("a", diary), layer("b", diary)], answering(diary, fail_at=fail_at)), heard=got)
    assert got == HELLO[:fail_at]
    assert diary.names("closed") == ["provider", "b", "a"]


async def test_a_layer_turns_an_error_into_another_answer() -> None:
    """As fallback does, around the first pull only."""
    diary = Diary()

    async def falling_back(call: Call, next: Next) -> AsyncIterator[Event]:
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event
        except Mishap:
            yield Opened(model="spare")
            yield CLOSED

    next = chain([falling_back, layer("b", diary)], answering(diary, fail_at=0))
    assert await listen(next) == [Opened(model="spare"), CLOSED]
    assert diary.closed_inner_first()


def refused_at_the_call(call: Call, next: Next) -> AsyncIterator[Event]:
    raise Refused("no", code="rate_limit_exceeded")


async def refused_at_the_first_pull(call: Call, next: Next) -> AsyncIterator[Event]:
    raise Refused("no", code="rate_limit_exceeded")
    yield


@pytest.mark.parametrize("refusing", [refused_at_the_call, refused_at_the_first_pull])
@pytest.mark.parametrize("outside", [0, 1, 3])
async def test_a_refusal_at_the_call_and_at_the_first_pull_are_alike(refusing: Policy, outside: int) -> None:
    diary = Diary()
    layers = [layer(f"outer {number}", diary) for number in range(outside)]
    with pytest.raises(Refused) as refusal:
        await listen(chain([*layers, refusing, layer("inner", diary)], answering(diary)))
    assert refusal.value.code == "rate_limit_exceeded"
    assert len(diary.names("opened")) == outside
    assert diary.closed_inner_first()


# Attempts in tasks


class Race:
    """A policy that runs two attempts at once, as hedge does: the first to open wins.

    It owns their tasks, reads them through queues of one place, and has cancelled and awaited the loser before it ends.
    """

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        queues: list[asyncio.Queue[Event | None]] = [asyncio.Queue(1), asyncio.Queue(1)]
        attempts = [asyncio.create_task(self._attempt(call, next, queue)) for queue in queues]
        pulls = [asyncio.create_task(queue.get()) for queue in queues]
        try:
            await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
            winner = 0 if pulls[0].done() else 1
            attempts[1 - winner].cancel()
            await asyncio.wait([attempts[1 - winner]])
            event = await pulls[winner]
            while event is not None:
                yield event
                event = await queues[winner].get()
        finally:
            for task in (*attempts, *pulls):
                task.cancel()
            await asyncio.wait([*attempts, *pulls])

    async def _attempt(self, call: Call, next: Next, queue: asyncio.Queue[Event | None]) -> None:
        async with pulling(next(call)) as events:
            async for event in events:
                await queue.put(event)
        await queue.put(None)


class Racers:
    """Two answerers, of which the first waits until it is cancelled."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary
        self.started = 0

    async def __call__(self, call: Call) -> AsyncIterator[Event]:
        self.started += 1
        name = "slow" if self.started == 1 else "fast"
        self.diary.opened(name)
        try:
            if name == "slow":
                await asyncio.get_running_loop().create_future()
            for event in HELLO:
                yield event
        finally:
            self.diary.closed(name)


async def test_two_attempts_the_loser_is_gone_before_the_winner_is_heard() -> None:
    diary, outer = Diary(), Diary()
    heard: list[Event] = []
    async with pulling(chain([layer("outer", outer), Race(), layer("attempt", diary)], Racers(diary))(CALL)) as events:
        async for event in events:
            if not heard:
                assert diary.names("closed")[:2] == ["slow", "attempt"]
            heard.append(event)
    assert heard == HELLO
    assert diary.names("closed") == ["slow", "attempt", "fast", "attempt"]
    assert outer.closed_inner_first()
    for name in ("slow", "fast"):
        assert len({task for _, who, task in diary.lines if who == name}) == 1, "an attempt opens and closes in its own task"
    assert asyncio.current_task() not in diary.tasks()


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_two_attempts_and_a_consumer_that_leaves(after: int) -> None:
    diary = Diary()
    assert await listen(chain([Race(), layer("attempt", diary)], Racers(diary)), stop_after=after) == HELLO[:after]
    assert sorted(diary.names("closed")) == ["attempt", "attempt", "fast", "slow"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_two_attempts_cancelled_while_neither_has_answered() -> None:
    diary, both = Diary(), asyncio.Event()

    async def silent(call: Call) -> AsyncIterator[Event]:
        diary.opened("silent")
        try:
            if len(diary.lines) == 2:
                both.set()
            await asyncio.get_running_loop().create_future()
            yield OPENED
        finally:
            diary.closed("silent")

    task = asyncio.create_task(listen(chain([Race()], silent)))
    await both.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert diary.names("closed") == ["silent", "silent"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


# A layer that forgets


async def sloppy(call: Call, next: Next) -> AsyncIterator[Event]:
    async for event in next(call):
        yield event
        if isinstance(event, Delta):
            break


async def tidy(call: Call, next: Next) -> AsyncIterator[Event]:
    async with pulling(next(call)) as events:
        async for event in events:
            yield event
            if isinstance(event, Delta):
                break


def closed_after(policy: Policy, report: Callable[[str], None]) -> list[str]:
    """A watched call through `policy`: what was closed at the end.

    On a loop of its own: a layer that forgets is what fails any other test here.
    """
    diary = Diary()

    async def conversation() -> None:
        with watching_dropped(report):
            await listen(chain([policy], answering(diary)))
            gc.collect()
            await Steps()()  # the loop's own finalizer closes what was dropped
            await Steps()()

    asyncio.run(conversation())
    return diary.names("closed")


def test_a_sloppy_layer_is_reported_and_its_inside_is_closed_all_the_same() -> None:
    told: list[str] = []
    assert closed_after(sloppy, told.append) == ["provider"]
    assert told == ["answering.<locals>.answer"]


@pytest.mark.parametrize("policy", [tidy, layer("whole", Diary())])
def test_a_tidy_layer_is_not(policy: Policy) -> None:
    told: list[str] = []
    assert closed_after(policy, told.append) == ["provider"]
    assert told == []


def test_a_report_that_raises_keeps_nothing_from_closing() -> None:
    def strict(name: str) -> None:
        raise AssertionError(name)

    raised: list[str] = []
    usual, sys.unraisablehook = sys.unraisablehook, lambda told: raised.append(str(told.exc_value))
    try:
        assert closed_after(sloppy, strict) == ["provider"]
    finally:
        sys.unraisablehook = usual
    assert raised == ["answering.<locals>.answer"]


async def test_a_layer_is_told_from_other_peoples_generators() -> None:
    async def lines() -> AsyncIterator[str]:
        yield "line"

    policy, foreign = tidy(CALL, answering(Diary())), lines()
    assert [is_layer(each) for each in (policy, foreign)] == [True, False]  # type: ignore[arg-type]


def test_watching_ends_with_its_block() -> None:
    async def hooks() -> tuple[object, object, object]:
        before = sys.get_asyncgen_hooks()
        with watching_dropped(lambda name: None):
            within = sys.get_asyncgen_hooks()
        return before, within, sys.get_asyncgen_hooks()

    before, within, after = asyncio.run(hooks())
    assert before == after != within


class Placed:
    """A policy with a place, which it need not have."""

    def __init__(self, stage: int | None) -> None:
        if stage is not None:
            self.stage = stage

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        return next(call)


def test_policies_stand_by_stage_and_then_as_listed() -> None:
    late, plain, early, also_early = Placed(80), Placed(None), Placed(10), Placed(10)
    assert in_order([late, plain, early, also_early]) == [early, also_early, plain, late]
