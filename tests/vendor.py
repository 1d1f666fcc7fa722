"""A script for tests/upstream.py that answers as OpenAI does: chats, with tools, in a format, streamed or whole, texts and embeddings.

It writes JSON in a way of its own and knows fields that nobody has heard of, so that whatever rewrites its answers shows.
"""

from __future__ import annotations

import json
from typing import Any

from upstream import C, D, F, Play, Request, U, chat_chunk, http, play, sse, usage, wants_stream

CALLS: list[dict[str, Any]] = [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]
LOGPROBS = {"content": [{"token": "é", "logprob": -0.12, "bytes": [195, 169], "top_logprobs": [{"token": "e", "logprob": -2.5}]}]}
MORE = {"system_fingerprint": "fp_1", "service_tier": "default", "provider_specific": {"x": [1, 2.50, None]}}
SAID = {"refusal": None, "annotations": [{"type": "url_citation"}], "reasoning_content": "because"}


def provider(request: Request) -> Play:
    """Answers as OpenAI does: to chats, with tools, in a format, streamed or whole; usage in a stream only if it was asked for."""
    asked = request.json()
    if request.path.endswith("/embeddings"):
        return play(http(200, (), vectors(asked)))
    if request.path.endswith("/completions") and "prompt" in asked:
        choice = {"text": "Hello", "index": 0, "finish_reason": "stop"}
        return play(http(200, (), spaced({"id": "c", "object": "text_completion", "model": "m", "choices": [choice]})))
    return play(streamed(asked) if wants_stream(request) else http(200, (), whole(asked)))


def spaced(value: Any) -> bytes:
    """JSON with spaces and line ends of its own, so that writing it again would show."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def whole(asked: dict[str, Any]) -> bytes:
    text = '{"city": "Rome", "degrees": 21}' if "response_format" in asked else "Héllo 🙂"
    said = {"content": None, "tool_calls": CALLS} if "tools" in asked else {"content": text, **SAID}
    message = {"role": "assistant", **said}
    finish = "tool_calls" if "tools" in asked else "stop"
    choice = {"index": 0, "message": message, "logprobs": LOGPROBS, "finish_reason": finish}
    return spaced({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage(7, 2), **MORE})


def streamed(asked: dict[str, Any]) -> bytes:
    events = [chat_chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}], **MORE)]
    if "tools" in asked:
        parts = [{"index": 0, **CALLS[0], "function": {"name": "weather", "arguments": ""}}]
        parts += [{"index": 0, "function": {"arguments": piece}} for piece in ('{"ci', 'ty": "Rome"}')]
        events += [chat_chunk([{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]) for part in parts]
        events.append(F("tool_calls"))
    else:
        delta = {"content": "é", "reasoning_content": "b", "x_new": {"a": 1}}
        choice = {"index": 0, "delta": delta, "logprobs": LOGPROBS, "finish_reason": None}
        events += [C("H"), b": a comment\n\n", chat_chunk([choice]), F("stop")]
    if (asked.get("stream_options") or {}).get("include_usage"):
        events.append(U(7, 2))
    return sse(*events, D)


def vectors(asked: dict[str, Any]) -> bytes:
    packed = "AACAPwAAAEAAAEBA" if asked.get("encoding_format") == "base64" else [1.0, 2.0, 3.0]
    data = [{"object": "embedding", "index": 0, "embedding": packed}]
    return spaced({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}})
