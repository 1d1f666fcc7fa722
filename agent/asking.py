"""Who asks a model, and why: what travels beside a model call, to a gateway or a span, without passing through every layer."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from .settings import Purpose


class Asking(msgspec.Struct, frozen=True):
    """The reply that a model call belongs to. `deadline` is on the monotonic clock of the running loop."""

    reply: str = ""
    thread: str = ""
    agent: str = ""
    purpose: Purpose = "main"
    step: int = 0
    deadline: float | None = None


NOBODY = Asking()

# Set around the await that sends a request, never across a yield.
asking: ContextVar[Asking] = ContextVar("spangate_asking", default=NOBODY)
