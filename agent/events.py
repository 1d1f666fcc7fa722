"""What a reply tells while it runs, in AgentScope's words: events, frozen, each with its reply's id and its number in that reply.

    ReplyStart → (Hint)* → ModelCallStart → text, thinking, tool call and data blocks, each start, deltas, end → ModelCallEnd
    → for each tool ToolResultStart, deltas, ToolResultEnd → … → ReplyEnd

`seq` counts from 1 in the order in which events leave the agent; before that, inside the layers, it is 0. Calls that the agent makes for
itself have no events here.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import msgspec

from .messages.blocks import (
    Base64Source,
    DataBlock,
    HintBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    URLSource,
    new_id,
)
from .settings import ErrorInfo, FinishedReason, ReplyFinishedReason

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them carry. `type` is the class's name in AgentScope's words: `TextBlockDeltaEvent` is a `TEXT_BLOCK_DELTA`."""

    type: ClassVar[str] = "EVENT"
    reply_id: str = ""
    seq: int = 0
    id: str = msgspec.field(default_factory=new_id)
    metadata: dict[str, Any] = {}

    def __init_subclass__(cls) -> None:
        cls.type = _CAPITAL.sub("_", cls.__name__.removesuffix("Event")).upper()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, with its type."""
        return {"type": self.type, **msgspec.to_builtins(self)}


class ReplyStartEvent(AgentEvent, frozen=True, kw_only=True):
    """A reply begins. Going on after a swallowed end brings no second one."""

    name: str = ""
    session_id: str = ""
    role: str = "assistant"


class ReplyEndEvent(AgentEvent, frozen=True, kw_only=True):
    """A reply is about to end. A middleware that does not pass it on makes the agent go on with another round."""

    session_id: str = ""
    finished_reason: ReplyFinishedReason = ReplyFinishedReason.COMPLETED
    error: ErrorInfo | None = None


class ModelCallStartEvent(AgentEvent, frozen=True, kw_only=True):
    """The model is asked."""

    model_name: str = ""


class ModelCallEndEvent(AgentEvent, frozen=True, kw_only=True):
    """The model has answered; `model_name` is the one that did, whoever was asked first. `cache_…` are part of `input_tokens`."""

    model_name: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_tokens: int = 0
    usage_source: str = "provider"
    usage_unknown: str = ""
    """The total, `input` or `output`, that the provider left out: it stands as 0."""
    finished_reason: FinishedReason = FinishedReason.COMPLETED
    finish: str | None = None
    """The provider's own word: stop, length, tool_calls…"""


def shown(source: Base64Source | URLSource) -> dict[str, Any]:
    """What a piece of data says of where it is: `media_type`, and `data` or `url`."""
    data, url = (source.data, None) if isinstance(source, Base64Source) else (None, source.url)
    return {"media_type": source.media_type, "data": data, "url": url}


class BlockEvent(AgentEvent, frozen=True, kw_only=True):
    """About one block of the answer."""

    block_id: str = ""


class BlockDeltaEvent(BlockEvent, frozen=True, kw_only=True):
    """A piece of the text of one block."""

    delta: str = ""


class TextBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """A text begins."""


class TextBlockDeltaEvent(BlockDeltaEvent, frozen=True, kw_only=True):
    """A piece of a text."""


class TextBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """A text ends."""


class ThinkingBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """Thinking begins."""


class ThinkingBlockDeltaEvent(BlockDeltaEvent, frozen=True, kw_only=True):
    """A piece of thinking."""


class ThinkingBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """Thinking ends."""


class DataBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """Data begins."""

    media_type: str = ""
    name: str | None = None


class DataBlockDeltaEvent(BlockEvent, frozen=True, kw_only=True):
    """`data` is a piece of base64 that can be decoded by itself."""

    media_type: str = ""
    data: str | None = None
    url: str | None = None


class DataBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """Data ends."""


class HintBlockEvent(BlockEvent, frozen=True, kw_only=True):
    """A hint went into the context."""

    hint: str | list[TextBlock | DataBlock] = ""
    source: str | None = None

    @classmethod
    def of(cls, block: HintBlock, reply_id: str) -> HintBlockEvent:
        return cls(reply_id=reply_id, block_id=block.id, hint=block.hint, source=block.source)


class ToolEvent(AgentEvent, frozen=True, kw_only=True):
    """About one tool call."""

    tool_call_id: str = ""


class ToolStartEvent(ToolEvent, frozen=True, kw_only=True):
    """Something about one tool call begins; from here on its name is known."""

    tool_call_name: str = ""


class ToolDeltaEvent(ToolEvent, frozen=True, kw_only=True):
    """A piece of a text about one tool call."""

    delta: str = ""


class ToolCallStartEvent(ToolStartEvent, frozen=True, kw_only=True):
    """A tool call begins to come."""


class ToolCallDeltaEvent(ToolDeltaEvent, frozen=True, kw_only=True):
    """A piece of the JSON text of its arguments."""


class ToolCallEndEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool call is whole."""


class ToolResultStartEvent(ToolStartEvent, frozen=True, kw_only=True):
    """A tool begins."""


class ToolResultTextDeltaEvent(ToolDeltaEvent, frozen=True, kw_only=True):
    """A piece of a tool's text."""


class ToolResultDataDeltaEvent(ToolEvent, frozen=True, kw_only=True):
    """Data from a tool."""

    block_id: str = ""
    media_type: str = ""
    data: str | None = None
    url: str | None = None


class ToolResultEndEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool has ended, so or so."""

    state: ToolResultState = ToolResultState.SUCCESS


class WaitingEvent(AgentEvent, frozen=True, kw_only=True):
    """These calls wait for somebody outside. What follows is a pause, not an end."""

    tool_calls: list[ToolCallBlock] = []


class RequireUserConfirmEvent(WaitingEvent, frozen=True, kw_only=True):
    """They wait for a person's word."""


class RequireExternalExecutionEvent(WaitingEvent, frozen=True, kw_only=True):
    """They are made elsewhere."""


class ConfirmResult(msgspec.Struct, frozen=True):
    """A person's word on one call, which may have been edited."""

    confirmed: bool
    tool_call: ToolCallBlock


class UserConfirmResultEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: what a person decided."""

    confirm_results: list[ConfirmResult] = []


class ExternalExecutionResultEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: what became of the calls that were made elsewhere."""

    execution_results: list[ToolResultBlock] = []


class UserInterruptEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: the user has had enough of a reply that waits."""


class CustomEvent(AgentEvent, frozen=True, kw_only=True):
    """A middleware's own word."""

    name: str = ""
    value: Any = None
