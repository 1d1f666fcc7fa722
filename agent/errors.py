"""What can go wrong in an agent, beside what goes wrong in a call (call/errors.py): typed, and each says what to do.

SpangateError
├── Refused
│   └── LimitReached           a limit of this reply says no
├── CallerFault
│   └── InvalidInput           an agent was given what it can't use
├── OurFault
│   ├── MiddlewareFault        a middleware broke the seam; the message names it
│   ├── NoProgress             a reply's end was refused again and again while nothing happened
│   ├── NotJSON                state that can't be written down
│   └── Conflict               somebody else wrote first
├── ProviderFault
│   └── UpstreamIncomplete
│       └── NoAnswer           a model answered with nothing, or with what is no answer
└── DeadlineExceeded           the reply took longer than it may
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..call.errors import CallerFault, OurFault, Refused, SpangateError, UpstreamIncomplete


class LimitReached(Refused):
    """A limit of this reply says no."""

    code = "rate_limit_exceeded"


class InvalidInput(CallerFault):
    """An agent was given what it can't use."""


class MiddlewareFault(OurFault):
    """A middleware broke the seam: it returned nothing, or the wrong thing. `middleware` and `hook` say which."""

    code = "middleware_fault"

    def __init__(self, middleware: str, hook: str, said: str) -> None:
        super().__init__(f"{middleware}.{hook} {said}")
        self.middleware = middleware
        self.hook = hook


class NoProgress(OurFault):
    """A reply's end was refused again and again while nothing happened."""

    code = "no_progress"


class NotJSON(OurFault):
    """State that can't be written down; the message says where it is."""

    code = "not_json"


class NoAnswer(UpstreamIncomplete):
    """A model answered with nothing at all, or with what is no answer. `usage` is what it was paid for all the same, if it said so."""

    usage: Any = None


class DeadlineExceeded(SpangateError):
    """The reply took longer than it may. `message_so_far` is what it had said."""

    code = "deadline_exceeded"

    def __init__(self, message: str, message_so_far: Any = None) -> None:
        super().__init__(message)
        self.message_so_far = message_so_far


class Conflict(OurFault):
    """Somebody else wrote first."""

    code = "conflict"


def is_cancelled() -> bool:
    """Whether somebody has cancelled the running task. A cancellation that arrives in one that nobody cancelled comes out of something
    that was awaited, and is a failure like any other."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
