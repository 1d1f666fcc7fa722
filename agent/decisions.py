"""What is decided about tool calls before they run: a permission for one, a plan for all that a model made at once.

A plan only ever becomes stricter on its way out (run → ask → answer), so that no layer revives a call that another refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from .messages.blocks import ToolCallBlock, ToolResultBlock, ToolResultState


class PermissionBehavior(StrEnum):
    """What may be done."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class PermissionDecision(msgspec.Struct, frozen=True):
    """Whether one call may run. `message` is for the model, and for the person who is asked."""

    behavior: PermissionBehavior = PermissionBehavior.ALLOW
    message: str = ""

    @classmethod
    def allow(cls) -> PermissionDecision:
        return cls()

    @classmethod
    def deny(cls, message: str) -> PermissionDecision:
        return cls(PermissionBehavior.DENY, message)

    @classmethod
    def ask(cls, message: str = "") -> PermissionDecision:
        return cls(PermissionBehavior.ASK, message)


Verdict = Literal["run", "ask", "answer"]
_STRICTNESS = {"run": 0, "ask": 1, "answer": 2}


class Planned(msgspec.Struct, frozen=True):
    """One call and what is to become of it. `result` answers it, `message` tells why it is asked about."""

    call: ToolCallBlock
    verdict: Verdict = "run"
    result: ToolResultBlock | None = None
    message: str = ""


class BatchPlan(msgspec.Struct, frozen=True):
    """What is to become of the calls of one answer, in their order. `end` set: the reply ends once they are answered, saying this."""

    calls: tuple[Planned, ...]
    end: str | None = None

    @classmethod
    def running(cls, calls: Sequence[ToolCallBlock]) -> BatchPlan:
        return cls(tuple(Planned(call) for call in calls))

    def __iter__(self) -> Iterator[Planned]:
        return iter(self.calls)

    def answer(self, call_id: str, text: str, state: ToolResultState = ToolResultState.ERROR) -> BatchPlan:
        """The same, with this call answered instead of run."""
        return self._changed(call_id, lambda each: Planned(each.call, "answer", ToolResultBlock(each.call.id, each.call.name, text, state)))

    def ask(self, call_id: str, message: str = "") -> BatchPlan:
        """The same, with this call waiting for a person, unless it is answered already."""
        return self._changed(call_id, lambda each: each if each.verdict == "answer" else Planned(each.call, "ask", message=message))

    def ending(self, text: str) -> BatchPlan:
        """The same, and then the end of the reply."""
        return msgspec.structs.replace(self, end=text)

    def _changed(self, call_id: str, change: Callable[[Planned], Planned]) -> BatchPlan:
        return msgspec.structs.replace(self, calls=tuple(change(each) if each.call.id == call_id else each for each in self.calls))

    def at_least(self, other: BatchPlan) -> BatchPlan:
        """The stricter of both, call by call."""
        inner = {each.call.id: each for each in other.calls}
        kept = []
        for each in self.calls:
            known = inner.pop(each.call.id, each)
            kept.append(each if _STRICTNESS[each.verdict] >= _STRICTNESS[known.verdict] else known)
        return BatchPlan((*kept, *inner.values()), self.end if self.end is not None else other.end)
