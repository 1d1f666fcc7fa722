"""Messages: who said which blocks. `Msg` is one; `UserMsg`, `AssistantMsg` and `SystemMsg` make one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from ..settings import ErrorInfo, ReplyFinishedReason
from .blocks import Block, TextBlock, new_id

Role = Literal["user", "assistant", "system"]
Content = str | Sequence[Block]
B = TypeVar("B", bound=Block)

_ALLOWED = {"user": {"text", "data", "foreign", "tool_result"}, "system": {"text", "foreign"}}


def timestamp() -> str:
    return datetime.now(UTC).isoformat()


class ChatUsage(msgspec.Struct):
    """Tokens of one answer, or of several. `cache_input_tokens` and `cache_creation_input_tokens` are part of `input_tokens`,
    `reasoning_tokens` of `output_tokens`. `source`: who says so; `none` means that nobody does and the zeros mean nothing. `unknown`: the
    total that nobody told, which stands as 0; of a sum, one that isn't whole."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_tokens: int = 0
    source: Literal["provider", "estimated", "none"] = "provider"
    unknown: Literal["", "input", "output"] = ""

    def __add__(self, other: ChatUsage) -> ChatUsage:
        order = ("provider", "estimated", "none")
        return ChatUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_input_tokens + other.cache_input_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            max(self.source, other.source, key=order.index),
            self.unknown or other.unknown,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Msg(msgspec.Struct):
    """One message. `content` may be given as plain text. A whole reply, with its tool calls and their results, is one message."""

    name: str
    content: list[Block]
    role: Role
    id: str = msgspec.field(default_factory=new_id)
    metadata: dict[str, Any] = {}
    created_at: str = msgspec.field(default_factory=timestamp)
    usage: ChatUsage | None = None
    finished_at: str | None = None
    finished_reason: ReplyFinishedReason | None = None
    structured_output: Any = None
    error: ErrorInfo | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        given: Any = self.content
        if not isinstance(given, list):
            self.content = [TextBlock(given)] if isinstance(given, str) else list(given)
        allowed = _ALLOWED.get(self.role)
        odd = [block.type for block in self.content if block.type not in allowed] if allowed else []
        if odd:
            raise ValueError(f"A {self.role} message can't hold a {odd[0]} block; put it into an AssistantMsg.")

    @property
    def text(self) -> str:
        """Its text, all of it."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    def get_text_content(self, separator: str = "\n") -> str | None:
        """Its texts, joined; None if it has none."""
        texts = [block.text for block in self.content if isinstance(block, TextBlock)]
        return separator.join(texts) if texts else None

    def get_content_blocks(self, block_type: str | Sequence[str] | None = None) -> list[Any]:
        """Its blocks, or those of one type or several."""
        if block_type is None:
            return list(self.content)
        wanted = {block_type} if isinstance(block_type, str) else set(block_type)
        return [block for block in self.content if block.type in wanted]

    def has_content_blocks(self, block_type: str | Sequence[str] | None = None) -> bool:
        return bool(self.get_content_blocks(block_type))

    def blocks(self, kind: type[B]) -> list[B]:
        """Its blocks of one class."""
        return [block for block in self.content if isinstance(block, kind)]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_dict(cls, value: Any) -> Msg:
        """From what `to_dict` made."""
        return msgspec.convert(value, cls)


def _made(role: Role, given: tuple[Any, ...], named: dict[str, Any]) -> Msg:
    """`("text")`, `("name", "text")` or by keyword."""
    if len(given) > 2:
        raise TypeError(f"a {role} message takes a name and a content, not {len(given)} values")
    if given:
        named["content"] = given[-1]
    if len(given) == 2:
        named["name"] = given[0]
    return Msg(role=role, **{"name": role} | named)


def UserMsg(*name_and_content: Any, **fields: Any) -> Msg:  # noqa: N802 - reads as the class that it stands for
    """What a user says: `UserMsg("Hello")`, `UserMsg("alice", "Hello")` or `UserMsg(name="alice", content=[…])`."""
    return _made("user", name_and_content, fields)


def AssistantMsg(*name_and_content: Any, **fields: Any) -> Msg:  # noqa: N802
    """What an agent or a model says."""
    return _made("assistant", name_and_content, fields)


def SystemMsg(*name_and_content: Any, **fields: Any) -> Msg:  # noqa: N802
    """Instructions."""
    return _made("system", name_and_content, fields)


Input = Msg | str | Sequence[Msg] | None


def as_messages(inputs: Any) -> list[Msg]:
    """What was given to an agent, as messages.

    Raises:
        TypeError: it is nothing that can be said.
    """
    if inputs is None:
        return []
    if isinstance(inputs, str):
        return [UserMsg(inputs)]
    if isinstance(inputs, Msg):
        return [inputs]
    if isinstance(inputs, list | tuple) and all(isinstance(each, Msg) for each in inputs):
        return list(inputs)
    raise TypeError(f"an agent is given a text, a Msg or a list of them, not {type(inputs).__name__}")
