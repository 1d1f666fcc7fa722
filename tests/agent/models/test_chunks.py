"""agent/models/chunks.py: from OpenAI's chunks to pieces, also where a provider has its own ideas."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import Block, ChatUsage, TextBlock, ThinkingBlock, ToolCallBlock
from spangate.agent.messages.chat import to_chat
from spangate.agent.messages.msg import Msg
from spangate.agent.models.chunks import ChatPieces, chat_usage, proxy_usage
from spangate.call.events import Usage

from upstream import junk


def delta(index: int = 0, finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": said, "finish_reason": finish}]}


def whole(*chunks: dict[str, Any]) -> Any:
    pieces = ChatPieces("m")
    for chunk in chunks:
        pieces.add(chunk)
    return pieces.last()


def test_a_provider_that_gives_every_call_index_0() -> None:
    first = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    last = whole(delta(tool_calls=[first]), delta(tool_calls=[{**first, "id": "b"}], finish="tool_calls"))
    assert [(call.id, call.input) for call in last.tool_calls] == [("a", "{}"), ("b", "{}")]


def part(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    named = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**named, "function": function}


ODD_PARTS = [
    pytest.param(
        [part(0, "A", "a", ""), part(1, "B", "b", ""), part(0, arguments='{"t":"A"}'), part(1, arguments='{"t":"B"}')],
        [("A", "a", '{"t":"A"}'), ("B", "b", '{"t":"B"}')],
        id="arguments of parallel calls without ids",
        marks=pytest.mark.fault("TOOL-01"),
    ),
    pytest.param(
        [part(0, "A", "f", '{"q":1}'), part(0, "B", "f", '{"q":2}')],
        [("A", "f", '{"q":1}'), ("B", "f", '{"q":2}')],
        id="index 0 for every call",
        marks=pytest.mark.fault("TOOL-02"),
    ),
    pytest.param(
        [part(0, "A", "f", "{"), part(1, arguments='"q":'), part(2, arguments="1}")],
        [("A", "f", '{"q":1}')],
        id="fragments with a growing index",
        marks=pytest.mark.fault("TOOL-04"),
    ),
    pytest.param([part(0, "A", "f", '{"a'), part(0, "A", "f", '":1}')], [("A", "f", '{"a":1}')], id="id and name on each part"),
    pytest.param([part(0, "A", arguments=""), part(0, "A", "f", "{}")], [("A", "f", "{}")], id="the name comes later"),
    pytest.param([part(None, "A", "f", "1"), part(None, "B", "g", "2")], [("A", "f", "1"), ("B", "g", "2")], id="no index at all"),
    pytest.param([part(0, "A", "f", {"q": 1})], [("A", "f", '{"q": 1}')], id="arguments as an object"),
]


@pytest.mark.parametrize(("parts", "made"), ODD_PARTS)
def test_calls_in_odd_parts(parts: list[dict[str, Any]], made: list[tuple[str, str, str]]) -> None:
    for last in (whole(*(delta(tool_calls=[each]) for each in parts)), whole(delta(tool_calls=parts))):
        assert [(call.id, call.name, call.input) for call in last.tool_calls] == made
        assert last.finish is None


@pytest.mark.fault("TOOL-06")
@pytest.mark.parametrize("end", ["stop", "tool_calls"])
def test_an_empty_finish_reason_ends_nothing_and_calls_are_found_by_being_there(end: str) -> None:
    parts = [part(0, "A", "f", "{"), part(0, arguments='"q":'), part(0, arguments="1"), part(0, arguments="}")]
    last = whole(*(delta(finish="", tool_calls=[each]) for each in parts), delta(finish=""), delta(finish=end))
    assert [(call.id, call.name, call.input) for call in last.tool_calls] == [("A", "f", '{"q":1}')]
    assert last.finish == end


@pytest.mark.fault("TOOL-08")
def test_arguments_that_max_tokens_cut_stay_as_they_are() -> None:
    last = whole(delta(tool_calls=[part(0, "A", "f", '{"path":"/a')]), delta(finish="length"))
    assert ([call.input for call in last.tool_calls], last.finish) == (['{"path":"/a'], "length")


def test_two_calls_of_one_id_are_two() -> None:
    for parts in ([part(0, "A", "f", "1"), part(1, "A", "f", "2")], [part(None, "A", "f", "1"), part(None, "A", "f", "2")]):
        first, second = whole(delta(tool_calls=parts)).tool_calls
        assert (first.id, first.input, second.input) == ("A", "1", "2")
        assert second.id.startswith("call_")


JUNK = junk("index", "delta", "content", "refusal", "tool_calls", "function", "name", "id", "arguments", leaves=8)
FUNCTIONS = JUNK | st.fixed_dictionaries({"name": JUNK, "arguments": JUNK})
CALLS = st.lists(st.fixed_dictionaries({}, optional={"index": JUNK, "id": JUNK, "function": FUNCTIONS}))
SAID = st.fixed_dictionaries({}, optional={"content": JUNK, "refusal": JUNK, "reasoning": JUNK, "tool_calls": CALLS | JUNK, "more": JUNK})
CHOICES = st.lists(st.fixed_dictionaries({}, optional={"index": JUNK, "delta": SAID | JUNK, "message": SAID | JUNK, "finish_reason": JUNK}))
CHUNKS = st.lists(st.fixed_dictionaries({}, optional={"choices": CHOICES | JUNK, "usage": JUNK, "model": JUNK}), max_size=4)


@given(CHUNKS)
def test_nothing_that_a_provider_streams_breaks_it(chunks: list[dict[str, Any]]) -> None:
    last = whole(*chunks)
    assert isinstance(last.model, str)
    assert last.finish is None or isinstance(last.finish, str)
    assert msgspec.convert(msgspec.to_builtins(last.content), list[Block]) == last.content, "what is kept can be read again"


def test_a_call_without_an_id_gets_one() -> None:
    [call] = whole(delta(tool_calls=[{"function": {"name": "f", "arguments": ""}}])).tool_calls
    assert call.id.startswith("call_")


def test_other_choices_odd_chunks_and_refusals() -> None:
    last = whole(delta(1, content="no"), {"choices": None}, {"choices": [{}]}, {}, delta(refusal="I won't."), delta(finish="stop"))
    assert (last.text, last.finish) == ("I won't.", "stop")


def test_what_a_provider_says_beside_goes_back_to_it() -> None:
    last = whole(delta(content="a"), delta(annotations=[{"url": "x"}], finish="stop"))
    [message] = to_chat([Msg("a", last.content, "assistant")])
    assert message == {"role": "assistant", "content": "a", "annotations": [{"url": "x"}]}
    assert isinstance(last.content[0], TextBlock)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, None),
        ({"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}, ChatUsage(5, 7, 2)),
        ({"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": 3, "completion_tokens_details": None}, None),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 1}}, ChatUsage(0, 3, 0, 0, 1, unknown="input")),
        ({"prompt_tokens": 7}, ChatUsage(7, 0, unknown="output")),
        ({"prompt_tokens": 7, "total_tokens": 9}, ChatUsage(7, 2)),
    ],
)
def test_usage(given: dict[str, Any], read: ChatUsage | None) -> None:
    assert whole(delta(content="a"), {"choices": [], "usage": given}).usage == read


def test_half_of_the_usage_takes_nothing_from_the_whole() -> None:
    chunks = [{"usage": {"prompt_tokens": 7, "completion_tokens": 2}}, {"usage": {"prompt_tokens": 7}}]
    assert whole(delta(content="a"), *chunks).usage == ChatUsage(7, 2)


def test_the_proxys_usage() -> None:
    assert chat_usage(Usage(1, 2, 3, 4, 5, "estimated")) == ChatUsage(1, 2, 3, 4, 5, "estimated")
    assert chat_usage(None) is None


def test_more_of_blocks_that_were_begun_elsewhere() -> None:
    pieces = ChatPieces("m")
    for block in (TextBlock("so", "t"), ThinkingBlock("hm", "th"), ToolCallBlock("c", "look", "{")):
        pieces.go_on_with(block, 1)
    more = {"index": 1, "function": {"arguments": "}"}}
    piece = pieces.add(delta(content=" what", reasoning_content="!", tool_calls=[more]))
    assert piece is not None
    assert [(block.type, block.id) for block in piece.content] == [("thinking", "th"), ("text", "t"), ("tool_call", "c")]
    assert [call.input for call in piece.tool_calls] == ["}"]


@pytest.mark.parametrize("source", ["provider", "estimated"])
@pytest.mark.parametrize("unknown", ["", "input", "output"])
def test_usage_goes_both_ways(source: Any, unknown: Any) -> None:
    usage = ChatUsage(5, 4, 3, 2, 1, source, unknown)
    assert chat_usage(proxy_usage(usage)) == usage
    assert proxy_usage(usage) == Usage(5, 4, 3, 2, 1, source, unknown)


def test_usage_that_nobody_told_is_none() -> None:
    assert proxy_usage(None) is None
    assert proxy_usage(ChatUsage(source="none")) is None
