"""Between an agent's words and the proxy's: a `Call` from messages, and messages, tools and settings from the body of a call.

The models in process and the policies of an agent stand on it; answers are in deltas.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

import msgspec

from ..call.body import Body
from ..call.call import Call, Caller, Head, Labels
from ..call.chain import pulling
from ..call.errors import OurFault
from ..call.events import Closed, Delta, Event, Opened
from ..call.seen import Seen
from .asking import Asking, asking
from .messages.chat import from_chat, to_chat
from .messages.msg import Msg
from .messages.turns import turns
from .models.chunks import ChatPieces, chat_usage
from .models.labels import trace_parent
from .models.response import ChatResponse
from .settings import ToolChoice

MODES = ("auto", "none", "required")


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


def tool_choice_of(written: Any) -> ToolChoice | None:
    """The other way round; None for what says nothing."""
    if isinstance(written, str):
        return ToolChoice(written) if written in MODES else None
    if not isinstance(written, Mapping):
        return None
    allowed = written.get("allowed_tools")
    if isinstance(allowed, Mapping):
        return ToolChoice(str(allowed.get("mode", "auto")), [name for each in allowed.get("tools", ()) if (name := _named(each))])
    name = _named(written)
    return ToolChoice(name) if name else None


def _named(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def call_of(
    body: Mapping[str, Any] | Body,
    *,
    model: str,
    stream: bool,
    caller: Caller | None = None,
    output_cap: Any = None,
    now: Asking | None = None,
) -> Call:
    """The call that this body is, for the reply that is being made, in the trace that is going on."""
    now = now or asking.get()
    caller = caller or Caller()
    usage_frame = stream and not isinstance(body, Body)
    if not isinstance(body, Body):
        output_cap = body.get("max_completion_tokens") or body.get("max_tokens")
        body = Body.of({**body, "model": model, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})})
    cap = output_cap if isinstance(output_cap, int) else None
    return Call(
        op="chat",
        model=model,
        body=body,
        head=Head(stream=stream, n=1, output_cap=cap, usage_frame=usage_frame),
        caller=caller,
        labels=Labels(thread=now.thread, reply=now.reply),
        purpose=now.purpose,
        deadline=now.deadline,
        seen=_opened(model, stream, caller, now),
    )


def _opened(model: str, stream: bool, caller: Caller, now: Asking) -> Seen:
    trace_id, parent, sampled = trace_parent()
    seen = Seen.open(trace_id=trace_id, parent_span_id=parent, sampled=sampled)
    seen.op, seen.model, seen.stream, seen.thread, seen.reply = "chat", model, stream, now.thread, now.reply
    seen.organisation, seen.team, seen.key, seen.user = caller.organisation, caller.team, caller.key, caller.user
    return seen


async def pieces_of(events: AsyncIterator[Event], model: str) -> AsyncGenerator[ChatResponse, None]:
    """The pieces of the answer that these events are.

    Raises:
        OurFault: they ended without `Closed`: such an answer isn't whole, and nobody may be told that it is.
    """
    pieces = ChatPieces(model)
    closed = False
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
                closed = True
                pieces.usage = chat_usage(event.usage) or pieces.usage
                pieces.finish = event.finish or pieces.finish
    if not closed:
        raise OurFault("The gateway failed to end this answer.", detail="a layer ended its answer without Closed")
    yield pieces.last()


class UnreadBody(Body):
    """A body that is made when somebody looks into it; most policies don't."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self.raw = None
        self._make = make
        self._made: Mapping[str, Any] | None = None

    @property
    def fields(self) -> Mapping[str, Any]:  # type: ignore[override]
        if self._made is None:
            self._made = Body.of(self._make()).fields
        return self._made


def changed_fields(before: Body, after: Body) -> dict[str, Any]:
    """The fields of `after` that differ, decoded; None for one that is gone."""
    if after is before:
        return {}
    names = {**before.fields, **after.fields}
    return {name: after.get(name) for name in names if not _same(before.fields.get(name), after.fields.get(name))}


def _same(one: Any, other: Any) -> bool:
    return one is other or (one is not None and other is not None and bytes(one) == bytes(other))


def messages_of(written: Sequence[Mapping[str, Any]], known: Sequence[Msg]) -> list[Msg]:
    """The messages that these are. Those that stand in `known` are the very ones, with all that OpenAI's dialect can't say of them."""
    there: dict[str, list[tuple[list[str], Msg]]] = {}
    for said, msg in _turns_of(known):
        there.setdefault(said[0], []).append((said, msg))
    lines = [_line(each) for each in written]
    found: list[Msg] = []
    at = 0
    while at < len(lines):
        fitting = [pair for pair in there.get(lines[at], ()) if lines[at : at + len(pair[0])] == pair[0]]
        if fitting:
            there[lines[at]].remove(fitting[0])
            found.append(fitting[0][1])
            at += len(fitting[0][0])
        else:
            found += from_chat([written[at]])
            at += 1
    return found


def _turns_of(messages: Sequence[Msg]) -> Iterator[tuple[list[str], Msg]]:
    """Each turn as lines of JSON, and as a message of its own."""
    for turn in turns(messages):
        of = turn.of
        whole = len(turn.blocks) == len(of.content) and all(map(is_, turn.blocks, of.content))
        alone = of if whole else msgspec.structs.replace(of, content=list(turn.blocks))
        if not turn.is_first and alone is not of:
            alone = msgspec.structs.replace(alone, extra={})
        said = [_line(each) for each in to_chat([alone])]
        if said:
            yield said, alone


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
