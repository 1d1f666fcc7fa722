"""Between an agent's words and the proxy's: a `Call` from messages, pieces of an answer from a call's events.

The models in process and the policies of an agent stand on it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from ..call.body import Body
from ..call.call import Call, Caller, Head, Labels
from ..call.chain import pulling
from ..call.events import Closed, Delta, Event, Opened
from .asking import asking
from .messages.chat import to_chat
from .messages.msg import Msg
from .models.chunks import ChatPieces, chat_usage
from .models.response import ChatResponse
from .settings import ToolChoice

_PURPOSES = {"main": "main", "summary": "summary", "router": "router", "memory": "search", "rerank": "search"}


def chat_body(
    messages: Sequence[Msg], tools: Sequence[Mapping[str, Any]], tool_choice: ToolChoice | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """A chat completions body, without model and stream."""
    body: dict[str, Any] = {"messages": to_chat(messages), **settings}
    if tools:
        body["tools"] = [dict(tool) for tool in tools]
        choice = chat_tool_choice(tool_choice)
        if choice is not None:
            body["tool_choice"] = choice
    return body


def chat_tool_choice(choice: ToolChoice | None) -> Any:
    """A tool choice as OpenAI writes it; None: its default."""
    if choice is None or (choice.mode == "auto" and not choice.tools):
        return None
    if choice.mode == "none":
        return "none"
    if choice.mode in ("auto", "required"):
        if not choice.tools:
            return choice.mode
        named = [{"type": "function", "function": {"name": name}} for name in choice.tools]
        if choice.mode == "required" and len(named) == 1:
            return named[0]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": named}}
    return {"type": "function", "function": {"name": choice.mode}}


def call_of(body: Mapping[str, Any], *, model: str, stream: bool, caller: Caller | None = None) -> Call:
    """The call that this body is, for the reply that is being made."""
    now = asking.get()
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    head = Head(stream=stream, n=1, output_cap=cap if isinstance(cap, int) else None, usage_frame=stream)
    shaped = {**body, "model": model, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    return Call(
        op="chat",
        model=model,
        body=Body.of(shaped),
        head=head,
        caller=caller or Caller(),
        labels=Labels(thread=now.thread, reply=now.reply),
        purpose=_PURPOSES.get(now.purpose, "classify"),  # type: ignore[arg-type]
        deadline=now.deadline,
    )


async def pieces_of(events: AsyncIterator[Event], model: str) -> AsyncGenerator[ChatResponse, None]:
    """The pieces of the answer that these events are."""
    pieces = ChatPieces(model)
    async with pulling(events) as answer:
        async for event in answer:
            if isinstance(event, Opened):
                pieces.model = event.model or pieces.model
            elif isinstance(event, Delta):
                for chunk in event.chunks:
                    piece = pieces.add(chunk)
                    if piece is not None:
                        yield piece
            elif isinstance(event, Closed):
                pieces.usage = chat_usage(event.usage) or pieces.usage
                pieces.finish = event.finish or pieces.finish
    yield pieces.last()
