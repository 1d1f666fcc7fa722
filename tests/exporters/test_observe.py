"""exporters/observe.py: what a call's Seen knows of its answer and of each attempt, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spangate.call.body import Body
from spangate.call.call import Call, Target
from spangate.call.chain import chain, pulling
from spangate.call.errors import OurFault, ProviderFault, SpangateError, UpstreamError, UpstreamIncomplete, UpstreamTimeout
from spangate.call.events import Closed, Delta, Event, Opened, Usage
from spangate.call.spoken import Sample
from spangate.call.usage import NOTHING
from spangate.exporters.observe import Around, Attempt, Counting

USAGE = Usage(7, 2)
OPENED, PIECE, CLOSED = Opened(model="m-1", request_id="r1"), Delta(b"data: {}\n\n"), Closed(USAGE, "stop")


class Meter:
    """One that only listens: what it was told of attempts."""

    def __init__(self) -> None:
        self.told: list[tuple[Target | None, Usage | None, bool]] = []

    def after(self, call: Call, billed: Usage | None, *, cut: bool) -> None:
        self.told.append((call.target, billed, cut))


def call() -> Call:
    return Call(op="chat", model="m", body=Body.of({}), target=Target("up", "m-big"))


async def observed(*events: Event | BaseException, take: int = 99, counting: Counting | None = None, charged: bool = False) -> Call:
    """A call through both layers; the outside takes so many events. `charged`: a budget concerns it."""
    asked = replace(call(), meter=Meter()) if charged else call()

    async def answer(call: Call) -> AsyncIterator[Event]:
        for event in events:
            if isinstance(event, BaseException):
                raise event
            yield event

    try:
        async with pulling(chain([Around(), Attempt(counting=counting)], answer)(asked)) as answering:
            for _ in range(take):
                await anext(answering)
    except (StopAsyncIteration, SpangateError, asyncio.CancelledError):
        pass
    return asked


async def test_a_good_answer() -> None:
    seen = (await observed(OPENED, PIECE, CLOSED)).seen
    (attempt,) = seen.attempts
    assert (seen.provider, seen.target_model, seen.answered_model) == ("up", "m-big", "m-1")
    assert (seen.usage, seen.finish) == (USAGE, "stop")
    assert seen.started <= seen.first_content <= attempt.ended
    assert (attempt.number, attempt.outcome, attempt.status, attempt.usage) == (1, "success", 200, USAGE)
    assert (attempt.upstream_request_id, attempt.error_type) == ("r1", "")
    assert seen.outcome is None  # whoever answers ends it


@pytest.mark.parametrize(
    ("events", "take", "cut"),
    [
        ((OPENED, PIECE, CLOSED), 99, False),
        ((OPENED, PIECE, Closed(USAGE, "length")), 99, True),
        ((OPENED, PIECE, UpstreamIncomplete("no")), 99, False),
        ((UpstreamError("no", status=503),), 99, False),
        ((OPENED, asyncio.CancelledError("late")), 99, False),
        ((OPENED, PIECE, CLOSED), 1, False),
    ],
    ids=["whole", "at its cap", "broken off", "refused", "cancelled", "left"],
)
async def test_a_meter_hears_of_each_attempt_once(events: tuple[Event | BaseException, ...], take: int, cut: bool) -> None:
    asked = await observed(*events, take=take, charged=True)
    (attempt,) = asked.seen.attempts
    assert asked.meter.told == [(Target("up", "m-big"), attempt.billed, cut)]
    assert attempt.billed is not None


@pytest.mark.parametrize(
    ("fault", "status", "error_type"),
    [
        (UpstreamError("no", status=503), 503, "503"),
        (UpstreamError("no", status=429, own_code="insufficient_quota"), 429, "insufficient_quota"),
        (UpstreamError("no", status=400, own_code="sk-0123456789"), 400, "400"),
        (UpstreamError("no", own_code=503), None, "upstream_error"),
        (UpstreamError("no"), None, "upstream_error"),
        (UpstreamIncomplete("no"), None, "upstream_incomplete"),
        (UpstreamTimeout("no", limit="connect"), None, "upstream_timeout"),
    ],
)
async def test_a_provider_that_fails(fault: ProviderFault, status: int | None, error_type: str) -> None:
    (attempt,) = (await observed(fault)).seen.attempts
    assert (attempt.outcome, attempt.status, attempt.error_type) == ("error", status, error_type)


async def test_a_provider_that_fails_in_the_middle() -> None:
    seen = (await observed(OPENED, PIECE, UpstreamIncomplete("no"))).seen
    (attempt,) = seen.attempts
    assert (attempt.outcome, attempt.status, attempt.error_type) == ("error", 200, "upstream_incomplete")
    assert seen.usage is None


async def test_a_caller_who_leaves() -> None:
    (attempt,) = (await observed(OPENED, PIECE, CLOSED, take=2)).seen.attempts
    assert (attempt.outcome, attempt.error_type) == ("cancelled", "")
    assert attempt.ended > 0


async def test_a_cancellation_tells_why_or_not() -> None:
    (attempt,) = (await observed(asyncio.CancelledError())).seen.attempts
    assert (attempt.outcome, attempt.error_type) == ("cancelled", "")
    (attempt,) = (await observed(asyncio.CancelledError(UpstreamTimeout("late", limit="first")))).seen.attempts
    assert (attempt.outcome, attempt.error_type) == ("error", "upstream_timeout")


async def test_a_defect_is_no_providers_error() -> None:
    (attempt,) = (await observed(OurFault("a defect"))).seen.attempts
    assert attempt.outcome == "cancelled"


class Counts:
    """Counts a thousand of input and five of output. `prepared`: how often it was asked to."""

    def __init__(self, said: int | None = 5) -> None:
        self.prepared = 0
        self._said = said

    async def prepare(self, call: Call) -> None:
        self.prepared += 1

    def asked(self, call: Call) -> int:
        return 1000

    def said(self, model: str, samples: Sequence[Sample]) -> int | None:
        assert model == "m-big"
        return self._said


WORDS = Delta(b'data: {"choices":[{"index":0,"delta":{"content":"hello there"}}]}\n\n')
COUNTED, THUMB = Usage(1000, 5, source="estimated"), Usage(1000, 3, source="estimated")


@pytest.mark.parametrize(
    ("events", "said", "billed", "prepared"),
    [
        ([OPENED, WORDS, CLOSED], 5, USAGE, 0),
        ([OPENED, WORDS, Closed(None, "stop")], 5, COUNTED, 1),
        ([OPENED, WORDS, Closed(None, "stop")], None, THUMB, 1),
        ([OPENED, WORDS, Closed(Usage(7, unknown="output"), "stop")], 5, Usage(7, 5, source="estimated"), 1),
        ([OPENED, *[WORDS] * 9, Closed(None, "stop")], 5, Usage(1000, 9, source="estimated"), 1),
        ([OPENED, WORDS, UpstreamIncomplete("no")], 5, COUNTED, 0),
        ([OPENED, WORDS, UpstreamError("no")], 5, COUNTED, 0),
        ([UpstreamIncomplete("no")], 0, Usage(1000, 0, source="estimated"), 0),
        ([UpstreamError("no", status=503)], 5, NOTHING, 0),
        ([UpstreamTimeout("no", limit="connect")], 5, NOTHING, 0),
        ([asyncio.CancelledError()], 0, Usage(1000, 0, source="estimated"), 0),
        ([asyncio.CancelledError(UpstreamTimeout("late", limit="connect"))], 0, NOTHING, 0),
    ],
)
async def test_what_an_attempt_counts_for(events: list[Any], said: int | None, billed: Usage, prepared: int) -> None:
    counting = Counts(said)
    (attempt,) = (await observed(*events, counting=counting, charged=True)).seen.attempts
    assert (attempt.billed, counting.prepared) == (billed, prepared)


@pytest.mark.parametrize(("counts", "charged"), [(False, False), (False, True), (True, False)])
async def test_it_is_a_rule_of_thumb_where_nobody_counts_or_no_budget_cares(counts: bool, charged: bool) -> None:
    counting = Counts() if counts else None
    (attempt,) = (await observed(OPENED, WORDS, Closed(None, "stop"), counting=counting, charged=charged)).seen.attempts
    assert attempt.billed == Usage(0, 3, source="estimated")
    assert counting is None or counting.prepared == 0


async def test_each_attempt_has_its_number() -> None:
    asked = call()

    async def answer(call: Call) -> AsyncIterator[Event]:
        yield CLOSED

    layer = chain([Attempt()], answer)
    for _ in range(2):
        async with pulling(layer(asked)) as answering:
            assert [event async for event in answering] == [CLOSED]
    assert [attempt.number for attempt in asked.seen.attempts] == [1, 2]
    assert len({attempt.span_id for attempt in asked.seen.attempts}) == 2
