"""proxy/answering.py: when the status goes out, what keeps a silent stream alive, what ends an answer and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from spangate.call import sse
from spangate.call.body import Body
from spangate.call.call import Call, Head
from spangate.call.errors import OurFault, UpstreamError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.call.seen import Outcome
from spangate.proxy import answering

from exchange import Paper

SSE, ONE, TWO = Opened(), Delta(b"data: 1\n\n"), Delta(b"data: 2\n\n")
JSON = Opened(stream=False, content_type="application/json")
Step = Event | BaseException | float | Callable[[], None]


def call(*, stream: bool = True) -> Call:
    return Call(op="chat", model="m", body=Body.of({}), head=Head(stream=stream))


class Chain:
    """A chain's events, waits and errors in order; `closed`: it was left in good order."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.closed = False

    async def events(self) -> AsyncIterator[Event]:
        try:
            for step in self.steps:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, BaseException):
                    raise step
                elif callable(step):
                    step()
                else:
                    yield step
        finally:
            self.closed = True


class Settled:
    """When it was called: how much had been written by then."""

    def __init__(self, paper: Paper, chain: Chain) -> None:
        self._paper = paper
        self._chain = chain
        self.after: bytes | None = None
        self.outcome: Outcome | None = None

    def __call__(self, outcome: Outcome) -> None:
        assert self.after is None
        assert self._chain.closed, "settled before the chain was left"
        self.after, self.outcome = self._paper.body, outcome


async def streamed(paper: Paper, *steps: Step, keepalive: float = 0.0) -> Settled:
    chain = Chain(*steps)
    settled = Settled(paper, chain)
    try:
        await answering.stream(call(), chain.events(), paper, keepalive, settled)
    finally:
        assert chain.closed
    return settled


async def answered(paper: Paper, *steps: Step) -> Settled:
    chain = Chain(*steps)
    settled = Settled(paper, chain)
    try:
        await answering.whole(call(stream=False), chain.events(), paper, settled)
    finally:
        assert chain.closed
    return settled


# ---- streams


async def test_a_stream_ends_only_when_all_is_settled() -> None:
    paper = Paper()
    settled = await streamed(paper, SSE, ONE, TWO, Closed())
    assert settled.after == b"data: 1\n\ndata: 2\n\n"
    assert settled.outcome == "completed"
    assert paper.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert paper.ended


async def test_the_end_goes_out_as_it_came() -> None:
    paper = Paper()
    await streamed(paper, SSE, ONE, Closed(tail=b"data:[DONE]\r\n\r\n"))
    assert paper.body == b"data: 1\n\ndata:[DONE]\r\n\r\n"


async def test_the_head_of_a_stream() -> None:
    paper, opened = Paper(), Opened(headers={"openai-version": "1"})
    await streamed(paper, opened, ONE, Closed())
    assert paper.status == 200
    assert paper.sent["content-type"] == "text/event-stream"
    assert (paper.sent["cache-control"], paper.sent["x-accel-buffering"]) == ("no-cache", "no")
    assert paper.sent["openai-version"] == "1"
    assert {"x-request-id", "x-spangate-trace-id", "x-spangate-provider", "x-spangate-model", "x-spangate-attempts"} <= set(paper.sent)


async def test_an_error_before_the_head_leaves_the_status_to_others() -> None:
    paper = Paper()
    with pytest.raises(UpstreamError):
        await streamed(paper, UpstreamError("no"))
    assert not paper.started


async def test_an_error_after_the_head_is_for_others_to_tell() -> None:
    paper = Paper()
    with pytest.raises(UpstreamIncomplete):
        await streamed(paper, SSE, ONE, UpstreamIncomplete("no"))
    assert paper.body == ONE.raw
    assert not paper.ended


@pytest.mark.parametrize("answer", [streamed, answered])
async def test_a_chain_that_just_stops_is_no_end(answer: Callable[..., object]) -> None:
    paper = Paper()
    with pytest.raises(OurFault):
        await answer(paper, SSE, ONE)  # type: ignore[misc]
    assert b"[DONE]" not in paper.body
    assert not paper.ended


async def test_a_client_that_left_closes_the_chain() -> None:
    paper = Paper()
    with pytest.raises(ConnectionResetError):
        await streamed(paper, SSE, ONE, lambda: setattr(paper, "gone", True), TWO, Closed())
    assert paper.body == ONE.raw


async def test_what_is_no_stream_gets_no_done() -> None:
    paper = Paper()
    await streamed(paper, Opened(stream=False, content_type="application/x"), Delta(b"\x00\x01", sse=False), Closed())
    assert (paper.body, paper.sent["content-type"]) == (b"\x00\x01", "application/x")


# ---- comments


async def test_comments_begin_the_answer_and_end_with_content() -> None:
    paper = Paper()
    await streamed(paper, 0.25, SSE, 0.15, ONE, Closed(), keepalive=0.1)
    assert paper.written == [sse.KEEP_ALIVE, sse.KEEP_ALIVE, ONE.raw, sse.DONE]
    assert paper.sent["content-type"] == "text/event-stream"
    assert "x-request-id" in paper.sent
    assert "x-spangate-provider" not in paper.sent


async def test_a_fast_answer_has_no_comment() -> None:
    paper = Paper()
    await streamed(paper, SSE, 0.1, ONE, Closed(), keepalive=0.05)
    assert paper.written == [ONE.raw, sse.DONE]


async def test_an_error_among_comments() -> None:
    paper = Paper()
    with pytest.raises(UpstreamError):
        await streamed(paper, 0.15, UpstreamError("no"), keepalive=0.1)
    assert paper.written == [sse.KEEP_ALIVE]


async def test_a_comment_that_is_being_written_is_finished_first() -> None:
    paper = Paper()
    paper.room.clear()
    asyncio.get_running_loop().call_later(0.3, paper.room.set)
    await streamed(paper, 0.1, SSE, ONE, Closed(), keepalive=0.05)
    assert paper.written == [sse.KEEP_ALIVE, ONE.raw, sse.DONE]


async def test_a_client_that_left_among_comments_is_noticed_by_whoever_answers() -> None:
    paper = Paper()
    with pytest.raises(ConnectionResetError):
        await streamed(paper, lambda: setattr(paper, "gone", True), 0.15, SSE, ONE, Closed(), keepalive=0.05)


async def test_what_is_no_stream_cannot_follow_comments() -> None:
    paper = Paper()
    with pytest.raises(UpstreamError):
        await streamed(paper, 0.1, Opened(stream=False, content_type="application/x"), Closed(), keepalive=0.05)


# ---- whole answers


async def test_a_stream_that_was_cut_ends_well_and_is_told_so() -> None:
    paper = Paper()
    settled = await streamed(paper, SSE, ONE, Closed(finish="length", cut=True))
    assert paper.body == b"data: 1\n\n" + sse.DONE
    assert settled.outcome == "cut"


async def test_a_whole_answer_goes_out_once_all_is_settled() -> None:
    paper = Paper()
    settled = await answered(paper, JSON, Delta(b"{}", sse=False), Closed())
    assert settled.after == b""
    assert (paper.status, paper.written, paper.sent["content-type"]) == (200, [b"{}"], "application/json")
    assert "cache-control" not in paper.sent


async def test_the_last_piece_waits_until_all_is_settled() -> None:
    paper = Paper()
    settled = await answered(paper, JSON, Delta(b"{", sse=False), Delta(b"1", sse=False), Delta(b"}", sse=False), Closed(tail=b"\n"))
    assert settled.after == b"{1"
    assert paper.body == b"{1}\n"
    assert paper.ended


async def test_an_error_before_the_last_piece() -> None:
    paper = Paper()
    with pytest.raises(UpstreamIncomplete):
        await answered(paper, JSON, Delta(b"{", sse=False), Delta(b"1", sse=False), UpstreamIncomplete("no"))
    assert (paper.body, paper.ended) == (b"{", False)
