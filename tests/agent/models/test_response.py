"""agent/models/response.py: whole answers and streams are read alike; a primed stream has begun."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from spangate.agent import ChatResponse, ChatUsage, ModelStream, NoAnswer, TextBlock, ThinkingBlock, ToolCallBlock
from spangate.agent.models.response import Gathered, as_answer, primed
from spangate.call.errors import UpstreamIncomplete


class Source:
    """Pieces, or an error. `closed`: it was left in good order."""

    def __init__(self, *steps: ChatResponse | Exception) -> None:
        self.steps = steps
        self.closed = False

    async def __call__(self) -> AsyncGenerator[ChatResponse, None]:
        try:
            for step in self.steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.closed = True


def piece(text: str, **fields: Any) -> ChatResponse:
    return ChatResponse([TextBlock(text, "b")], **{"is_last": False} | fields)


LAST = piece("ab", is_last=True, finish="stop", usage=ChatUsage(1, 2))


@pytest.mark.parametrize("whole", [True, False])
async def test_a_whole_answer_and_a_stream_are_read_alike(whole: bool) -> None:
    seen: list[str] = []

    async def later(answer: ChatResponse) -> None:
        seen.append(f"later {answer.text}")

    answer: Any = LAST if whole else ModelStream(Source(piece("a"), piece("b"), LAST)())
    answer = answer.then(lambda each: seen.append(each.text)).then(later)
    pieces = [each.text async for each in answer]
    assert pieces[-1] == "ab"
    assert seen == ["ab", "later ab"]
    assert (await LAST.response()).usage == ChatUsage(1, 2)
    await answer.aclose()


async def test_a_stream_of_one() -> None:
    assert [each.text async for each in ModelStream.of(LAST)] == ["ab"]
    assert (await ModelStream.of(LAST).response()) is LAST


async def test_callbacks_run_once_and_not_on_a_stop_a_failure_or_an_early_end() -> None:
    seen: list[str] = []
    stop = ModelStream.stop()
    stop.then(lambda each: seen.append("stop"))
    await ModelStream.of(stop).then(lambda each: seen.append("stop")).response()
    failing = ModelStream(Source(piece("a"), OSError("gone"))()).then(lambda each: seen.append("failed"))
    with pytest.raises(OSError, match="gone"):
        await failing.response()
    left = ModelStream(Source(piece("a"), LAST)()).then(lambda each: seen.append("left"))
    await anext(left)
    await left.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(left)
    assert seen == []


async def test_a_stream_without_a_last_piece_is_no_answer() -> None:
    source = Source(piece("a"))
    with pytest.raises(NoAnswer, match="without its last piece"):
        await ModelStream(source()).response()
    assert source.closed


async def test_primed_waits_for_the_first_content() -> None:
    source = Source(piece(""), ChatResponse([ThinkingBlock("")], is_last=False), piece("a"), piece("b"), LAST)
    stream = await primed(source())
    assert [each.text async for each in stream] == ["", "", "a", "b", "ab"]
    assert source.closed


@pytest.mark.parametrize("steps", [[], [piece("")], [ChatResponse(finish="stop")], [ChatResponse()], [OSError("gone")]], ids=str)
async def test_what_goes_wrong_before_that_is_raised_and_the_source_closed(steps: list[Any]) -> None:
    source = Source(*steps)
    with pytest.raises((NoAnswer, OSError)):
        await primed(source())
    assert source.closed


async def test_an_answer_cut_by_its_length_may_be_empty() -> None:
    assert (await (await primed(Source(ChatResponse(finish="length"))())).response()).finish == "length"


async def test_a_primed_stream_that_nobody_reads_is_closed_all_the_same() -> None:
    source = Source(piece("a"), LAST)
    stream = await primed(source())
    await stream.aclose()
    assert source.closed


async def test_what_a_layer_may_return() -> None:
    async def generator() -> AsyncIterator[ChatResponse]:
        yield LAST

    made = as_answer(generator())
    assert isinstance(made, ModelStream)
    assert isinstance(made, AsyncGenerator)
    assert await made.response() is LAST
    assert as_answer(LAST) is LAST
    assert as_answer(None) is None
    assert as_answer("text") is None


def test_pieces_are_put_together_by_block() -> None:
    gathered = Gathered()
    first = TextBlock("a", "t")
    for block in (
        first,
        ToolCallBlock("c", "f", '{"a"'),
        TextBlock("b", "t"),
        ToolCallBlock("c", "f", ":1}"),
        ThinkingBlock("", "x", {"d": {"s": 1}}),
    ):
        gathered.add(ChatResponse([block], is_last=False))
    gathered.add(ChatResponse([ThinkingBlock("hm", "x", {"d": {"u": 2}})], is_last=False))
    text, call, thinking = gathered.content
    assert isinstance(text, TextBlock)
    assert isinstance(call, ToolCallBlock)
    assert (text.text, call.input, thinking.extra) == ("ab", '{"a":1}', {"d": {"s": 1, "u": 2}})
    assert first.text == "a", "a piece that was given is not written to"


async def test_whoever_leaves_a_whole_answer_leaves_nothing_open() -> None:
    answer = ChatResponse.of("x")
    async for piece in answer:
        assert piece is answer
        break
    assert [piece async for piece in answer] == [answer]
    assert not hasattr(aiter(answer), "aclose")


def test_characters_that_were_cut_in_two_are_whole_again() -> None:
    gathered = Gathered()
    for text in ("so \ud83d", "\ude00 it", " is\ud83d"):
        gathered.add(piece(text))
    [block] = gathered.content
    assert isinstance(block, TextBlock)
    assert block.text == "so \U0001f600 it is\ufffd"
    assert gathered.content == [block]
    alone = Gathered()
    alone.add(piece("so\ud83d"))
    assert alone.content[0].text == "so\ufffd"  # type: ignore[union-attr]


@pytest.mark.parametrize("odd", [None, "text", {}, 7])
async def test_a_piece_that_is_none_is_no_answer(odd: Any) -> None:
    async def pieces(*given: Any) -> AsyncGenerator[Any, None]:
        for each in given:
            yield each

    said = f"gave a {type(odd).__name__} as a piece"
    with pytest.raises(NoAnswer, match=said):
        await primed(pieces(odd))
    stream = await primed(pieces(piece("a"), odd))
    with pytest.raises(NoAnswer, match=said):
        await stream.response()


@pytest.mark.parametrize("odd", [[None], ["text"], [TextBlock("a"), {}], (7,)])
def test_an_answer_of_what_are_no_blocks_is_refused_where_it_is_made(odd: Any) -> None:
    with pytest.raises(TypeError, match=r"list of blocks, and a (NoneType|str|dict|int) is none"):
        ChatResponse(odd)
    assert ChatResponse("text").text == "text"  # type: ignore[arg-type]


async def test_what_says_nothing_is_not_kept_for_ever() -> None:
    async def pieces() -> AsyncGenerator[ChatResponse, None]:
        for number in range(100_000):
            yield piece("", usage=ChatUsage(number))
        yield LAST

    stream = await primed(pieces())
    heard = [each async for each in stream]
    assert heard[-1] == LAST
    assert len(heard) < 100


def test_an_answer_has_an_end() -> None:
    gathered = Gathered()
    for _ in range(16):
        gathered.add(piece("x" * (1 << 20)))
    with pytest.raises(UpstreamIncomplete, match="longer than 16777216 characters"):
        gathered.add(piece("x"))


def test_many_pieces_cost_what_they_weigh() -> None:
    gathered, began = Gathered(), time.process_time()
    for _ in range(50_000):
        gathered.add(piece("x" * 200))
    assert len(gathered.content[0].text) == 10_000_000  # type: ignore[union-attr]
    assert time.process_time() - began < 3
