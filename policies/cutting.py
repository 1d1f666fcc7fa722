"""The end of a stream that is cut before its own: the last chunk of each choice, and the usage chunk where it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..call.call import Call
from ..call.events import Closed, Delta, Envelope, Event, Usage

_OBJECT = {"chat": "chat.completion.chunk", "completions": "text_completion"}


def ending(call: Call, envelope: Envelope | None, usage: Usage) -> Iterator[Event]:
    """The events that end a stream with `finish_reason: length`. `usage` is what it has taken by then."""
    known = envelope or Envelope("", call.model, object=_OBJECT.get(call.op, "chat.completion.chunk"))
    head: dict[str, Any] = {"id": known.id, "object": known.object, "created": known.created, "model": known.model}
    said: dict[str, Any] = {"text": ""} if call.op == "completions" else {"delta": {}}
    choices = [{"index": index, **said, "finish_reason": "length"} for index in range(call.head.n)]
    frame = call.head.usage_frame
    chunks = [{**head, "choices": [choice], **({"usage": None} if frame else {})} for choice in choices]
    if frame:
        tokens = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.input + usage.output}
        chunks.append({**head, "choices": [], "usage": tokens})
    yield Delta.saying(*chunks)
    yield Closed(usage, "length", cut=True)
