"""The blocks that a message is made of.

Each knows its `type`. `extra` holds, by dialect, what a provider said beyond the fields here, so that it goes back to that provider as
it came and to no other.
"""

from __future__ import annotations

from enum import StrEnum
from random import getrandbits
from typing import Any, ClassVar, Literal

import msgspec


def new_id() -> str:
    return f"{getrandbits(128):032x}"


class ToolCallState(StrEnum):
    """Where a tool call stands."""

    PENDING = "pending"
    ASKING = "asking"
    ALLOWED = "allowed"
    SUBMITTED = "submitted"
    FINISHED = "finished"


class ToolResultState(StrEnum):
    """How a tool call went."""

    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    DENIED = "denied"
    INTERRUPTED = "interrupted"


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    """Text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Any] = {}


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    """What a model thought before it spoke. Signatures and the like are in `extra`."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    thinking: str
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Any] = {}


class Base64Source(msgspec.Struct, tag_field="type", tag="base64"):
    """Bytes, as base64."""

    type: ClassVar[Literal["base64"]] = "base64"
    data: str
    media_type: str


class URLSource(msgspec.Struct, tag_field="type", tag="url"):
    """Where the bytes are."""

    type: ClassVar[Literal["url"]] = "url"
    url: str
    media_type: str = ""


class DataBlock(msgspec.Struct, tag_field="type", tag="data"):
    """An image, sound or file."""

    type: ClassVar[Literal["data"]] = "data"
    source: Base64Source | URLSource
    name: str | None = None
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Any] = {}


class HintBlock(msgspec.Struct, tag_field="type", tag="hint"):
    """A word to the model in the middle of a reply; it reaches the model as a user's message."""

    type: ClassVar[Literal["hint"]] = "hint"
    hint: str | list[TextBlock | DataBlock]
    source: str | None = None
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Any] = {}

    @property
    def blocks(self) -> list[TextBlock | DataBlock]:
        """What it says."""
        return [TextBlock(self.hint)] if isinstance(self.hint, str) else list(self.hint)

    @property
    def text(self) -> str:
        return self.hint if isinstance(self.hint, str) else "".join(part.text for part in self.hint if isinstance(part, TextBlock))


class ToolCallBlock(msgspec.Struct, tag_field="type", tag="tool_call"):
    """A call that the model makes. `input` is the JSON text of its arguments, as the model wrote it."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    input: str = "{}"
    state: ToolCallState = ToolCallState.PENDING
    extra: dict[str, Any] = {}


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result"):
    """What became of a tool call; `id` is the call's."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    id: str
    name: str
    output: str | list[TextBlock | DataBlock] = ""
    state: ToolResultState = ToolResultState.RUNNING
    metadata: dict[str, Any] = {}
    extra: dict[str, Any] = {}

    @property
    def text(self) -> str:
        return self.output if isinstance(self.output, str) else "".join(part.text for part in self.output if isinstance(part, TextBlock))


class ForeignBlock(msgspec.Struct, tag_field="type", tag="foreign"):
    """What only one dialect has a word for, kept as it came. `whole`: it is a message, not a part of one."""

    type: ClassVar[Literal["foreign"]] = "foreign"
    dialect: str
    value: Any
    whole: bool = False
    id: str = msgspec.field(default_factory=new_id)
    extra: dict[str, Any] = {}


Block = TextBlock | ThinkingBlock | DataBlock | HintBlock | ToolCallBlock | ToolResultBlock | ForeignBlock
Said = TextBlock | ThinkingBlock | DataBlock | ToolCallBlock | ForeignBlock


def texts_of(block: Block) -> list[str]:
    """The texts in a block that a model reads."""
    if isinstance(block, TextBlock):
        return [block.text]
    if isinstance(block, ThinkingBlock):
        return [block.thinking]
    if isinstance(block, ToolCallBlock):
        return [block.input]
    if isinstance(block, HintBlock | ToolResultBlock):
        inner = block.hint if isinstance(block, HintBlock) else block.output
        return [inner] if isinstance(inner, str) else [part.text for part in inner if isinstance(part, TextBlock)]
    return []
