"""What a tool gives: pieces (`ToolChunk`), and at the end the whole (`ToolResponse`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from ..messages.blocks import DataBlock, TextBlock, ToolResultState

Content: TypeAlias = list[TextBlock | DataBlock]


class ToolChunk(msgspec.Struct):
    """A piece of a tool's result. `content` may be given as plain text."""

    content: Content = msgspec.field(default_factory=list)
    state: ToolResultState = ToolResultState.RUNNING
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        given: Any = self.content
        if isinstance(given, str):
            self.content = [TextBlock(given)]

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


class ToolResponse(ToolChunk):
    """The whole result of a tool."""

    state: ToolResultState = ToolResultState.SUCCESS

    @classmethod
    def error(cls, text: str, state: ToolResultState = ToolResultState.ERROR, **metadata: Any) -> ToolResponse:
        """A result that says what went wrong."""
        return cls([TextBlock(text)], state, metadata)


def as_chunk(value: Any) -> ToolChunk:
    """What a tool returned or yielded, as a piece: text, blocks, or any value, which is told as JSON."""
    if isinstance(value, ToolChunk):
        return value
    if value is None:
        return ToolChunk()
    if isinstance(value, str):
        return ToolChunk([TextBlock(value)])
    if isinstance(value, TextBlock | DataBlock):
        return ToolChunk([value])
    if isinstance(value, Sequence) and value and all(isinstance(each, TextBlock | DataBlock) for each in value):
        return ToolChunk(list(value))
    return ToolChunk([TextBlock(_told(value))])


def _told(value: Any) -> str:
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return str(dump())
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, default=str)


def joined(chunks: Sequence[ToolChunk]) -> ToolResponse:
    """The whole that these pieces are: neighbouring texts become one. A whole among them stands for all before it."""
    content: Content = []
    state = ToolResultState.SUCCESS
    metadata: dict[str, Any] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolResponse):
            content = []
        metadata |= chunk.metadata
        if chunk.state is not ToolResultState.RUNNING:
            state = chunk.state
        for block in chunk.content:
            if isinstance(block, TextBlock) and content and isinstance(content[-1], TextBlock):
                content[-1] = TextBlock(content[-1].text + block.text, content[-1].id)
            else:
                content.append(block)
    return ToolResponse(content, state, metadata)
