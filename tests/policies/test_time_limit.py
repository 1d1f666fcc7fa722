"""policies/time_limit.py: each limit in its turn, and whose cancellation it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import pytest
from pydantic import ValidationError

from spangate.call.body import Body
from spangate.call.call import Call, Head
from spangate.call.chain import Next, pulling
from spangate.call.errors import UpstreamIncomplete, UpstreamTimeout
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.policies.time_limit import TimeLimit

OPENED, PIECE, CLOSED = Opened(), Delta(b"data: {}\n\n"), Closed()


def call(*, stream: bool = True) -> Call:
    return Call(op="chat", model="m", body=Body.of({}), head=Head(stream=stream))


class Inside:
    """Events, each after so many seconds. `closed`: it was left in good order."""

    def __init__(self, *steps: tuple[float, Event]) -> None:
        self.steps = steps
        self.seen: list[Call] = []
        self.reasons: list[object] = []
        self.closed = False

    async def __call__(self, call: Call) -> AsyncIterator[Event]:
        self.seen.append(call)
        try:
            for seconds, event in self.steps:
                await asyncio.sleep(seconds)
                yield event
        except asyncio.CancelledError as cancelled:
            self.reasons += cancelled.args
            raise
        finally:
            self.closed = True


async def heard(limit: TimeLimit, inside: Next, *, stream: bool = True, pause: float = 0.0) -> Sequence[Event]:
    """What the outside hears, taking its time after each event."""
    events = []
    async with pulling(limit(call(stream=stream), inside)) as answer:
        async for event in answer:
            events.append(event)
            await asyncio.sleep(pause)
    assert not isinstance(inside, Inside) or inside.closed
    return events


async def too_late(limit: TimeLimit, inside: Inside, *, stream: bool = True, pause: float = 0.0) -> UpstreamTimeout:
    with pytest.raises(UpstreamTimeout) as caught:
        await heard(limit, inside, stream=stream, pause=pause)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert inside.reasons == [caught.value], "who is inside must know why"
    return caught.value


async def test_an_answer_in_time_passes_as_it_is() -> None:
    inside = Inside((0, OPENED), (0.01, PIECE), (0.01, PIECE), (0, CLOSED))
    limit = TimeLimit(first=1, silence=1, total=2, connect=3)
    assert await heard(limit, inside) == [OPENED, PIECE, PIECE, CLOSED]
    assert inside.seen[0].connect == 3
    assert inside.seen[0].deadline == pytest.approx(asyncio.get_running_loop().time() + 2, abs=0.5)
    assert inside.seen[0].begun == pytest.approx(asyncio.get_running_loop().time() + 1, abs=0.5)


@pytest.mark.parametrize(
    ("limits", "steps", "limit", "words"),
    [
        ({"first": 0.1}, [(5, OPENED)], "first", "The provider sent no content within 0.1 seconds."),
        ({"silence": 0.1}, [(0, OPENED), (5, PIECE)], "silence", "The provider fell silent for 0.1 seconds."),
        ({"silence": 0.1}, [(0, OPENED), (0, PIECE), (5, CLOSED)], "silence", "The provider fell silent for 0.1 seconds."),
        ({"total": 0.1}, [(5, OPENED)], "total", "The answer took longer than 0.1 seconds."),
        ({"total": 0.2, "silence": 0.1}, [(0, OPENED), *[(0.05, PIECE)] * 50], "total", "The answer took longer than 0.2 seconds."),
    ],
)
async def test_each_limit_of_a_stream(limits: dict[str, float], steps: list[tuple[float, Event]], limit: str, words: str) -> None:
    began = asyncio.get_running_loop().time()
    fault = await too_late(TimeLimit(**limits), Inside(*steps))
    assert (fault.limit, fault.message) == (limit, words)
    assert asyncio.get_running_loop().time() - began < 0.6


async def test_silence_counts_from_the_first_content_whatever_time_was_left_for_that() -> None:
    began = asyncio.get_running_loop().time()
    fault = await too_late(TimeLimit(first=30, silence=0.1), Inside((0, OPENED), (5, PIECE)))
    assert fault.limit == "silence"
    assert asyncio.get_running_loop().time() - began < 0.6


async def test_a_whole_answer_has_a_total_alone() -> None:
    limit = TimeLimit(first=0.05, silence=0.05, total=0.3)
    assert len(await heard(limit, Inside((0.1, OPENED), (0.1, PIECE), (0, CLOSED)), stream=False)) == 3
    assert (await too_late(limit, Inside((5, OPENED)), stream=False)).limit == "total"


async def test_the_time_of_the_outside_is_not_the_providers() -> None:
    limit = TimeLimit(first=0.05, silence=0.05, total=10)
    assert len(await heard(limit, Inside((0, OPENED), (0, PIECE), (0, CLOSED)), pause=0.15)) == 3


async def test_past_the_deadline_the_outside_is_not_hurried_but_the_provider_is() -> None:
    limit = TimeLimit(first=1, silence=1, total=0.1)
    assert (await too_late(limit, Inside((0, OPENED), (5, PIECE)), pause=0.25)).limit == "total"
    assert len(await heard(limit, Inside((0, OPENED), (0, CLOSED)), pause=0.15)) == 2


async def test_somebody_elses_cancellation_stays_theirs() -> None:
    inside = Inside((5, OPENED))
    task = asyncio.create_task(heard(TimeLimit(first=1), inside))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inside.closed


@pytest.mark.parametrize("theirs", [0.04, 0.06], ids=["theirs first", "ours first"])
async def test_both_at_once_is_the_others(theirs: float) -> None:
    inside = Inside((5, OPENED))
    task = asyncio.create_task(heard(TimeLimit(first=0.05), inside))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    loop.call_later(0.02, time.sleep, 0.08)  # so that both fall due in one turn of the loop
    loop.call_later(theirs, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inside.closed


async def test_an_outside_that_leaves_closes_the_inside() -> None:
    inside = Inside((0, OPENED), (5, PIECE))
    async with pulling(TimeLimit()(call(), inside)) as answer:
        assert await anext(answer) == OPENED
    assert inside.closed
    assert inside.reasons == []


async def test_an_error_of_the_inside_passes() -> None:
    async def broken(call: Call) -> AsyncIterator[Event]:
        yield OPENED
        raise UpstreamIncomplete("stopped")

    with pytest.raises(UpstreamIncomplete):
        await heard(TimeLimit(), broken)


async def test_what_was_reached_is_noted() -> None:
    asked = call()
    with pytest.raises(UpstreamTimeout):
        async with pulling(TimeLimit(first=0.02)(asked, Inside((5, OPENED)))) as answer:
            await anext(answer)
    assert [note.figures for note in asked.notes.named("time_limit.reached")] == [{"limit": "first", "seconds": 0.02}]


@pytest.mark.parametrize("limit", ["connect", "first", "silence", "total"])
def test_a_limit_of_no_time_is_refused(limit: str) -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        TimeLimit.model_validate({limit: "0s"})
