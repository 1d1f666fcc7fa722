"""A server that speaks OpenAI's dialect on script (tests/upstream.py), and the provider that asks it, in every scenario of the contract."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from proxy.providers.stage import MODEL, PIECES, TEXT, TOOL, Stage, asking, failing, told

from spangate.call.call import Call
from spangate.call.events import Event
from spangate.proxy.providers.openai import OpenAI, OpenAIProvider
from spangate.proxy.providers.provider import Parts
from spangate.proxy.upstream import Upstream

from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, Script, Step, U, chunk, error, event, http, play, sse, sse_head

KEY = "sk-upstream-0123456789"
HELLO = C("Hel") + C("lo") + F("stop") + U(7, 2) + D
COUNTS = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


def said(delta: dict[str, Any], finish: str | None = None, *, index: int = 0, **more: Any) -> bytes:
    """One chunk."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return event({**head, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more})


def usage_chunk() -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [], "usage": COUNTS})


def body(message: dict[str, Any], finish: str = "stop", *, n: int = 1, usage: bool = True, **more: Any) -> bytes:
    choices = [{"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish} for index in range(n)]
    answer = {"id": "c1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": choices, **more}
    return json.dumps({**answer, **({"usage": COUNTS} if usage else {})}, ensure_ascii=False).encode()


# ---- the provider on stage


class Wishes:
    """What a request asks for."""

    def __init__(self, request: Request) -> None:
        asked = request.json()
        self.stream: bool = asked.get("stream", False)
        self.n: int = asked.get("n", 1)
        self.usage: bool = (asked.get("stream_options") or {}).get("include_usage", False)

    def content(self, **more: Any) -> list[bytes]:
        """The role, then TEXT."""
        everyone = range(self.n)
        roles = [said({"role": "assistant", "content": ""}, index=index) for index in everyone]
        return roles + [said({"content": piece}, index=index, **more) for piece in PIECES for index in everyone]

    def ends(self, finish: str = "stop", **more: Any) -> list[bytes]:
        return [said({}, finish, index=index, **more) for index in range(self.n)]

    def usage_chunks(self, count: int = 1) -> list[bytes]:
        return [usage_chunk()] * count if self.usage else []


def answers(wishes: Wishes, *, usage: int = 1) -> Play:
    if not wishes.stream:
        return play(http(body=body({"content": TEXT}, n=wishes.n, usage=bool(usage))))
    return play(sse(*wishes.content(), *wishes.ends(), *wishes.usage_chunks(usage), D))


def answers_slowly(wishes: Wishes) -> Play:
    if not wishes.stream:
        answer = http(body=body({"content": TEXT}))
        return play(*slowly(answer[:40], answer[40:200], answer[200:]))
    return play(*slowly(sse_head(), *map(chunk, [*wishes.content(), *wishes.ends(), D]), LAST_CHUNK))


def slowly(*pieces: bytes) -> list[Step]:
    return [(piece, 0.005) for piece in pieces]


def usage_comes_late(wishes: Wishes) -> Play:
    if not wishes.stream:
        return answers(wishes)
    first = b"".join(map(chunk, [*wishes.content(), *wishes.ends()]))
    return play(sse_head() + first, (b"".join(map(chunk, [*wishes.usage_chunks(), D])) + LAST_CHUNK, 0.02))


def usage_grows(wishes: Wishes) -> Play:
    if not wishes.stream:
        return answers(wishes)
    growing = [said({"content": piece}, usage={**COUNTS, "completion_tokens": count}) for count, piece in enumerate(PIECES, 1)]
    return play(sse(said({"role": "assistant"}), *growing, *wishes.ends(usage=COUNTS), D))


def calls_a_tool(wishes: Wishes) -> Play:
    arguments = json.dumps(TOOL["arguments"])
    named = {"id": "call_1", "type": "function", "function": {"name": TOOL["name"], "arguments": ""}}
    if not wishes.stream:
        tool_call = {**named, "function": {"name": TOOL["name"], "arguments": arguments}}
        return play(http(body=body({"content": None, "tool_calls": [tool_call]}, "tool_calls")))
    parts = [{"index": 0, **named}, *({"index": 0, "function": {"arguments": part}} for part in (arguments[:5], arguments[5:]))]
    return play(
        sse(said({"role": "assistant", "content": None}), *(said({"tool_calls": [part]}) for part in parts), *wishes.ends("tool_calls"), D)
    )


def refuses(wishes: Wishes) -> Play:
    return play(error(429, "Slow down.", type="requests", code="rate_limit_exceeded", headers=[("Retry-After", "2"), ("X-Other", "1")]))


def errs(wishes: Wishes) -> Play:
    told = {"error": {"message": "Out of luck.", "type": "server_error", "code": None}}
    return play(sse(event(told), D) if wishes.stream else http(body=json.dumps(told).encode()))


def is_empty(wishes: Wishes) -> Play:
    return play(sse(said({"role": "assistant"}), D) if wishes.stream else http(body=body({}, n=0)))


def begins(wishes: Wishes, count: int, end: Any) -> Play:
    """The role and `count` pieces of content, or a part of a whole answer, then `end`."""
    if not wishes.stream:
        return play(http(body=body({"content": TEXT}))[: 120 + count], end=end)
    return play(sse_head(), b"".join(map(chunk, wishes.content()[: 1 + count])), end=end)


def is_cut(wishes: Wishes) -> Play:
    if not wishes.stream:
        return begins(wishes, 2, "fin")
    return play(sse(*wishes.content()[:3]))


def embeds(wishes: Wishes) -> Play:
    data = [{"object": "embedding", "index": index, "embedding": [0.6, 0.8, 0.0]} for index in (0, 1)]
    told = {"object": "list", "model": MODEL, "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}
    return play(http(body=json.dumps(told).encode()))


def completes(wishes: Wishes) -> Play:
    head = {"id": "c1", "object": "text_completion", "created": 1, "model": MODEL}
    parts = [{**head, "choices": [{"index": 0, "text": piece, "finish_reason": None, "logprobs": None}]} for piece in PIECES]
    last = {**head, "choices": [{"index": 0, "text": "", "finish_reason": "stop", "logprobs": None}]}
    if wishes.stream:
        return play(sse(*map(event, [*parts, last]), *wishes.usage_chunks(), D))
    return play(http(body=json.dumps({**last, "choices": [{**last["choices"][0], "text": TEXT}], "usage": COUNTS}).encode()))


PLAYS: dict[str, Callable[[Wishes], Play]] = {
    "answers": answers,
    "answers slowly": answers_slowly,
    "answers without usage": lambda wishes: answers(wishes, usage=0),
    "usage comes late": usage_comes_late,
    "usage comes twice": lambda wishes: answers(wishes, usage=2),
    "usage grows": usage_grows,
    "calls a tool": calls_a_tool,
    "refuses": refuses,
    "errs in a 200": errs,
    "is empty": is_empty,
    "is silent": lambda wishes: begins(wishes, 0, "hold"),
    "falls silent": lambda wishes: begins(wishes, 2, "hold"),
    "breaks before content": lambda wishes: begins(wishes, 0, "rst"),
    "breaks": lambda wishes: Play((*begins(wishes, 2, "rst").steps, (b"", 0.02)), "rst"),
    "is cut": is_cut,
    "embeds": embeds,
    "completes": completes,
}


def provider_at(up: Misbehaving, client: Upstream, **settings: Any) -> OpenAIProvider:
    given = {"kind": "openai", "api_key": KEY, "base_url": up.base_url, **settings}
    return OpenAIProvider(OpenAI.model_validate(given), Parts("under-test", client))


@asynccontextmanager
async def asked(script: Script, **settings: Any) -> AsyncIterator[tuple[OpenAIProvider, Misbehaving, Upstream]]:
    """A provider whose server plays `script`."""
    client = Upstream()
    async with Misbehaving(script) as up:
        try:
            yield provider_at(up, client, **settings), up, client
        finally:
            await client.aclose()


@asynccontextmanager
async def on_stage(scenario: str) -> AsyncIterator[Stage]:
    async with asked(lambda request: PLAYS[scenario](Wishes(request))) as (provider, up, client):

        async def left() -> None:
            await (await up.request()).peer_closed.wait()

        yield Stage(provider, in_use=lambda: client.in_use, left=left)


# ---- one answer, as it comes


async def answered(answer: bytes | Sequence[Step], call: Call | None = None) -> list[Event]:
    """The events of one answer that comes so."""
    steps = [answer] if isinstance(answer, bytes) else answer
    async with asked(play(*steps)) as (provider, _, _):
        return await told(provider, call or asking(stream=True, usage_frame=True))


async def failed(answer: bytes | Sequence[Step], call: Call | None = None, **ends: Any) -> tuple[list[Event], Any]:
    steps = [answer] if isinstance(answer, bytes) else answer
    async with asked(play(*steps, **ends)) as (provider, _, client):
        before = await failing(provider, call or asking(stream=True))
        assert client.in_use == 0
        return before
