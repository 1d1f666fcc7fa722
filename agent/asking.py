"""Who asks a model, and why: what travels beside a model call, to a gateway or a span, without passing through every layer."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from ..call.call import Purpose

if TYPE_CHECKING:
    from .view import ReplyView


class Asking(msgspec.Struct, frozen=True):
    """The reply that a model call belongs to. `deadline` is on the monotonic clock of the running loop."""

    reply: str = ""
    thread: str = ""
    agent: str = ""
    purpose: Purpose = "main"
    step: int = 0
    deadline: float | None = None

    @classmethod
    def of(cls, view: ReplyView) -> Asking:
        """What is asked now in this reply. A thread that nobody named is none: its id is made up."""
        return cls(view.reply_id, view.thread_id if view.has_thread else "", view.name, view.purpose, len(view.steps), view.deadline)


NOBODY = Asking()

# Set around the await that sends a request, never across a yield.
asking: ContextVar[Asking] = ContextVar("spangate_asking", default=NOBODY)
