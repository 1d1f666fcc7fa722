"""What a tool gives: pieces (`ToolChunk`), and at the end the whole (`ToolResponse`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from ..messages.blocks import Base64Source, DataBlock, TextBlock, ToolResultState

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


class Joining:
    """Pieces on their way to a whole: neighbouring texts become one. A whole among them stands for all before it."""

    __slots__ = ("_content", "_metadata", "_state", "_texts")

    def __init__(self) -> None:
        self._content: Content = []
        self._texts: list[str] = []  # more of the last block
        self._state = ToolResultState.SUCCESS
        self._metadata: dict[str, Any] = {}

    def add(self, chunk: ToolChunk) -> None:
        if isinstance(chunk, ToolResponse):
            self._content, self._texts = [], []
        if chunk.metadata:
            self._metadata |= chunk.metadata
        if chunk.state is not ToolResultState.RUNNING:
            self._state = chunk.state
        for block in chunk.content:
            if isinstance(block, TextBlock) and self._content and isinstance(self._content[-1], TextBlock):
                if block.text:
                    self._texts.append(block.text)
            else:
                self._settle()
                self._content.append(block)

    def whole(self) -> ToolResponse:
        self._settle()
        return ToolResponse(list(self._content), self._state, dict(self._metadata))

    def _settle(self) -> None:
        # Joined once: a text that grows by each piece is copied by each.
        if self._texts:
            last = self._content[-1]
            assert isinstance(last, TextBlock)
            self._content[-1] = TextBlock("".join((last.text, *self._texts)), last.id)
            self._texts = []


def weight(block: TextBlock | DataBlock) -> int:
    """Its characters: of text, or of base64."""
    if isinstance(block, TextBlock):
        return len(block.text)
    return len(block.source.data) if isinstance(block.source, Base64Source) else len(block.source.url)


def joined(chunks: Iterable[ToolChunk]) -> ToolResponse:
    """The whole that these pieces are."""
    joining = Joining()
    for chunk in chunks:
        joining.add(chunk)
    return joining.whole()
