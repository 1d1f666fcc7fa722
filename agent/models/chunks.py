"""From OpenAI's chat completion chunks to pieces of an answer. Pure; every model that speaks that dialect stands on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...call.events import Usage, dicts
from ...call.parts import CallParts
from ...call.usage import usage_of
from ..messages.blocks import Block, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from ..messages.chat import REASONING
from ..messages.msg import ChatUsage
from ..settings import FinishedReason
from .response import ChatResponse, Gathered

_KNOWN = {"role", "content", "refusal", "tool_calls", "function_call", *REASONING}


class ChatPieces:
    """The pieces of one answer, made of chunks, whole or not. `last` is the whole of it."""

    def __init__(self, model: str = "") -> None:
        self.model = model
        self.id = new_id()
        self.finish: str | None = None
        self.usage: ChatUsage | None = None
        self._gathered = Gathered()
        self._parts: CallParts[ToolCallBlock] = CallParts()
        self._ids: set[str] = set()
        self._text, self._thinking = new_id(), new_id()
        self._beside: dict[str, Any] = {}

    def add(self, chunk: Mapping[str, Any]) -> ChatResponse | None:
        """The piece that this chunk (or whole completion) brings, if it says anything."""
        self.model = words_of(chunk, "model") or self.model
        usage = usage_of(chunk.get("usage"))
        if usage is not None and (not usage.unknown or self.usage is None):  # half of it takes nothing from the whole
            self.usage = chat_usage(usage)
        blocks: list[Block] = []
        for choice in dicts(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue  # an agent goes on with one answer
            said = choice.get("delta") or choice.get("message")
            if isinstance(said, Mapping):
                blocks += self._blocks(said)
            self.finish = words_of(choice, "finish_reason") or self.finish
        if not blocks:
            return None
        piece = ChatResponse(blocks, is_last=False, id=self.id, model=self.model)
        self._gathered.add(piece)
        return piece

    def go_on_with(self, block: Block, index: int = 0) -> None:
        """What comes from now on is more of this block; `index`: of a tool call, the one that it has in chunks."""
        if isinstance(block, ToolCallBlock):
            self._ids.add(block.id)
            self._parts.goes_on(block, block.id, index)
        elif isinstance(block, ThinkingBlock):
            self._thinking = block.id
        elif isinstance(block, TextBlock):
            self._text = block.id

    def _blocks(self, said: Mapping[str, Any]) -> list[Block]:
        blocks: list[Block] = []
        for field in REASONING:
            if isinstance(said.get(field), str) and said[field]:
                blocks.append(ThinkingBlock(said[field], self._thinking, {"chat": {"field": field}}))
                break
        if isinstance(said.get("content"), str) and said["content"]:
            blocks.append(TextBlock(said["content"], self._text))
        if isinstance(said.get("refusal"), str) and said["refusal"]:
            blocks.append(TextBlock(said["refusal"], f"{self._text}-refusal", {"chat": {"refusal": True}}))
        parts = dicts(said.get("tool_calls"))
        # Two calls of one message may bear one id; where they have no index either, their places tell them apart.
        twice = len({str(part.get("id")) for part in parts}) < len(parts)
        blocks += [self._call({"index": number, **part} if twice else part) for number, part in enumerate(parts)]
        self._beside |= {name: value for name, value in said.items() if name not in _KNOWN and value not in (None, [], "")}
        return blocks

    def _call(self, part: Mapping[str, Any]) -> ToolCallBlock:
        function = fields_of(part, "function")
        name, arguments = words_of(function, "name"), function.get("arguments") or ""
        known = self._parts.of(part, lambda own: self._begun(own, name), names=bool(name))
        return ToolCallBlock(known.id, name or known.name, arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _begun(self, own: str | None, name: str) -> ToolCallBlock:
        call_id = own if own and own not in self._ids else f"call_{new_id()[:24]}"
        self._ids.add(call_id)
        return ToolCallBlock(call_id, name, "")

    def last(self) -> ChatResponse:
        """The whole answer."""
        content = self._gathered.content
        if self._beside and content:
            content[0].extra["chat.message"] = dict(self._beside)
        finish = self.finish
        return ChatResponse(content, True, self.id, self.usage, FinishedReason.COMPLETED, finish, self.model)


def fields_of(said: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in this field; an empty one for anything else."""
    value = said.get(name)
    return value if isinstance(value, Mapping) else {}


def words_of(said: Mapping[str, Any], name: str) -> str:
    """The text of this field; empty for anything else."""
    value = said.get(name)
    return value if isinstance(value, str) else ""


def proxy_usage(usage: ChatUsage | None) -> Usage | None:
    """The agent's words for usage in the proxy's."""
    if usage is None or usage.source == "none":
        return None
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_input_tokens,
        usage.cache_creation_input_tokens,
        usage.reasoning_tokens,
        usage.source,
        usage.unknown,
    )


def chat_usage(usage: Usage | None) -> ChatUsage | None:
    """The proxy's words for usage in the agent's."""
    if usage is None:
        return None
    return ChatUsage(usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning, usage.source, usage.unknown)
