"""What is told to the outside, and to whom: a Recorder gets each call's Seen once, when it has ended; what it makes of it to send on are
the plain records here, OpenTelemetry's spans and log events without its SDK.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from ..call.seen import Seen
from .alone import alone
from .seldom import Seldom

log = logging.getLogger("spangate.exporters")

Scalar: TypeAlias = str | bool | int | float | bytes
Value: TypeAlias = Scalar | Sequence[Scalar]
Attributes: TypeAlias = Mapping[str, Value]
Said: TypeAlias = dict[str, Value]


class Shared:
    """Attributes that the spans of many calls begin with: made and encoded once."""

    __slots__ = ("said",)

    def __init__(self, said: Said) -> None:
        self.said = said


class Begun(Mapping[str, Value]):
    """Attributes of one span: what it shares with others, then its own, under other names."""

    __slots__ = ("own", "shared")

    def __init__(self, shared: Shared, own: Said) -> None:
        self.shared = shared
        self.own = own

    def __getitem__(self, name: str) -> Value:
        return self.own[name] if name in self.own else self.shared.said[name]

    def __iter__(self) -> Iterator[str]:
        return chain(self.shared.said, self.own)

    def __len__(self) -> int:
        return len(self.shared.said) + len(self.own)

    def __repr__(self) -> str:
        return repr(dict(self))


INTERNAL: Final = 1
SERVER: Final = 2
CLIENT: Final = 3

UNSET: Final = 0
ERROR: Final = 2

INFO: Final = 9
WARN: Final = 13


class Recorder(Protocol):
    """Must not block, must not fail a call. It may keep a Seen as it is: nothing of one changes after its end."""

    def record(self, seen: Seen) -> None: ...

    def flush(self) -> None:
        """Everything recorded so far goes out; called at drain, off the loop. It may wait, for a few seconds at most."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A Recorder that has an end of its own."""

    def close(self) -> object:
        """Flush, and end what is left: nothing more is recorded. Off the loop; a few seconds at most."""
        ...


def close(recorder: Recorder) -> None:
    """The end of a recorder: flushed, and closed where it can be."""
    if isinstance(recorder, Closing):
        recorder.close()
    else:
        recorder.flush()


class Resource(msgspec.Struct, frozen=True):
    """Who tells."""

    attributes: Attributes
    schema_url: str = ""


class Scope(msgspec.Struct, frozen=True):
    """Which part of it."""

    name: str
    version: str = ""


class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened during a span. Times are nanoseconds of wall time."""

    name: str
    at: int
    attributes: Attributes = {}


class Link(msgspec.Struct, frozen=True, gc=False):
    """Another span that a span has to do with."""

    trace_id: int
    span_id: int
    attributes: Attributes = {}
    remote: bool = False


class Span(msgspec.Struct, frozen=True, gc=False):
    """One span that has ended. `parent_id` 0: a root. `remote`: the parent is another process's."""

    trace_id: int
    span_id: int
    name: str
    kind: int
    start: int
    end: int
    attributes: Attributes = {}
    parent_id: int = 0
    remote: bool = False
    trace_state: str = ""
    events: Sequence[SpanEvent] = ()
    links: Sequence[Link] = ()
    status: int = UNSET
    message: str = ""


class LogRecord(msgspec.Struct, frozen=True, gc=False):
    """One event of OpenTelemetry's logs, within a trace if its ids are set."""

    event: str
    at: int
    attributes: Attributes = {}
    severity: int = INFO
    trace_id: int = 0
    span_id: int = 0
    sampled: bool = False


class Fanout:
    """Several recorders as one. A part that raises is counted in `failures` and stops neither the others nor the call."""

    def __init__(self, *parts: Recorder) -> None:
        self.parts = parts
        self.failures: dict[str, int] = {}
        self._records = [(part, part.record) for part in parts]
        self._seldom = Seldom()

    def record(self, seen: Seen) -> None:
        for part, record in self._records:
            error = alone(record, seen)
            if error is not None:
                self._judge(part, error)

    def flush(self) -> None:
        for part in self.parts:
            self._judge(part, alone(part.flush))

    def close(self) -> None:
        """All of them at once, since each may wait for a collector: the end lasts as long as the slowest part's."""
        with ThreadPoolExecutor(max(len(self.parts), 1), "spangate.close") as threads:
            for part, error in zip(self.parts, threads.map(lambda each: alone(close, each), self.parts), strict=True):
                self._judge(part, error)

    def _judge(self, part: Recorder, error: Exception | None) -> None:
        if not isinstance(error, Exception):
            return
        name = type(part).__name__
        self.failures[name] = self.failures.get(name, 0) + 1
        if self._seldom.may():
            log.error("%s failed, %d times by now: %s", name, self.failures[name], type(error).__name__, exc_info=error)
