"""What happened so far in a reply, step by step: one step is one answer of the main model, with the tools that it called."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..call.call import Purpose
from .messages.blocks import ToolCallBlock, ToolResultBlock
from .messages.msg import ChatUsage


class Attempt(msgspec.Struct):
    """One request to a model, however it went. `usage` is None where nobody told."""

    model: str
    purpose: Purpose = "main"
    usage: ChatUsage | None = None
    error: str = ""


class Step(msgspec.Struct):
    """One completed step. It is recorded before its tools run; their results are filled in as they come. `attempted` is false where a
    middleware answered instead of a model."""

    number: int
    text: str = ""
    tool_calls: list[ToolCallBlock] = []
    results: list[ToolResultBlock] = []
    finish: str | None = None
    usage: ChatUsage | None = None
    model: str = ""
    duration: float = 0.0
    attempted: bool = True
    attempts: list[Attempt] = []


class PendingStep(msgspec.Struct, frozen=True):
    """The step that is about to begin. `number` counts from 0; `usage` is that of the completed steps, without this one's."""

    number: int
    is_final: bool
    usage: ChatUsage
    steps: Sequence[Step]


def total(steps: Sequence[Step]) -> ChatUsage:
    usage = ChatUsage()
    for step in steps:
        if step.usage is not None:
            usage += step.usage
    return usage
