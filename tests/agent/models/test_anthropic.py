"""agent/models/anthropic.py: Anthropic's events, as bytes from a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.agent import Agent, AnthropicChatModel, Block, ChatUsage, InvalidInput, SystemMsg, ThinkingBlock, ToolChoice, UserMsg, tool
from spangate.agent.models.anthropic import AnthropicPieces
from spangate.call.errors import UpstreamError, UpstreamIncomplete, UpstreamUnreachable

from upstream import Misbehaving, Play, chunk, http, junk, play, refusing_port, sse, sse_head


@asynccontextmanager
async def asked(*plays: Play, **settings: Any) -> AsyncIterator[tuple[AnthropicChatModel, Misbehaving]]:
    async with Misbehaving(plays) as up:
        model = AnthropicChatModel("claude", api_key="sk-test", base_url=up.base_url, **settings)
        try:
            yield model, up
        finally:
            await model.aclose()


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


START = event(
    "message_start",
    message={
        "id": "msg_1",
        "model": "claude-x",
        "content": [],
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2, "output_tokens": 1},
    },
)


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return b"".join(
        [
            event("content_block_start", index=index, content_block=start),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        ]
    )


def end(reason: str = "end_turn", output: int = 9) -> bytes:
    return event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": output}) + event("message_stop")


TEXT = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hel"}, {"type": "text_delta", "text": "lo"})


async def test_a_stream() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "sig"},
    )
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})
    async with asked(play(sse(START, event("ping"), thinking, text, end()))) as (model, up):
        answer = await (await model([SystemMsg("Be nice."), UserMsg("hi")])).response()
        assert (answer.text, answer.finish, answer.model) == ("Hello", "stop", "claude-x")
        assert answer.usage == ChatUsage(10, 9, 3, 2), "what a cache held is part of the input"
        assert [(each.thinking, each.extra) for each in answer.content if isinstance(each, ThinkingBlock)] == [
            ("hm", {"anthropic": {"signature": "sig"}})
        ]
        assert up.requests[0].path == "/v1/messages"
        assert up.requests[0].header(b"x-api-key") == b"sk-test"
        assert up.requests[0].json() == {
            "max_tokens": 8192,
            "model": "claude",
            "system": "Be nice.",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
        }


async def test_an_agent_with_tools_and_thinking_that_goes_back_signed() -> None:
    thinking = block(
        0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}
    )
    use = block(
        1,
        {"type": "tool_use", "id": "t1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"of": '},
        {"type": "input_json_delta", "partial_json": '"a"}'},
    )
    bare = block(2, {"type": "tool_use", "id": "t2", "name": "look", "input": {}})

    @tool
    def look(of: str = "it") -> str:
        """Look."""
        return f"seen {of}"

    async with asked(play(sse(START, thinking, use, bare, end("tool_use"))), play(sse(START, TEXT, end()))) as (model, up):
        assert (await Agent("a", None, model, [look])("go")).text == "Hello"
        first, second = up.requests[0].json(), up.requests[1].json()
        assert first["tools"][0]["name"] == "look"
        assert second["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"of": "a"}},
            {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
        ]
        assert [part["content"] for part in second["messages"][2]["content"]] == ["seen a", "seen it"]


async def test_a_whole_answer() -> None:
    body = {
        "model": "claude-x",
        "content": [{"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    async with asked(play(http(200, [], json.dumps(body).encode())), stream=False) as (model, _):
        answer = await (await model("hi")).response()
        assert (answer.text, answer.finish, answer.usage) == ("Hello", "tool_calls", ChatUsage(5, 2))
        assert answer.tool_calls[0].input == '{"a": 1}'


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("none"), {"type": "none"}),
        (ToolChoice("required"), {"type": "any"}),
        (ToolChoice("f"), {"type": "tool", "name": "f"}),
        (None, None),
    ],
)
async def test_tool_choice(choice: ToolChoice | None, sent: Any) -> None:
    async with asked(play(sse(START, TEXT, end()))) as (model, up):
        await (await model("hi", [{"type": "function", "function": {"name": "f"}}], choice)).response()
        assert up.requests[0].json().get("tool_choice") == sent


FAULTS: dict[str, tuple[Play, type[Exception], dict[str, Any]]] = {
    "overloaded": (
        play(http(529, [("Retry-After", "3")], b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}')),
        UpstreamError,
        {"status": 529, "retryable": True, "message": "busy", "kind": "overloaded_error", "headers": {"Retry-After": "3"}},
    ),
    "a bad request": (
        play(http(400, [], b'{"error":{"type":"invalid_request_error","message":"bad"}}')),
        UpstreamError,
        {"status": 400, "retryable": False},
    ),
    "no JSON": (play(http(502, [], b"<html>")), UpstreamError, {"status": 502, "message": "The provider answered with status 502."}),
    "an error as first event": (
        play(sse(event("error", error={"type": "overloaded_error", "message": "busy"}))),
        UpstreamError,
        {"status": None},
    ),
    "nothing": (play(sse(START, end())), UpstreamIncomplete, {}),
    "no JSON in a stream": (play(sse(b"data: {oops\n\n", b"data: [1]\n\n", b'data: "x"\n\n')), UpstreamIncomplete, {}),
    "an end before the first content": (play(sse(START)), UpstreamIncomplete, {}),
    "a reset": (play(sse_head() + chunk(START), end="rst"), UpstreamIncomplete, {}),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_fails_before_the_first_content_is_raised_at_the_await(name: str) -> None:
    answer, kind, fields = FAULTS[name]
    async with asked(answer) as (model, _):
        with pytest.raises(kind) as caught:
            await model("hi")
        assert {field: getattr(caught.value, field) for field in fields} == fields


NO_ANSWERS = [b"<html>", b"[1]", b'"x"', b"7", b"{}", b'{"content": null, "usage": 7}', b'{"content": [7], "stop_reason": []}']


@pytest.mark.parametrize("body", NO_ANSWERS, ids=str)
async def test_a_whole_answer_that_is_none_says_so(body: bytes) -> None:
    async with asked(play(http(200, [], body)), stream=False) as (model, _):
        with pytest.raises(UpstreamIncomplete, match="no answer"):
            await model("hi")
    async with asked(play(http(200, [], b'{"type": "error", "error": {"message": "busy"}}')), stream=False) as (model, _):
        with pytest.raises(UpstreamError, match="busy"):
            await model("hi")


JUNK = junk("type", "text", "input", "id", "usage", most=3)
KINDS = ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "ping"]
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "tool_use", "odd"])},
    optional=dict.fromkeys(["text", "thinking", "signature", "id", "name", "input"], JUNK),
)
DELTAS = st.fixed_dictionaries({}, optional=dict.fromkeys(["type", "text", "thinking", "signature", "partial_json", "stop_reason"], JUNK))
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={"index": JUNK, "content_block": BLOCKS | JUNK, "delta": DELTAS | JUNK, "message": JUNK, "usage": JUNK},
)


@given(st.lists(EVENTS, max_size=6))
def test_nothing_that_a_provider_streams_breaks_it(events: list[dict[str, Any]]) -> None:
    pieces = AnthropicPieces("m")
    for each in events:
        pieces.add(each)
    last = pieces.last()
    assert isinstance(last.model, str)
    assert msgspec.convert(msgspec.to_builtins(last.content), list[Block]) == last.content, "what is kept can be read again"


async def test_a_stream_that_breaks_off_says_so() -> None:
    async with asked(play(sse(START, TEXT))) as (model, _):
        answer = await model("hi")
        with pytest.raises(UpstreamIncomplete, match="stopped before its end"):
            await answer.response()


async def test_a_reader_that_leaves_gives_the_socket_back() -> None:
    async with asked(play(sse_head() + chunk(START + TEXT), end="hold")) as (model, up):
        answer = await model("hi")
        await answer.aclose()
        await up.requests[0].peer_closed.wait()


async def test_nobody_there_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AnthropicChatModel("claude", api_key="x", base_url=f"http://127.0.0.1:{refusing_port()}")
    with pytest.raises(UpstreamUnreachable):
        await model("hi")
    await model.aclose()
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    keyless = AnthropicChatModel("claude")
    with pytest.raises(InvalidInput, match="ANTHROPIC_API_KEY"):
        await keyless("hi")
    await keyless.aclose()
    assert not keyless.takes_reply_labels
