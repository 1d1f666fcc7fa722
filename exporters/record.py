"""Who is told what happened: a Recorder gets each call's Seen once, when it has ended."""

from __future__ import annotations

from typing import Protocol

from ..call.seen import Seen


class Recorder(Protocol):
    """Must not block, must not fail a call. What it keeps, it copies: nothing of a Seen changes after its end."""

    def record(self, seen: Seen) -> None: ...

    def flush(self) -> None:
        """Everything recorded so far goes out; called at drain."""
        ...
