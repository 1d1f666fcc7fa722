"""Every way in which a call goes: what the client sends and does, what the provider does, what each of them sees, and what has to be
told of it. test_telling.py plays them all.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from case import CHAT, KEY, Case, key_hash, settings
from gateway import until
from upstream import (
    LAST_CHUNK,
    C,
    D,
    F,
    Misbehaving,
    Script,
    U,
    chat_chunk,
    chat_completion,
    chunk,
    error,
    http,
    play,
    refusing_port,
    sse,
    sse_head,
    usage,
)  # fmt: skip
from vendor import provider

Way = Callable[[Case, bytes], Awaitable[int | None]]


# ---- the clients: each says which status it was answered


async def reads(it: Case, request: bytes) -> int:
    """Reads its answer to the end."""
    async with it.line() as line:
        await line.send(request)
        return (await line.answer()).status


async def is_cut(it: Case, request: bytes) -> int:
    """Its stream ends with an error after a 200."""
    async with it.line() as line:
        await line.send(request)
        answer = await line.answer()
        assert b'"error"' in answer.body
        assert not answer.body.endswith(D)
        return answer.status


async def leaves_before(it: Case, request: bytes) -> None:
    """Leaves when its provider has been asked, before anything came."""
    number = len(it.up.requests)
    async with it.line() as line:
        await line.send(request)
        await it.up.request(number)
        line.abort()


async def leaves_during(it: Case, request: bytes) -> None:
    """Leaves in the middle of a stream."""
    async with it.line() as line:
        await line.send(request)
        await line.reader.readuntil(b"data: ")
        line.abort()


async def leaves_while_sending(it: Case, request: bytes) -> None:
    """Leaves in the middle of its own body."""
    async with it.line() as line:
        await line.send(request[:-5])
        await until(lambda: bool(it.running.app.endpoints.running))
        line.abort()


# ---- what a scene is


@dataclass(frozen=True)
class Tried:
    """An attempt: its outcome, the provider's status, `error.type` of its span, which is error_type of its row; our error code, where the
    call tells that of it; finish reason."""

    outcome: str = "success"
    status: int | None = 200
    error: str = ""
    code: str = ""
    finish: str | None = None


@dataclass(frozen=True)
class Scene:
    """`status`: what the client is answered, None if it doesn't wait. `tokens`: input and output as the provider told them; `estimated`:
    it told none; None: there is nothing to count. `error`: `error.type` of the call's span."""

    body: Mapping[str, Any] | bytes = b""
    script: Script = provider
    tried: tuple[Tried, ...] = (Tried(finish="stop"),)
    status: int | None = 200
    outcome: str = "completed"
    code: str = ""
    error: str = ""
    tokens: tuple[int, int] | str | None = (7, 2)
    refusal: str | None = None
    path: str = CHAT
    key: str = KEY
    headers: tuple[tuple[str, str], ...] = ()
    way: Way = reads

    def request(self, it: Case, trace: int) -> bytes:
        """What the client sends, in a trace of its own."""
        body = self.body
        if isinstance(body, Mapping) and self.path != CHAT:
            body = json.dumps({"model": "m", **body}).encode()
        parent = ("traceparent", f"00-{trace:032x}-{trace:016x}-01")
        return it.request(body, path=self.path, key=self.key, headers=(parent, *self.headers))


def gateway_of(up: Misbehaving) -> dict[str, Any]:
    """The sections that these scenes need."""
    usual = json.loads(settings(up.base_url))
    slow = {"first": "150ms", "silence": "150ms", "total": "150ms"}
    teams = {"search": {"models": ["m", "ok", "slow", "nowhere"], "keys": [{"name": "ci", "hash": key_hash(KEY)}]}, "other": {}}
    return {
        "providers": usual["providers"] | {"nowhere": {"kind": "openai", "base_url": f"http://127.0.0.1:{refusing_port()}/v1"}},
        "models": {
            **usual["models"],
            "hidden": {"targets": [{"provider": "up"}]},
            "nowhere": {"targets": [{"provider": "nowhere", "model": "m"}]},
            "slow": {"targets": [{"provider": "up"}], "time_limit": slow},
        },
        "teams": teams,
        "server": {"max_body": "64KiB"},
    }


# ---- calls that go well

STREAM: dict[str, Any] = {"stream": True}
COUNTED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}]}
WHOLE = chat_completion("Hello")
HALF = WHOLE.replace(b'"completion_tokens":2,"total_tokens":9', b'"x":1')
DETAILED = WHOLE.replace(
    b'"total_tokens":9',
    b'"total_tokens":9,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}',
)
TWO = [chat_chunk([{"index": n, "delta": {"content": text}, "finish_reason": None}]) for n, text in enumerate(("Azure", "Blue"))]
TWO_ENDS = [chat_chunk([{"index": n, "delta": {}, "finish_reason": "stop"}]) for n in (0, 1)]
COUNTING = [chat_chunk([{"index": 0, "delta": {"content": "a"}, "finish_reason": None}], usage=usage(13, n)) for n in range(1, 21)]


def good(body: Mapping[str, Any] | None = None, tokens: Any = (7, 2), finish: str | None = "stop", **more: Any) -> Scene:
    return Scene(body or {}, tried=(Tried(finish=finish),), tokens=tokens, **more)


def says(*events: bytes, tokens: Any = (7, 2), finish: str = "stop", **body: Any) -> Scene:
    """Asked for a stream, the provider sends these events."""
    return good(STREAM | body, tokens, finish, script=play(sse(*events)))


GOOD = {
    "whole": good(),
    "streamed": good(STREAM),
    "streamed, usage asked for": good(COUNTED),
    "parameters": good({"temperature": 1, "top_p": 0.5, "max_tokens": 128, "seed": 7, "n": 1, "reasoning_effort": "low"}),
    "tools": good(TOOLS, finish="tool_calls"),
    "streamed tools": good(TOOLS | STREAM, finish="tool_calls"),
    "format": good({"response_format": {"type": "json_object"}}),
    "embeddings": good({"input": "hi"}, (1, 0), None, path="/v1/embeddings"),
    "embeddings in base64": good({"input": "hi", "encoding_format": "base64", "dimensions": 3}, (1, 0), None, path="/v1/embeddings"),
    "completions": good({"prompt": "hi"}, "estimated", path="/v1/completions"),
    "by another header": good(headers=(("authorization", "Basic x"), ("x-api-key", KEY))),
    "labelled": good(headers=(("x-spangate-user", "u-1"), ("x-spangate-thread", "t-1"), ("x-spangate-tags", "env=prod"))),
    "details": good(script=play(http(200, (), DETAILED))),
    "half of a usage": good(tokens="estimated", script=play(http(200, (), HALF))),
    "JSON for a stream": good(STREAM, script=play(http(200, (), WHOLE))),
    "a stream for JSON": good(script=play(sse(C("Hello"), F("stop"), U(7, 2), D))),
    "two choices": says(*TWO, *TWO_ENDS, U(5, 4), D, tokens=(5, 4), n=2),
    "two choices, no usage": says(*TWO, *TWO_ENDS, D, tokens="estimated", n=2),
    "no usage": says(C("Hello"), F("stop"), D, tokens="estimated"),
    "no done": says(C("Hello"), F("stop"), tokens="estimated"),
    "usage on every chunk": says(*COUNTING, F("stop"), D, tokens=(13, 20)),
    "usage twice": says(C("a"), F("stop"), U(7, 2), U(7, 2), D),
    "a malformed event": says(C("a"), b'data: {"choices":[{"del\n\n', C("b"), F("stop"), U(7, 2), D),
    "cut by max_tokens": says(C("Hel"), F("length"), U(7, 2), D, finish="length"),
}

# ---- calls that the gateway refuses: nobody was asked


def refused(status: int, code: str, reason: str = "invalid_request", body: Mapping[str, Any] | bytes | None = None, **more: Any) -> Scene:
    return Scene(body or {}, status=status, outcome="refused", code=code, refusal=reason, tried=(), tokens=None, **more)


REFUSED = {
    "unknown model": refused(404, "model_not_found", "forbidden_model", {"model": "gpt-9"}),
    "forbidden model": refused(404, "model_not_found", "forbidden_model", {"model": "hidden"}),
    "bad key": refused(401, "invalid_api_key", "unauthenticated", key="sg-wrong"),
    "no key": refused(401, "invalid_api_key", "unauthenticated", headers=(("authorization", ""),)),
    "no JSON": refused(400, "invalid_request", body=b"{not json"),
    "no object": refused(400, "invalid_request", body=b"[]"),
    "no model": refused(400, "invalid_request", body=b'{"messages": []}'),
    "no messages": refused(400, "invalid_request", body=b'{"model": "m"}'),
    "a wrong type": refused(400, "invalid_request", body={"stream": "yes"}),
    "too long": refused(413, "request_too_large", body={"x": "x" * 70_000}),
    "encoded": refused(415, "unsupported_encoding", headers=(("content-encoding", "gzip"),)),
    "a bad label": refused(400, "invalid_request", headers=(("x-spangate-tags", "no"),)),
}

# ---- calls that fail

BEGUN = sse_head() + chunk(C("a")) + chunk(C("b"))
QUOTA = b'data: {"error": {"message": "quota", "type": "insufficient_quota", "code": null}}\n\n'
IN_BODY = b'{"error": {"message": "no"}}'
STUMP = http(200, (), WHOLE)[:-9]
HTML = http(503, [("Content-Type", "text/html")], b"<p>no")

UNREACHABLE = Tried("error", None, "connection_error", "upstream_unreachable")
INCOMPLETE = Tried("error", None, "stream_interrupted", "upstream_incomplete")
TIMEOUT = Tried("error", None, "timeout", "upstream_timeout")
INVALID = Tried("error", None, "invalid_response", "upstream_error")


def failed(script: Script, tried: Tried, status: int = 502, code: str = "", body: Mapping[str, Any] | None = None) -> Scene:
    """Before anything went out. A provider that broke off or fell silent may have worked; one that answered with an error has not."""
    tokens = "estimated" if tried in (INCOMPLETE, TIMEOUT) else None
    error = str(status) if status >= 500 else ""
    return Scene(body or {}, script, (tried,), status, "failed", code or tried.code, error, tokens)


def answers(status: int, *, seen: int = 502, code: str = "upstream_error", own: str | None = None, word: str = "") -> Scene:
    """The provider answers with an error: the client sees `seen` and `code`, and telemetry says `word`."""
    word = word or str(status)
    return failed(play(error(status, code=own)), Tried("error", status, word), seen, code)


def breaks(*script: Any, tried: Tried, code: str = "", end: Any = "keep", body: Mapping[str, Any] | None = None) -> Scene:
    """After the first content went out."""
    tried = replace(tried, status=200)
    error = tried.error
    return Scene(body or STREAM, play(*script, end=end), (tried,), 200, "failed", code or tried.code, error, "estimated", way=is_cut)


SLOW = {"model": "slow"}
FAILED = {
    "400": answers(400, seen=400),
    "401": answers(401),
    "404": answers(404, seen=404, own="x"),
    "429": answers(429, seen=429, code="rate_limit_exceeded"),
    "a code that we know": answers(429, seen=429, code="rate_limit_exceeded", own="insufficient_quota", word="insufficient_quota"),
    "a code that is a key": answers(400, seen=400, own="sk-0123456789"),
    "500": answers(500),
    "529": answers(529),
    "HTML": failed(play(HTML), Tried("error", 503, "503"), code="upstream_error"),
    "unreachable": failed((), UNREACHABLE, body={"model": "nowhere"}),
    "reset": failed(play(end="rst"), INCOMPLETE),
    "no answer": failed(play(end="fin"), INCOMPLETE),
    "half a head": failed(play(b"HTTP/1.1 200 OK\r\nCon", end="fin"), INCOMPLETE),
    "truncated": failed(play(STUMP, end="fin"), INCOMPLETE),
    "no choices": failed(play(http(200, (), b'{"choices": []}')), INCOMPLETE),
    "an error in a 200": failed(play(http(200, (), IN_BODY)), INVALID),
    "an error as first event": failed(play(sse(QUOTA, D)), INVALID, 429, "rate_limit_exceeded", STREAM),
    "slow": failed(play((b"", 9.0)), TIMEOUT, 504, body=SLOW),
    "slow to begin": failed(play(sse_head(), end="hold"), TIMEOUT, 504, body=SLOW | STREAM),
    "a reset stream": breaks(BEGUN, (b"", 0.02), end="rst", tried=INCOMPLETE),
    "a stream without its end": breaks(BEGUN, (b"", 0.02), end="fin", tried=INCOMPLETE),
    "a false done": breaks(BEGUN, (chunk(D) + LAST_CHUNK, 0.02), tried=INCOMPLETE),
    "a stalled stream": breaks(BEGUN, end="hold", tried=TIMEOUT, body=SLOW | STREAM),
    "an error in a stream": breaks(
        BEGUN, (chunk(QUOTA), 0.02), tried=Tried("error", 200, "stream_interrupted", "upstream_error"), code="rate_limit_exceeded"
    ),
}

# ---- clients that leave


def left(way: Way, status: int | None, script: Script, body: Mapping[str, Any] | None = None) -> Scene:
    return Scene(body or {}, script, (Tried("cancelled", status),), None, "aborted", tokens="estimated", way=way)


LEFT = {
    "before": left(leaves_before, None, play(end="hold")),
    "before a stream": left(leaves_before, None, play(sse_head(), end="hold"), STREAM),
    "during a stream": left(leaves_during, 200, play(BEGUN, end="hold"), STREAM),
    "while sending": Scene({}, (), (), None, "aborted", tokens=None, way=leaves_while_sending),
}

SCENES: Mapping[str, Mapping[str, Scene]] = {"good": GOOD, "refused": REFUSED, "failed": FAILED, "left": LEFT}
