"""The two lines that the spool holds of a call, and how they are written and read.

`Opening` is written before a call's first attempt, `Closing` when all is known. A line is a checksum, a space, JSON, and a line feed,
which JSON never holds: a torn or broken line costs that line alone. Fields are told by their place; new ones go to the end, with a
default, so that a spool outlives an upgrade.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

import msgspec

from ...call.events import Usage
from ...call.seen import Attempt, Outcome, Reason, Seen
from ..traces.outcomes import attempt_error

LONGEST = 16 * 1024  # bytes of a line that goes out as it is; a longer one is cut to size
SHORT = 256  # characters that a text keeps when a line is cut
FEW = 64  # entries that a list or mapping keeps


class Spent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Tokens that a provider reported, or that were estimated; of the `source` none at all. `unknown`: the side, `input` or `output`, that
    was left out or made no sense, in a line of an earlier version."""

    input: int
    output: int
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    source: str = "provider"
    unknown: str = ""


class Tried(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One request sent upstream. `started` is wall time in nanoseconds, `duration` seconds, `error_type` the word of its span."""

    number: int
    provider: str
    target_model: str
    span_id: int
    started: int
    duration: float
    reason: Reason
    status: int | None
    outcome: str | None
    error_type: str
    spent: Spent | None
    upstream_request_id: str
    system: str
    address: str
    answer_bytes: int
    content_deltas: int = 0


class Noted(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a layer wanted told."""

    name: str
    figures: dict[str, Any]


class Head(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What both lines begin with: whose call it is, and what it asks for."""

    id: str
    trace_id: str
    client_request_id: str
    started: int
    organisation: str
    team: str
    key: str
    user: str
    thread: str
    reply: str
    tags: dict[str, str]
    op: str
    stream: bool
    model: str
    provider: str
    target_model: str
    request_bytes: int
    config_version: str


class Opening(Head, frozen=True, tag="o"):
    """A call is about to be sent upstream. `holds` is what admission has claimed for it."""

    holds: dict[str, Any] | None = None
    system: str = ""
    address: str = ""


class Closing(Head, frozen=True, tag="c"):
    """A call as it ended. `first` is seconds to the first content (None: none came)."""

    status: int
    outcome: Outcome
    error_code: str
    duration: float
    first: float | None
    spent: Spent | None
    attempts: list[Tried]
    notes: list[Noted]


Line = Opening | Closing

# By position, as lines have them.
_Closing: Callable[..., Closing] = Closing
_Tried: Callable[..., Tried] = Tried

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode
# What msgspec says of a value that JSON hasn't: lone surrogates, integers beyond 64 bits, foreign types, endless nesting.
_UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


def opening(seen: Seen, holds: Mapping[str, Any] | None = None) -> bytes:
    """The line of a call that is about to be sent upstream."""
    first = seen.attempts[0] if seen.attempts else None
    return _line(
        (
            "o", seen.id, seen.trace_id.to_bytes(16, "big").hex(), seen.client_request_id, seen.started_ns, seen.organisation, seen.team,
            seen.key, seen.user, seen.thread, seen.reply, seen.tags, seen.op, seen.stream, seen.model, seen.provider, seen.target_model,
            seen.request_bytes, seen.config_version, holds, first.system if first else "", first.address if first else "",
        )
    )  # fmt: skip


def closing(seen: Seen) -> bytes:
    """The line of a call that has ended."""
    return _line(_ended(seen))


def closed(seen: Seen) -> Closing:
    """What that line says, without what notes say."""
    _, *head, outcome, error_code, duration, first, spent, tried, _ = _ended(seen)
    attempts = [_Tried(*each[:10], _as_spent(each[10]), *each[11:]) for each in tried]
    return _Closing(*head, outcome or "failed", error_code, duration, first, _as_spent(spent), attempts, [])


def _as_spent(values: tuple[Any, ...] | None) -> Spent | None:
    return Spent(*values) if values else None


def _ended(seen: Seen) -> tuple[Any, ...]:
    first = seen.first_content
    return (  # begins as an opening does: joining two tuples would cost the loop more than it saves here
        "c", seen.id, seen.trace_id.to_bytes(16, "big").hex(), seen.client_request_id, seen.started_ns, seen.organisation, seen.team,
        seen.key, seen.user, seen.thread, seen.reply, seen.tags, seen.op, seen.stream, seen.model, seen.provider, seen.target_model,
        seen.request_bytes, seen.config_version, seen.status, seen.outcome, seen.error_code, seen.ended - seen.started,
        first - seen.started if first else None, _spent(seen.usage), [*map(_tried, seen.attempts)],
        [(note.name, note.figures) for note in seen.notes] if seen.notes else (),
    )  # fmt: skip


def _tried(attempt: Attempt) -> tuple[Any, ...]:
    duration = attempt.ended - attempt.started
    return (
        attempt.number, attempt.provider, attempt.target_model, attempt.span_id, attempt.started_ns,
        duration if duration > 0 else 0.0, attempt.reason, attempt.status, attempt.outcome, attempt_error(attempt),
        _spent(attempt.usage if attempt.billed is None else attempt.billed),
        attempt.upstream_request_id, attempt.system, attempt.address, attempt.answer_bytes, attempt.content_deltas,
    )  # fmt: skip


def _spent(usage: Usage | None) -> tuple[Any, ...] | None:
    if usage is None:
        return None
    return (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning, usage.source, usage.unknown)


def _line(values: tuple[Any, ...]) -> bytes:
    try:
        data = _encode(values)
    except _UNENCODABLE:
        data = b""
    if not data or len(data) > LONGEST:
        data = _encode(_plain(values))
    return b"%08x %b\n" % (crc32(data), data)


def _plain(value: Any, depth: int = 4) -> Any:
    """The same, of what JSON has, and short."""
    if isinstance(value, str):
        return value[:SHORT].encode("utf-8", "replace").decode()
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)[:SHORT]
    if depth and isinstance(value, Mapping):
        return {str(_plain(name)): _plain(part, depth - 1) for name, part in list(value.items())[:FEW]}
    if depth and isinstance(value, list | tuple):
        return [_plain(part, depth - 1) for part in value[:FEW]]
    return type(value).__name__


def read(line: bytes) -> Line | None:
    """What a line says, without its line feed; None if it is no line of ours, or a broken one."""
    if line[8:9] != b" ":
        return None
    data = line[9:]
    try:
        if int(line[:8], 16) != crc32(data):
            return None
        return _decode(data)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None


def opened_id(line: bytes) -> str:
    """Of an Opening the call's id, without reading the rest; of anything else nothing."""
    if line[8:15] != b' ["o","':
        return ""
    try:
        sound = int(line[:8], 16) == crc32(line[9:])
    except ValueError:
        return ""
    return line[15 : line.index(b'"', 15)].decode() if sound else ""


def lines(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The whole lines of a segment from `start` on, each with the offset where it ends. What follows the last line feed is torn."""
    while (end := data.find(b"\n", start)) >= 0:
        yield end + 1, data[start:end]
        start = end + 1
