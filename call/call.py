"""One model call, as every room sees it: frozen; change is a new value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .body import Body
from .notes import Notes
from .seen import Seen

Op = Literal["chat", "completions", "embeddings"]
Purpose = Literal["main", "summary", "router", "selector", "classify", "search", "memory", "rerank", "guard", "emulator"]


class Caller(msgspec.Struct, frozen=True):
    """Who calls: what a virtual key stands for. Empty names: nobody in particular, on an open gateway."""

    organisation: str = "default"
    team: str = ""
    key: str = ""
    user: str = ""


class Target(msgspec.Struct, frozen=True):
    """Where a call goes: a provider of the configuration, and the model by its name there."""

    provider: str
    model: str


class Head(msgspec.Struct, frozen=True):
    """The few fields that routing and admission read. `n` is how many answers are made, of all prompts together, `output_cap` the larger of
    max_tokens and max_completion_tokens (None: not capped, or by a field of a server's own), `capped` whether a rule holds it there: then
    a provider sees to it that its server is told in the field that it reads. `usage_frame` whether the caller asked for a usage chunk."""

    stream: bool = False
    n: int = 1
    output_cap: int | None = None
    capped: bool = False
    usage_frame: bool = False


class Labels(msgspec.Struct, frozen=True):
    """What a caller says about a call; never trusted for who pays."""

    thread: str = ""
    reply: str = ""
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)


class Call(msgspec.Struct, frozen=True):
    """`model` is the name asked for, `target` the one chosen. `purpose`: `main`, or what an agent or a policy asks it for on its own.
    `deadline`, and `begun`, by when the answer must have begun, are on the monotonic clock, `connect` in seconds. `rule`: of the policy
    that has the call just now, what its notes say of where it stands in the configuration."""

    op: Op
    model: str
    body: Body
    head: Head = Head()
    caller: Caller = Caller()
    labels: Labels = Labels()
    target: Target | None = None
    purpose: Purpose = "main"
    deadline: float | None = None
    begun: float | None = None
    connect: float = 5.0
    seen: Seen = msgspec.field(default_factory=Seen.open)
    meter: Any = None
    turn: Any = None
    rule: Mapping[str, str] | None = None

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def notes(self) -> Notes:
        return self.seen.notes if self.rule is None else self.seen.notes.by(self.rule)

    def with_body(self, body: Body) -> Call:
        return msgspec.structs.replace(self, body=body)

    def to(self, target: Target) -> Call:
        return msgspec.structs.replace(self, target=target)

    def within(self, *, connect: float, deadline: float, begun: float | None = None) -> Call:
        """The same under time limits. A deadline that it has already is never put off."""
        sooner = deadline if self.deadline is None else min(self.deadline, deadline)
        return msgspec.structs.replace(self, connect=connect, deadline=sooner, begun=begun)
