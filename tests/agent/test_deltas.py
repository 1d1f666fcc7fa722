"""agent/deltas.py: an answer as Deltas, and Deltas as an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from spangate.agent import Base64Source, ChatResponse, ChatUsage, DataBlock, ModelStream, NoAnswer, TextBlock, ThinkingBlock, ToolCallBlock
from spangate.agent.deltas import Piece, Retold, Source
from spangate.agent.models.chunks import proxy_usage
from spangate.call.events import Closed, Delta, Event, Opened

SIGNED = {"anthropic": {"signature": "s"}}
REFUSED = {"chat": {"refusal": True}}
PICTURE = DataBlock(Base64Source("AAAA", "image/png"))
ANSWERS: dict[str, list[list[Any]]] = {
    "text": [[TextBlock("one ", "t")], [TextBlock("two", "t")]],
    "nothing": [],
    "a refusal": [[TextBlock("I can't.", "t", REFUSED)]],
    "thinking, text, a call": [
        [ThinkingBlock("hm", "th")],
        [TextBlock("yes", "t")],
        [ToolCallBlock("c1", "look", "")],
        [ToolCallBlock("c1", "look", '{"of":')],
        [ToolCallBlock("c1", "look", '"it"}')],
    ],
    "two calls at once": [
        [ToolCallBlock("c1", "look", '{"a'), ToolCallBlock("c2", "find", "{")],
        [ToolCallBlock("c2", "find", "}"), ToolCallBlock("c1", "look", '":1}')],
    ],
}
WHOLE: dict[str, list[Any]] = {
    "text": [TextBlock("one two", "t")],
    "nothing": [],
    "a refusal": [TextBlock("I can't.", "t", REFUSED)],
    "thinking, text, a call": [ThinkingBlock("hm", "th"), TextBlock("yes", "t"), ToolCallBlock("c1", "look", '{"of":"it"}')],
    "two calls at once": [ToolCallBlock("c1", "look", '{"a":1}'), ToolCallBlock("c2", "find", "{}")],
}


def answer(pieces: Sequence[list[Any]], whole: list[Any]) -> tuple[ModelStream, ChatResponse]:
    last = ChatResponse(whole, usage=ChatUsage(3, 4), finish="stop", model="m-1")

    async def told() -> AsyncIterator[ChatResponse]:
        for content in pieces:
            yield ChatResponse(content, is_last=False, model="m-1")
        yield last

    return ModelStream(told()), last


async def retold(source: Source, given: Any, change: Callable[[Delta], Delta | None], *, stream: bool) -> tuple[ChatResponse, list[Event]]:
    events = [event async for event in source.events(given, stream=stream)]
    opened, closed = events[0], events[-1]
    assert isinstance(opened, Opened)
    assert isinstance(closed, Closed)
    back = Retold(opened, source)
    for event in events[1:-1]:
        assert isinstance(event, Delta)
        changed = change(event)
        if changed is not None:
            back.add(changed)
    return back.last(closed), events


def same(delta: Delta) -> Delta:
    return delta


def copied(delta: Delta) -> Delta:
    return Delta(delta.raw, sse=delta.sse)


def said(blocks: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What they say, and under which id; not what a dialect keeps beside it."""
    return [
        (
            each.type,
            each.id,
            getattr(each, "text", ""),
            getattr(each, "thinking", ""),
            getattr(each, "name", ""),
            getattr(each, "input", ""),
        )
        for each in blocks
    ]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_comes_through_untouched_is_the_very_answer(name: str, stream: bool) -> None:
    given, last = answer(ANSWERS[name], WHOLE[name])
    back, events = await retold(Source("m"), given, same, stream=stream)
    assert back is last
    opened = events[0]
    assert isinstance(opened, Opened)
    assert (opened.model, opened.stream) == ("m-1", stream)
    assert events[-1] == Closed(proxy_usage(ChatUsage(3, 4)), "stop")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_a_policy_writes_anew_says_the_same(name: str, stream: bool) -> None:
    given, last = answer(ANSWERS[name], WHOLE[name])
    back, _ = await retold(Source("m"), given, copied, stream=stream)
    assert back is not last
    assert [each[1:] if each[0] != "text" or name != "a refusal" else each[2:] for each in said(back.content)] == [
        each[1:] if each[0] != "text" or name != "a refusal" else each[2:] for each in said(last.content)
    ]
    assert (back.usage, back.finish, back.model) == (last.usage, "stop", "m-1")


@pytest.mark.parametrize("name", ANSWERS)
async def test_every_second_piece_written_anew_goes_into_the_same_blocks(name: str) -> None:
    for odd in (0, 1):
        number = iter(range(odd, 99))
        given, last = answer(ANSWERS[name], WHOLE[name])
        back, _ = await retold(Source("m"), given, lambda delta, number=number: copied(delta) if next(number) % 2 else delta, stream=True)
        if name != "a refusal":
            assert said(back.content) == said(last.content)


async def test_the_chunks_are_openais() -> None:
    given, _ = answer(ANSWERS["thinking, text, a call"], WHOLE["thinking, text, a call"])
    source = Source("m")
    _, events = await retold(source, given, same, stream=True)
    deltas = [event for event in events if isinstance(event, Delta)]
    assert all(isinstance(delta, Piece) for delta in deltas)
    begins = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    assert [chunk["choices"][0]["delta"] for delta in deltas for chunk in delta.chunks] == [
        {"role": "assistant", "reasoning_content": "hm"},
        {"content": "yes"},
        {"tool_calls": [begins]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"of":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"it"}'}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for delta in deltas for chunk in delta.chunks] == [None] * 5 + ["stop"]
    assert {(chunk["id"], chunk["model"]) for delta in deltas for chunk in delta.chunks} == {(source.envelope.id, "m-1")}
    assert "".join(delta.text for delta in deltas) == "yes"
    assert deltas[1].raw.startswith(b'data: {"id":"chatcmpl-')


async def test_a_whole_answer_is_one_completion() -> None:
    given, _ = answer([], WHOLE["two calls at once"])
    _, events = await retold(Source("m"), given, same, stream=False)
    delta = events[1]
    assert isinstance(delta, Delta)
    body = json.loads(delta.raw)
    assert body["object"] == "chat.completion"
    assert [call["function"]["name"] for call in body["choices"][0]["message"]["tool_calls"]] == ["look", "find"]
    assert [call["id"] for call in delta.tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize("at", range(6))
async def test_left_in_the_middle_only_whole_calls_are_calls(at: int) -> None:
    given, _ = answer(ANSWERS["thinking, text, a call"], WHOLE["thinking, text, a call"])
    source = Source("m")
    events = source.events(given, stream=True)
    opened = await anext(events)
    assert isinstance(opened, Opened)
    back = Retold(opened, source)
    for _ in range(at):
        delta = await anext(events)
        assert isinstance(delta, Delta)
        back.add(delta)
    await events.aclose()
    last = back.last(Closed(finish="length"))
    assert (last.is_last, last.finish, last.usage) == (True, "length", None)
    assert [call.input for call in last.tool_calls] == (['{"of":"it"}'] if at == 5 else [])
    assert last.text == ("yes" if at > 1 else "")


async def test_a_call_whose_beginning_was_taken_away_is_no_call() -> None:
    for writes in (same, copied):
        given, _ = answer(ANSWERS["thinking, text, a call"], WHOLE["thinking, text, a call"])
        back, _ = await retold(
            Source("m"), given, lambda delta, writes=writes: None if b'"look"' in delta.raw else writes(delta), stream=True
        )
        assert said(back.content) == said(WHOLE["thinking, text, a call"])[:2]


async def test_what_openai_cannot_say_comes_through_beside_what_was_changed() -> None:
    whole = [ThinkingBlock("hm", "th", SIGNED), TextBlock("yes", "t"), PICTURE]
    given, _ = answer([[ThinkingBlock("hm", "th")], [ThinkingBlock("", "th", SIGNED)], [TextBlock("yes", "t")], [PICTURE]], whole)

    def louder(delta: Delta) -> Delta:
        return Delta(delta.raw.replace(b"yes", b"YES")) if delta.text else delta

    back, _ = await retold(Source("m"), given, louder, stream=True)
    assert back.content == [ThinkingBlock("hm", "th", SIGNED), TextBlock("YES", "t"), PICTURE]


@pytest.mark.parametrize("stream", [True, False])
async def test_content_that_only_the_last_piece_holds_is_told(stream: bool) -> None:
    given, last = answer([], WHOLE["text"])
    back, events = await retold(Source("m"), given, same, stream=stream)
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "one two"
    assert back is last
    back, _ = await retold(Source("m"), ChatResponse.of("one two"), copied, stream=stream)
    assert back.text == "one two"


async def test_a_stream_without_an_end_is_no_answer() -> None:
    async def broken() -> AsyncIterator[ChatResponse]:
        yield ChatResponse([TextBlock("one")], is_last=False)

    with pytest.raises(NoAnswer, match="without its last piece"):
        [event async for event in Source("m").events(ModelStream(broken()), stream=True)]


async def test_what_the_policies_say_of_the_end_holds() -> None:
    given, last = answer(ANSWERS["text"], WHOLE["text"])
    source = Source("m")
    events = [event async for event in source.events(given, stream=True)]
    opened = events[0]
    assert isinstance(opened, Opened)
    back = Retold(opened.with_headers(x_spangate_cache="hit"), source)
    for event in events[1:-1]:
        assert isinstance(event, Delta)
        back.add(event)
    told = back.last(Closed(None, "length"))
    assert (told.finish, told.usage, told.metadata) == ("length", last.usage, {"headers": {"x-spangate-cache": "hit"}})
    assert (last.finish, last.metadata) == ("stop", {}), "a source's own answer is never written to"
