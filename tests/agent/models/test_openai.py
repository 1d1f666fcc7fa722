"""agent/models/openai.py: OpenAI's own client against bytes from a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spangate.agent import Agent, ChatUsage, InvalidInput, ModelStream, OpenAIChatModel, ThinkingBlock, ToolChoice, tool
from spangate.agent.asking import Asking, asking
from spangate.call.errors import Refused, UpstreamError, UpstreamIncomplete, UpstreamUnreachable

from upstream import C, D, F, Misbehaving, Play, U, chat_answer, chat_chunk, error, http, play, refusing_port, sse, sse_head


@asynccontextmanager
async def asked(*plays: Play, **settings: Any) -> AsyncIterator[tuple[OpenAIChatModel, Misbehaving]]:
    async with Misbehaving(plays) as up:
        model = OpenAIChatModel("gpt", api_key="sk-test", base_url=up.base_url, **settings)
        try:
            yield model, up
        finally:
            await model.aclose()


def part(**delta: Any) -> bytes:
    return chat_chunk([{"index": 0, "delta": delta, "finish_reason": None}])


async def test_a_stream() -> None:
    body = sse(part(role="assistant", content=""), part(reasoning_content="hm"), C("Hel"), C("lo"), F("stop"), U(7, 2), D)
    async with asked(play(body)) as (model, up):
        answer = await model("hi", [{"type": "function", "function": {"name": "f"}}], ToolChoice("f"))
        assert isinstance(answer, ModelStream)
        pieces = [piece async for piece in answer]
        assert [piece.text for piece in pieces] == ["", "Hel", "lo", "Hello"]
        last = pieces[-1]
        assert [block.type for block in last.content] == ["thinking", "text"]
        assert (last.finish, last.model, last.usage) == ("stop", "m", ChatUsage(7, 2))
        sent = up.requests[0].json()
        assert sent["stream_options"] == {"include_usage": True}
        assert sent["tool_choice"] == {"type": "function", "function": {"name": "f"}}
        assert up.requests[0].header(b"authorization") == b"Bearer sk-test"


async def test_a_whole_answer_and_settings() -> None:
    async with asked(play(chat_answer("Hello")), stream=False, settings={"temperature": 0}) as (model, up):
        answer = await (await model("hi", seed=7)).response()
        assert (answer.text, answer.usage) == ("Hello", ChatUsage(7, 2))
        assert up.requests[0].json() == {
            "messages": [{"role": "user", "content": "hi"}],
            "model": "gpt",
            "stream": False,
            "temperature": 0,
            "seed": 7,
        }


async def test_parallel_tool_calls_in_pieces_and_a_whole_agent() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        named = {"id": f"c{index}", "type": "function"} if "name" in function else {}
        return {"index": index, **named, "function": function}

    first = sse(
        part(tool_calls=[call(0, name="look", arguments="")]),
        part(tool_calls=[call(0, arguments='{"of": ')]),
        part(tool_calls=[call(1, name="look", arguments='{"of": "b"}')]),
        part(tool_calls=[call(0, arguments='"a"}')]),
        F("tool_calls"),
        U(1, 1),
        D,
    )

    @tool
    def look(of: str) -> str:
        """Look."""
        return f"seen {of}"

    async with asked(play(first), play(chat_answer("done", stream=True))) as (model, up):
        assert (await Agent("a", None, model, [look])("go")).text == "done"
        said = up.requests[1].json()["messages"]
        assert [call["function"]["arguments"] for call in said[1]["tool_calls"]] == ['{"of": "a"}', '{"of": "b"}']
        assert [(message["tool_call_id"], message["content"]) for message in said[2:]] == [("c0", "seen a"), ("c1", "seen b")]


async def test_earlier_reasoning_goes_back_only_on_request() -> None:
    from spangate.agent import AssistantMsg, TextBlock, UserMsg

    said = [AssistantMsg(content=[ThinkingBlock("hm", extra={"chat": {"field": "reasoning_content"}}), TextBlock("so")]), UserMsg("go on")]
    for keep in (False, True):
        async with asked(play(chat_answer("x", stream=True)), keep_reasoning=keep) as (model, up):
            await (await model(said)).response()
            assert ("reasoning_content" in up.requests[0].json()["messages"][0]) is keep


FAULTS: dict[str, tuple[Play, type[Exception], dict[str, Any]]] = {
    "a busy provider": (
        play(error(429, "slow down", type="requests", code="rate_limit_exceeded", headers=[("Retry-After", "3")])),
        UpstreamError,
        {"status": 429, "retryable": True, "headers": {"retry-after": "3"}},
    ),
    "a bad request": (
        play(error(400, "bad", type="invalid_request_error")),
        UpstreamError,
        {"status": 400, "retryable": False, "message": "bad"},
    ),
    "an error inside a 200": (
        play(sse(b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n')),
        UpstreamError,
        {"status": None, "retryable": True},
    ),
    "nothing at all": (play(sse(D)), UpstreamIncomplete, {}),
    "no JSON": (play(sse(b"data: {oops\n\n")), UpstreamIncomplete, {}),
    "JSON that is no chunk": (play(sse(b"data: [1]\n\n", b'data: "x"\n\n', b"data: 7\n\n", D)), UpstreamIncomplete, {}),
    "a page": (play(http(200, [("Content-Type", "text/html")], b"<html>")), UpstreamIncomplete, {}),
    "an end before the first content": (play(sse_head(), end="fin"), (UpstreamIncomplete, UpstreamUnreachable), {}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", FAULTS)
async def test_what_fails_before_the_first_content_is_raised_at_the_await(name: str) -> None:
    answer, kind, fields = FAULTS[name]
    async with asked(answer) as (model, up):
        with pytest.raises(kind) as caught:
            await model("hi")
        assert {field: getattr(caught.value, field) for field in fields} == fields
        assert len(up.requests) == 1, "a gateway, which this could be, tries again by itself"


async def test_half_of_a_character_is_not_sent() -> None:
    async with asked(play(chat_answer("x", stream=True))) as (model, up):
        with pytest.raises(InvalidInput, match="half of a character"):
            await model("\ud83d")
        assert not up.requests


NO_ANSWERS = [b"<html>", b"[1]", b'"x"', b"7", b"{}", b'{"choices": null}', b'{"choices": [{"message": 7, "finish_reason": []}]}']


@pytest.mark.parametrize("body", NO_ANSWERS, ids=str)
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_a_whole_answer_that_is_none_says_so(body: bytes, kind: str) -> None:
    async with asked(play(http(200, [("Content-Type", kind)], body)), stream=False) as (model, _):
        with pytest.raises((UpstreamIncomplete, UpstreamUnreachable)):
            await model("hi")


async def test_a_stream_that_breaks_off_says_so_and_is_not_tried_again() -> None:
    for broken in (play(sse(C("Hel"), C("lo"), D)), play(sse_head() + b"%x\r\n%b\r\n" % (len(C("Hel")), C("Hel")), end="rst")):
        async with asked(broken) as (model, up):
            answer = await model("hi")
            assert (await anext(aiter(answer))).text == "Hel"
            with pytest.raises((UpstreamIncomplete, UpstreamUnreachable)):
                await answer.response()
            assert len(up.requests) == 1


async def test_a_reader_that_leaves_gives_the_socket_back() -> None:
    async with asked(play(sse_head() + b"%x\r\n%b\r\n" % (len(C("Hel")), C("Hel")), end="hold")) as (model, up):
        answer = await model("hi")
        await answer.aclose()
        await up.requests[0].peer_closed.wait()


async def test_nobody_there() -> None:
    port = refusing_port()
    model = OpenAIChatModel("gpt", api_key="x", base_url=f"http://me:secret@127.0.0.1:{port}/v1")
    with pytest.raises(UpstreamUnreachable, match=f"^The model at 127.0.0.1:{port} could not be reached.$"):
        await model("hi")
    await model.aclose()


async def test_a_gateways_refusal_is_one() -> None:
    told = {
        "message": "Used up.",
        "type": "insufficient_quota",
        "param": None,
        "code": "budget_exceeded",
        "source": "policy",
        "budget": {"name": "b"},
    }
    async with asked(play(http(429, [("x-should-retry", "false")], json.dumps({"error": told}).encode()))) as (model, _):
        with pytest.raises(Refused, match="Used up") as caught:
            await model("hi")
        assert (caught.value.code, caught.value.facts) == ("budget_exceeded", {"budget": {"name": "b"}})


async def test_a_gateway_is_told_the_reply_and_a_vendor_is_not() -> None:
    async with asked(play(chat_answer("x", stream=True))) as (model, up):
        stream = Agent("a", None, model).stream("go", thread="ann")
        await stream.result()
        assert up.requests[0].header(b"x-spangate-reply") == stream.reply_id.encode()
        assert up.requests[0].header(b"x-spangate-thread") == b"ann"
    async with asked(play(chat_answer("x", stream=True)), gateway=False) as (model, up):
        await Agent("a", None, model)("go", thread="ann")
        assert up.requests[0].header(b"x-spangate-reply") is None
    assert not OpenAIChatModel("gpt", api_key="x").takes_reply_labels
    assert OpenAIChatModel("gpt", api_key="x").client.max_retries == 2


async def test_a_deadline_reaches_the_client() -> None:
    import asyncio

    from spangate.call.errors import UpstreamTimeout

    async with asked(play(end="hold")) as (model, _):
        token = asking.set(Asking(deadline=asyncio.get_running_loop().time() + 0.05))
        with pytest.raises(UpstreamTimeout):
            await model("hi")
        asking.reset(token)
