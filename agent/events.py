"""What a reply tells while it runs, in AgentScope's words: events, frozen, each with its reply's id and its number in that reply.

    ReplyStart → (Hint)* → ModelCallStart → text, thinking, tool call and data blocks, each start, deltas, end → ModelCallEnd
    → for each tool ToolResultStart, deltas, ToolResultEnd → … → ReplyEnd

`seq` counts from 1 in the order in which events leave the agent; before that, inside the layers, it is 0. Calls that the agent makes for
itself have no events here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .messages.blocks import DataBlock, HintBlock, TextBlock, ToolCallBlock, ToolResultBlock, ToolResultState, new_id
from .settings import ErrorInfo, FinishedReason, ReplyFinishedReason


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them carry."""

    type: ClassVar[str] = "EVENT"
    reply_id: str = ""
    seq: int = 0
    id: str = msgspec.field(default_factory=new_id)
    metadata: dict[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, with its type."""
        return {"type": self.type, **msgspec.to_builtins(self)}


class ReplyStartEvent(AgentEvent, frozen=True, kw_only=True):
    """A reply begins. Going on after a swallowed end brings no second one."""

    type: ClassVar[str] = "REPLY_START"
    name: str = ""
    session_id: str = ""
    role: str = "assistant"


class ReplyEndEvent(AgentEvent, frozen=True, kw_only=True):
    """A reply is about to end. A middleware that does not pass it on makes the agent go on with another round."""

    type: ClassVar[str] = "REPLY_END"
    session_id: str = ""
    finished_reason: ReplyFinishedReason = ReplyFinishedReason.COMPLETED
    error: ErrorInfo | None = None


class ModelCallStartEvent(AgentEvent, frozen=True, kw_only=True):
    """The model is asked."""

    type: ClassVar[str] = "MODEL_CALL_START"
    model_name: str = ""


class ModelCallEndEvent(AgentEvent, frozen=True, kw_only=True):
    """The model has answered; `model_name` is the one that did, whoever was asked first. `cache_…` are part of `input_tokens`."""

    type: ClassVar[str] = "MODEL_CALL_END"
    model_name: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    reasoning_tokens: int = 0
    usage_source: str = "provider"
    finished_reason: FinishedReason = FinishedReason.COMPLETED
    finish: str | None = None
    """The provider's own word: stop, length, tool_calls…"""


class BlockEvent(AgentEvent, frozen=True, kw_only=True):
    """About one block of the answer."""

    block_id: str = ""


class TextBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """A text begins."""

    type: ClassVar[str] = "TEXT_BLOCK_START"


class TextBlockDeltaEvent(BlockEvent, frozen=True, kw_only=True):
    """A piece of a text."""

    type: ClassVar[str] = "TEXT_BLOCK_DELTA"
    delta: str = ""


class TextBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """A text ends."""

    type: ClassVar[str] = "TEXT_BLOCK_END"


class ThinkingBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """Thinking begins."""

    type: ClassVar[str] = "THINKING_BLOCK_START"


class ThinkingBlockDeltaEvent(BlockEvent, frozen=True, kw_only=True):
    """A piece of thinking."""

    type: ClassVar[str] = "THINKING_BLOCK_DELTA"
    delta: str = ""


class ThinkingBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """Thinking ends."""

    type: ClassVar[str] = "THINKING_BLOCK_END"


class DataBlockStartEvent(BlockEvent, frozen=True, kw_only=True):
    """Data begins."""

    type: ClassVar[str] = "DATA_BLOCK_START"
    media_type: str = ""
    name: str | None = None


class DataBlockDeltaEvent(BlockEvent, frozen=True, kw_only=True):
    """`data` is a piece of base64 that can be decoded by itself."""

    type: ClassVar[str] = "DATA_BLOCK_DELTA"
    media_type: str = ""
    data: str | None = None
    url: str | None = None


class DataBlockEndEvent(BlockEvent, frozen=True, kw_only=True):
    """Data ends."""

    type: ClassVar[str] = "DATA_BLOCK_END"


class HintBlockEvent(BlockEvent, frozen=True, kw_only=True):
    """A hint went into the context."""

    type: ClassVar[str] = "HINT_BLOCK"
    hint: str | list[TextBlock | DataBlock] = ""
    source: str | None = None

    @classmethod
    def of(cls, block: HintBlock, reply_id: str) -> HintBlockEvent:
        return cls(reply_id=reply_id, block_id=block.id, hint=block.hint, source=block.source)


class ToolEvent(AgentEvent, frozen=True, kw_only=True):
    """About one tool call."""

    tool_call_id: str = ""


class ToolCallStartEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool call begins to come."""

    type: ClassVar[str] = "TOOL_CALL_START"
    tool_call_name: str = ""


class ToolCallDeltaEvent(ToolEvent, frozen=True, kw_only=True):
    """A piece of the JSON text of its arguments."""

    type: ClassVar[str] = "TOOL_CALL_DELTA"
    delta: str = ""


class ToolCallEndEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool call is whole."""

    type: ClassVar[str] = "TOOL_CALL_END"


class ToolResultStartEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool begins."""

    type: ClassVar[str] = "TOOL_RESULT_START"
    tool_call_name: str = ""


class ToolResultTextDeltaEvent(ToolEvent, frozen=True, kw_only=True):
    """A piece of a tool's text."""

    type: ClassVar[str] = "TOOL_RESULT_TEXT_DELTA"
    delta: str = ""


class ToolResultDataDeltaEvent(ToolEvent, frozen=True, kw_only=True):
    """Data from a tool."""

    type: ClassVar[str] = "TOOL_RESULT_DATA_DELTA"
    block_id: str = ""
    media_type: str = ""
    data: str | None = None
    url: str | None = None


class ToolResultEndEvent(ToolEvent, frozen=True, kw_only=True):
    """A tool has ended, so or so."""

    type: ClassVar[str] = "TOOL_RESULT_END"
    state: ToolResultState = ToolResultState.SUCCESS


class RequireUserConfirmEvent(AgentEvent, frozen=True, kw_only=True):
    """These calls wait for a person. What follows is a pause, not an end."""

    type: ClassVar[str] = "REQUIRE_USER_CONFIRM"
    tool_calls: list[ToolCallBlock] = []


class RequireExternalExecutionEvent(AgentEvent, frozen=True, kw_only=True):
    """These calls are made elsewhere."""

    type: ClassVar[str] = "REQUIRE_EXTERNAL_EXECUTION"
    tool_calls: list[ToolCallBlock] = []


class ConfirmResult(msgspec.Struct, frozen=True):
    """A person's word on one call, which may have been edited."""

    confirmed: bool
    tool_call: ToolCallBlock


class UserConfirmResultEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: what a person decided."""

    type: ClassVar[str] = "USER_CONFIRM_RESULT"
    confirm_results: list[ConfirmResult] = []


class ExternalExecutionResultEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: what became of the calls that were made elsewhere."""

    type: ClassVar[str] = "EXTERNAL_EXECUTION_RESULT"
    execution_results: list[ToolResultBlock] = []


class UserInterruptEvent(AgentEvent, frozen=True, kw_only=True):
    """An input: the user has had enough of a reply that waits."""

    type: ClassVar[str] = "USER_INTERRUPT"


class CustomEvent(AgentEvent, frozen=True, kw_only=True):
    """A middleware's own word."""

    type: ClassVar[str] = "CUSTOM"
    name: str = ""
    value: Any = None
