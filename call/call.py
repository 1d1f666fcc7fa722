"""One model call, as every room sees it: frozen; change is a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .body import Body
from .notes import Notes
from .seen import Seen

Op = Literal["chat", "completions", "embeddings"]
Purpose = Literal["main", "summary", "router", "classify", "search"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: what a virtual key stands for. Empty names: nobody in particular, on an open gateway."""

    organisation: str = "default"
    team: str = ""
    key: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call goes: a provider of the configuration, and the model by its name there."""

    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Head:
    """The few fields that routing and admission read. `n` is how many answers are asked for, `output_cap` the larger of
    max_tokens and max_completion_tokens (None: not capped), `usage_frame` whether the caller asked for a usage chunk."""

    stream: bool = False
    n: int = 1
    output_cap: int | None = None
    usage_frame: bool = False


@dataclass(frozen=True, slots=True)
class Labels:
    """What a caller says about a call; never trusted for who pays."""

    thread: str = ""
    reply: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """`model` is the name asked for, `target` the one chosen. `deadline` is on the monotonic clock, `connect` in seconds."""

    op: Op
    model: str
    body: Body
    head: Head = Head()
    caller: Caller = Caller()
    labels: Labels = Labels()
    target: Target | None = None
    purpose: Purpose = "main"
    deadline: float | None = None
    connect: float = 5.0
    seen: Seen = field(default_factory=Seen.open)
    meter: Any = None

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def notes(self) -> Notes:
        return self.seen.notes

    def with_body(self, body: Body) -> Call:
        return replace(self, body=body)

    def to(self, target: Target) -> Call:
        return replace(self, target=target)

    def within(self, *, connect: float, deadline: float) -> Call:
        """The same under time limits."""
        return replace(self, connect=connect, deadline=deadline)
