"""One line a call on a terminal, one JSON object a line elsewhere. Never content, never a key."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

import msgspec

from ..call.seen import Seen
from .aside import Aside

BATCHED = 0.1  # seconds that a line may wait where nobody reads along
FULL = 256  # lines

_encode = msgspec.json.Encoder().encode
_COLORS = {"completed": "32", "refused": "33", "failed": "31", "aborted": "35", "cut": "33"}


class Console:
    """Writes to `out`: at once where a person reads along, else some lines at a time, since a write costs as much as the rest of
    a short call's telling. A terminal that has gone away, or that nobody reads, costs lines, never calls: `lost` counts them.
    """

    def __init__(self, out: TextIO | None = None, *, as_json: bool | None = None, color: bool | None = None) -> None:
        out = out or sys.stdout
        tty = not out.closed and out.isatty()
        self._aside = Aside(out)
        self._waiting: list[str] = []
        self._patience = 0.0 if tty else BATCHED
        self._line: Callable[[Seen], str] = json_line if (not tty if as_json is None else as_json) else self._text_line
        self._color = tty if color is None else color

    @property
    def lost(self) -> int:
        return self._aside.lost

    def record(self, seen: Seen) -> None:
        self._waiting.append(self._line(seen))
        if not self._patience or len(self._waiting) >= FULL:
            self._send()
        elif len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(self._patience, self._send)

    def flush(self) -> None:
        """Write what waits, and wait for that: a moment, not for a reader who never comes."""
        self._send()
        self._aside.finish()

    def _send(self) -> None:
        lines, self._waiting = self._waiting, []
        if lines:
            self._aside.write("\n".join(lines) + "\n")

    def _text_line(self, seen: Seen) -> str:
        status = str(seen.status)
        if self._color:
            status = f"\x1b[{_COLORS.get(seen.outcome or '', '0')}m{status}\x1b[0m"
        return f"{status} {text_after_status(seen)}"


def text_after_status(seen: Seen) -> str:
    """`chat fast → openai gpt-5-mini  812 ms (first 240)  1,203+88 tokens  search/ci  req_7f…`"""
    parts = [f"{seen.op or seen.path} {printable(seen.model)}".rstrip()]
    if seen.attempts:
        last = seen.attempts[-1]
        tries = f" (attempt {last.number})" if last.number > 1 else ""
        parts[0] += f" → {last.provider} {printable(last.target_model)}{tries}"
    parts.append(_times(seen))
    if seen.usage is not None:
        parts.append(f"{seen.usage.input:,}+{seen.usage.output:,} tokens")
    if seen.outcome != "completed":
        parts.append(f"{seen.outcome}{f': {seen.error_code}' if seen.error_code else ''}")
    if seen.team:
        parts.append(f"{seen.team}/{seen.key}")
    return "  ".join([*parts, seen.id])


def _times(seen: Seen) -> str:
    text = f"{seen.duration * 1000:.0f} ms"
    if seen.stream and seen.first_content:
        text += f" (first {(seen.first_content - seen.started) * 1000:.0f})"
    return text


class Line(msgspec.Struct):
    """The same as one JSON object; `at` is in milliseconds since the epoch."""

    at: int
    id: str
    trace_id: str
    status: int
    outcome: str | None
    error_code: str
    op: str
    stream: bool
    model: str
    provider: str
    target_model: str
    attempts: int
    team: str
    key: str
    input_tokens: int | None
    output_tokens: int | None
    duration_ms: float
    first_ms: float | None
    client_request_id: str


def json_line(seen: Seen) -> str:
    usage = seen.usage
    line = Line(
        at=seen.started_ns // 1_000_000,
        id=seen.id,
        trace_id=seen.trace_hex,
        status=seen.status,
        outcome=seen.outcome,
        error_code=seen.error_code,
        op=seen.op,
        stream=seen.stream,
        model=printable(seen.model),
        provider=seen.provider,
        target_model=printable(seen.target_model),
        attempts=len(seen.attempts),
        team=seen.team,
        key=seen.key,
        input_tokens=usage.input if usage else None,
        output_tokens=usage.output if usage else None,
        duration_ms=round(seen.duration * 1000, 3),
        first_ms=round((seen.first_content - seen.started) * 1000, 3) if seen.first_content else None,
        client_request_id=seen.client_request_id,
    )
    return _encode(line).decode()


def printable(text: str) -> str:
    """A caller's words on one line of a terminal: no control character, no lone surrogate, at most 100 characters."""
    if text.isascii() and text.isprintable() and len(text) <= 100:
        return text
    return "".join(c if c.isprintable() else "?" for c in text[:100].encode("utf-8", "replace").decode())
