"""What became of one call: ids, clocks, attempts, outcome. Opened when a request's head is parsed, filled on the way, ended once.

A plain record: the server, callers, wire and the observing layers write it, exporters read it, no policy touches it (policies
speak through `notes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import getrandbits
from typing import Any, Literal

import msgspec

from .clock import SYSTEM, Clock
from .events import Usage
from .notes import Notes

Outcome = Literal["completed", "refused", "failed", "aborted", "cut", "interrupted"]
AttemptOutcome = Literal["success", "error", "cancelled"]
Reason = Literal["first", "retry", "fallback", "hedge"]


def request_id() -> str:
    """A new one."""
    return f"req_{getrandbits(128):032x}"


class Place(msgspec.Struct, frozen=True):
    """A provider as telemetry names it: which API or server it is (`openai`, `ollama`), and where it lives. `urls` are the addresses
    of its operations, without anything secret."""

    system: str = ""
    address: str = ""
    port: int = 0
    urls: Mapping[str, str] = {}


class Attempt(msgspec.Struct):
    """One request sent upstream. Times are seconds on the monotonic clock; `started_ns` is wall time.

    `system` is what OpenTelemetry calls the provider (`openai`, `ollama`), `provider` its name in the configuration; `address` and
    `port` are where it lives, `url` what was asked there. `request` holds the few parameters of the request that telemetry names, by
    their name in the body. `answer_bytes`: bytes of what the answer says, without the JSON around it, where the provider doesn't tell
    all that it used, and `content_deltas` how many events of a stream said any of it; `deltas` are pieces as they came from the network.
    `usage` is what the provider told, `billed` what counts in the end: that, or as much of it as there is and an estimate of the rest.
    """

    number: int
    provider: str
    target_model: str
    span_id: int
    started_ns: int
    started: float
    reason: Reason = "first"
    ended: float = 0.0
    status: int | None = None
    outcome: AttemptOutcome | None = None
    error_type: str = ""
    usage: Usage | None = None
    billed: Usage | None = None
    upstream_request_id: str = ""
    op: str = ""
    stream: bool = False
    system: str = ""
    address: str = ""
    port: int = 0
    url: str = ""
    request: Mapping[str, Any] = msgspec.field(default_factory=dict)
    first_content: float = 0.0
    deltas: int = 0
    answer_bytes: int = 0
    content_deltas: int = 0
    answered_model: str = ""
    response_id: str = ""
    finish: str | None = None


class Seen(msgspec.Struct):
    """One request, from its parsed head to its last byte. `linked` are trace and span id of a caller whose trace doesn't go on here."""

    id: str
    trace_id: int
    span_id: int
    started_ns: int
    started: float
    clock: Clock = SYSTEM
    parent_span_id: int = 0
    linked: tuple[int, int] | None = None
    sampled: bool = True
    client_request_id: str = ""
    method: str = ""
    path: str = ""
    op: str = ""
    stream: bool = False
    model: str = ""
    organisation: str = ""
    team: str = ""
    key: str = ""
    user: str = ""
    thread: str = ""
    reply: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    provider: str = ""
    target_model: str = ""
    answered_model: str = ""
    status: int = 0
    outcome: Outcome | None = None
    error_code: str = ""
    scheme: str = "http"
    http_version: str = "1.1"
    host: str = ""
    client_address: str = ""
    user_agent: str = ""
    trace_state: str = ""
    request_bytes: int = 0
    usage: Usage | None = None
    finish: str | None = None
    first_content: float = 0.0
    ended: float = 0.0
    config_version: str = ""
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    notes: Notes = msgspec.field(default_factory=Notes)

    @classmethod
    def open(cls, clock: Clock = SYSTEM, *, trace_id: int = 0, parent_span_id: int = 0, sampled: bool = True) -> Seen:
        """A request begins: new ids, in the caller's trace if there is one."""
        return cls(
            id=request_id(),
            trace_id=trace_id or getrandbits(128) or 1,
            span_id=getrandbits(64) or 1,
            started_ns=clock.wall(),
            started=clock.mono(),
            clock=clock,
            parent_span_id=parent_span_id,
            sampled=sampled,
        )

    @property
    def trace_hex(self) -> str:
        return f"{self.trace_id:032x}"

    @property
    def duration(self) -> float:
        """Seconds from head to end."""
        return self.ended - self.started

    def attempt(self, provider: str, target_model: str, reason: Reason = "first") -> Attempt:
        """A request goes out to `provider`."""
        now = self.clock.mono()
        attempt = Attempt(
            number=len(self.attempts) + 1,
            provider=provider,
            target_model=target_model,
            span_id=getrandbits(64) or 1,
            # Not asked of the wall clock: that may have been set meanwhile, and then an attempt would outlast its call.
            started_ns=self.started_ns + round((now - self.started) * 1e9),
            started=now,
            reason=reason,
        )
        self.attempts.append(attempt)
        return attempt

    def end(self, outcome: Outcome, status: int, error_code: str = "") -> None:
        """Everything is known. Called once; a second time is a defect and says so.

        Raises:
            RuntimeError: it had ended already.
        """
        if self.outcome is not None:
            raise RuntimeError(f"{self.id} ended twice: {self.outcome}, then {outcome}")
        self.outcome, self.status, self.error_code = outcome, status, error_code
        self.ended = self.clock.mono()
