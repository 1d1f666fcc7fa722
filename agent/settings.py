"""The plain values that a reply is run by: its limits, the tool choice, and the words for how things end. Imports nothing of ours."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class ReplyFinishedReason(StrEnum):
    """How a reply ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    EXCEED_MAX_ITERS = "exceed_max_iters"
    ERROR = "error"
    CANCELLED = "cancelled"
    """A middleware stopped it before a model call: `Stop`, `ModelStream.stop()`."""
    LIMIT = "limit"
    """A limit of calls ended it."""


class Jump(StrEnum):
    """Where a reply goes on: with the model again, with the tools that it called, or to its end. Calls that are passed over are answered
    as not made."""

    MODEL = "model"
    TOOLS = "tools"
    END = "end"


class FinishedReason(StrEnum):
    """How a model's answer ended."""

    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class ErrorInfo(msgspec.Struct, frozen=True):
    """What went wrong, safe to show. `code` is a word of our error table where there is one."""

    message: str
    type: str = "unknown"
    code: str = ""


class ToolChoice(msgspec.Struct, frozen=True):
    """What a model may do with its tools: `auto`, `none`, `required`, or the name of the tool that it must call.

    `tools`: the names it may choose from; None means all that are offered.
    """

    mode: str = "auto"
    tools: list[str] | None = None


class ReActConfig(msgspec.Struct):
    """The limits of one reply's loop. Each reply has its own copy, so a middleware may change it."""

    max_iters: int = 50
    """Rounds of reasoning and acting; then one more answer is asked for, without tools."""
    grace_iters: int = 5
    """Rounds beyond that in which a structured output that is still owed may be made."""
    stop_on_reject: bool = False
    """End the reply once a tool call was denied."""

    def __post_init__(self) -> None:
        for name, least in (("max_iters", 1), ("grace_iters", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


class ContextConfig(msgspec.Struct):
    """What a reply may hold."""

    trigger_ratio: float = 0.8
    """The share of the model's window above which the context is compressed."""
    reserve_ratio: float = 0.1
    """The share of the window that stays verbatim."""
    tool_result_limit: int = 200_000
    """Characters of one tool result that go to the model; the rest is cut, with a note that says so."""
    tool_data_limit: int = 8_000_000
    """Characters of base64 in one tool result that go to the model (6 MB of data); what is larger is left out, with a note."""


def copied(config: Any) -> Any:
    """A copy of a settings struct for one reply."""
    return msgspec.structs.replace(config)
