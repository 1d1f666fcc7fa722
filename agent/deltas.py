"""An agent's answer as the events of a call, on its way out through policies, and as pieces again where it comes back.

`Source` tells the answer of a model as `Opened`, `Delta`s and `Closed`; `Retold` makes an answer of what the policies let through. A
`Delta` that came through untouched is the very piece that it was made of, so nothing is lost that OpenAI's chunks can't say.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from ..call.events import Closed, Delta, Envelope, Event, Opened, dumped
from .errors import NoAnswer
from .messages.blocks import Block, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from .models.chunks import ChatPieces, chat_usage, fields_of, proxy_usage, words_of
from .models.response import Answer, ChatResponse, Gathered, ModelStream


class Piece(Delta):
    """A Delta that was made of a piece of an answer. `more`: the tool calls of which it holds more, and not the beginning."""

    __slots__ = ("more", "piece", "source")

    def __init__(self, raw: bytes = b"", *, sse: bool = True) -> None:
        super().__init__(raw, sse=sse)
        self.piece = ChatResponse(is_last=False)
        self.source: Source | None = None
        self.more: frozenset[str] = frozenset()


class Source:
    """One answer of a model. `given` is how many Deltas were made of it, `last` its last piece once that is there, `pieces` what makes
    pieces of chunks that a policy wrote: they go on with the blocks of this answer."""

    def __init__(self, model: str, provider: str = "") -> None:
        self.provider = provider
        self.envelope = Envelope(f"chatcmpl-{new_id()}", model, int(time.time()))
        self.pieces = ChatPieces(model)
        self.given = 0
        self.last: ChatResponse | None = None
        self.closed: Closed | None = None
        self._calls: dict[str, int] = {}
        self._told: set[str] = set()

    async def events(self, answer: Answer, *, stream: bool) -> AsyncGenerator[Event, None]:
        """The answer as events. Without `stream` it is whole, as a provider's would be.

        Raises:
            NoAnswer: it ended without its last piece.
        """
        source = answer if isinstance(answer, ModelStream) else ModelStream.of(answer)
        async with aclosing(source):
            if not stream:
                self.last = await source.response()
                yield self._opened(self.last, stream=False)
                yield self._made(dumped(self._completion(self.last)), self.last)
                yield self._end(self.last)
                return
            begun = False
            async for piece in source:
                if not begun:
                    yield self._opened(piece, stream=True)
                for delta in self._deltas(piece, opening=not begun):
                    yield delta
                begun = True
        if self.last is None:
            raise NoAnswer("The model's stream ended without its last piece.")
        yield self._end(self.last)

    def _end(self, last: ChatResponse) -> Closed:
        self.closed = Closed(proxy_usage(last.usage), last.finish)
        return self.closed

    def _opened(self, piece: ChatResponse, *, stream: bool) -> Opened:
        if piece.model:
            self.envelope = msgspec.structs.replace(self.envelope, model=piece.model)
        kind = "text/event-stream" if stream else "application/json"
        return Opened(self.envelope.model, self.provider, stream=stream, content_type=kind, envelope=self.envelope)

    def _deltas(self, piece: ChatResponse, *, opening: bool) -> list[Piece]:
        role = {"role": "assistant"} if opening else {}
        if not piece.is_last:
            return [self._delta(piece, role)]
        self.last = piece
        deltas = []
        rest = [block for block in piece.content if block.id not in self._told]
        if rest:
            deltas.append(self._delta(msgspec.structs.replace(piece, content=rest, is_last=False, usage=None), role))
            role = {}
        deltas.append(self._delta(ChatResponse([], is_last=False, id=piece.id, model=piece.model), role, piece.finish))
        return deltas

    def _delta(self, piece: ChatResponse, said: dict[str, Any], finish: str | None = None) -> Piece:
        more = frozenset(block.id for block in piece.content if isinstance(block, ToolCallBlock) and block.id in self._told)
        for block in piece.content:
            said = _joined(said, self._said(block))
            self._told.add(block.id)
        choice = {"index": 0, "delta": said, "finish_reason": finish}
        delta = self._made(b"", piece, {**self._head("chat.completion.chunk"), "choices": [choice]})
        delta.more = more
        return delta

    def _made(self, raw: bytes, piece: ChatResponse, chunk: dict[str, Any] | None = None) -> Piece:
        delta = Piece(raw, sse=False) if chunk is None else Piece.saying(chunk)
        assert isinstance(delta, Piece)
        delta.piece, delta.source = piece, self
        self.given += 1
        return delta

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.envelope.id, "object": kind, "created": self.envelope.created, "model": self.envelope.model}

    def _said(self, block: Block) -> dict[str, Any]:
        """What a chunk says of this block, or of this part of one."""
        if isinstance(block, TextBlock):
            self.pieces.go_on_with(block)
            return {"refusal" if block.extra.get("chat", {}).get("refusal") is True else "content": block.text}
        if isinstance(block, ThinkingBlock):
            self.pieces.go_on_with(block)
            return {block.extra.get("chat", {}).get("field", "reasoning_content"): block.thinking} if block.thinking else {}
        if isinstance(block, ToolCallBlock):
            index = self._calls.setdefault(block.id, len(self._calls))
            self.pieces.go_on_with(block, index)
            begins = {} if block.id in self._told else {"id": block.id, "type": "function"}
            function = {"name": block.name, "arguments": block.input} if begins else {"arguments": block.input}
            return {"tool_calls": [{"index": index, **begins, "function": function}]}
        return {}

    def _completion(self, last: ChatResponse) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for block in last.content:
            message = _joined(message, self._said(block))
        for call in message.get("tool_calls", ()):
            del call["index"]
        choice = {"index": 0, "message": message, "finish_reason": last.finish}
        return {**self._head("chat.completion"), "choices": [choice]}


def _joined(said: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    joined = dict(said)
    for name, value in more.items():
        known = joined.get(name)
        joined[name] = value if known is None else known + value
    return joined


class Retold:
    """The answer that policies made of a source's, or of their own."""

    def __init__(self, opened: Opened, source: Source | None) -> None:
        self._opened = opened
        self._source = source
        self._pieces = source.pieces if source is not None else ChatPieces(opened.model)
        self._pieces.model = opened.model or self._pieces.model
        self._gathered = Gathered()
        self._passed = 0
        self._untouched = source is not None

    def add(self, delta: Delta) -> ChatResponse | None:
        """The piece that this Delta is, if it says anything."""
        if isinstance(delta, Piece) and delta.source is self._source:
            self._passed += 1
            piece, more = delta.piece, delta.more
        else:
            self._untouched = False
            piece, more = self._read(delta)
        # A call whose beginning a policy took away is not begun by the rest of it.
        stray = {block_id for block_id in more if block_id not in self._gathered}
        if stray or piece.is_last:
            content = [block for block in piece.content if block.id not in stray]
            piece = msgspec.structs.replace(piece, content=content, is_last=False)
        if not piece.content:
            return None
        self._gathered.add(piece)
        return piece

    def _read(self, delta: Delta) -> tuple[ChatResponse, frozenset[str]]:
        content: list[Block] = []
        named = more = frozenset[str]()
        for chunk in delta.chunks:
            piece = self._pieces.add(chunk)
            if piece is not None:
                content += piece.content
                made = [block.id for block in piece.content if isinstance(block, ToolCallBlock)]
                # The first part of a call says which tool it calls.
                begins = [bool(words_of(fields_of(call, "function"), "name")) for call in Delta.saying(chunk).tool_calls]
                named |= {each for each, begun in zip(made, begins, strict=False) if begun}
                more |= set(made) - named
        return ChatResponse(content, is_last=False, id=self._pieces.id, model=self._pieces.model), more

    def last(self, closed: Closed) -> ChatResponse:
        """The whole answer. One that came through untouched is the source's own."""
        source = self._source
        whole = source.last if source is not None else None
        if whole is None or source is None or not self._untouched or self._passed != source.given:
            whole = self._rebuilt(whole)
        if source is None or closed is not source.closed:
            usage = chat_usage(closed.usage) if closed.usage is not None else whole.usage
            whole = msgspec.structs.replace(whole, usage=usage, finish=closed.finish or whole.finish)
        if self._opened.headers:
            whole = msgspec.structs.replace(whole, metadata={**whole.metadata, "headers": dict(self._opened.headers)})
        return whole

    def _rebuilt(self, whole: ChatResponse | None) -> ChatResponse:
        content = self._gathered.content
        if whole is None and self._source is not None:
            # The inside was left before its end: half a tool call is not a call.
            content = [block for block in content if not isinstance(block, ToolCallBlock) or _is_json(block.input)]
        before = {block.id: block for block in whole.content} if whole is not None else {}
        for block in content:
            other = before.get(block.id)
            if isinstance(block, ThinkingBlock) and not (isinstance(other, ThinkingBlock) and other.thinking == block.thinking):
                block.extra.pop("anthropic", None)  # it is signed: another text under that signature would be refused
        if whole is not None:
            return msgspec.structs.replace(whole, content=content)
        return ChatResponse(content, is_last=True, id=self._pieces.id, model=self._pieces.model)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
