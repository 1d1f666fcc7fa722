"""Windows of time that usage belongs to: `month`, `rolling 24h`, and the moment itself.

Pure: an instant in, a span out. Instants are UTC in nanoseconds since the epoch, spans are half-open, and the spans of one window
tile time: each instant is in exactly one, whatever clocks are put forward or back. Days and longer begin at the first midnight of
their date in the window's timezone; where midnight is skipped, when the clock is put forward. Hours and minutes are those of the
local clock: one during which the clock is changed is cut in two, and none is longer than its name says.

`Rolling` is a line of slots, each a sixtieth of its length. What happened in a slot counts until the whole slot is a length ago, so any
span of that length, wherever it begins, holds at most the limit; at most one slot's time later than it could, it is free again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..call.amounts import LONGEST_DAYS, seconds, show_seconds

Unit = Literal["minute", "hour", "day", "week", "month", "quarter", "total"]

SECOND = 10**9
SLOTS = 60
SHORTEST = 1.0  # seconds of a rolling window

_CLOCK = {"minute": 60, "hour": 3600}
_ROLLING = re.compile(r"rolling (\S+)")


class Span(NamedTuple):
    """From `start` up to, not including, `end` (None: for ever)."""

    start: int
    end: int | None

    def holds(self, at: int) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


@dataclass(frozen=True, slots=True)
class Calendar:
    """Windows of the calendar in a timezone; `total` is one window without an end. `text` names it and is its identity."""

    unit: Unit
    timezone: str = "UTC"
    text: str = field(init=False)

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise ValueError(f"must be one of {' '.join(get_args(Unit))}, or such as `rolling 24h`")
        zone(self.timezone)
        if self.unit == "total":
            object.__setattr__(self, "timezone", "UTC")
        object.__setattr__(self, "text", self.unit if self.timezone == "UTC" else f"{self.unit} {self.timezone}")

    def span(self, at: int) -> Span:
        """The window that holds the instant."""
        if self.unit == "total":
            return Span(0, None)
        second = at // SECOND
        where = zone(self.timezone)
        start, end = _by_clock(second, where, _CLOCK[self.unit]) if self.unit in _CLOCK else _by_date(second, where, self.unit)
        return Span(start * SECOND, end * SECOND)


@dataclass(frozen=True, slots=True)
class Rolling:
    """The last `length` nanoseconds, in slots of `slot` nanoseconds: whole microseconds, a sixtieth of the length or a little more."""

    length: int
    slot: int = field(init=False)
    text: str = field(init=False)

    def __post_init__(self) -> None:
        if not SHORTEST * SECOND <= self.length <= LONGEST_DAYS * 86400 * SECOND:
            raise ValueError(f"a rolling window is at least {show_seconds(SHORTEST)} and at most {LONGEST_DAYS}d long")
        object.__setattr__(self, "slot", -(-self.length // (SLOTS * 1000)) * 1000)
        object.__setattr__(self, "text", f"rolling {show_seconds(self.length / SECOND)}")


@dataclass(frozen=True, slots=True)
class InFlight:
    """The moment: only what is held now counts, and nothing stays of it."""

    text: str = field(default="in flight", init=False)


Window = Calendar | Rolling | InFlight


def window(text: str, timezone: str = "UTC") -> Window:
    """`month`, `rolling 24h`; or what a window's own `text` is.

    Raises:
        ValueError: no such window, or no such timezone; says which there are.
    """
    if text == InFlight().text:
        return InFlight()
    rolling = _ROLLING.fullmatch(text)
    if rolling:
        return Rolling(round(seconds(rolling[1]) * SECOND))
    unit, _, own = text.partition(" ")
    return Calendar(unit, own or timezone)  # type: ignore[arg-type]  # it is what __post_init__ asks


def zone(name: str) -> ZoneInfo:
    """
    Raises:
        ValueError: no such timezone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        raise ValueError(f"{name[:64]!r} is no timezone; write UTC, or a name such as Europe/Rome") from None


# ---- minutes and hours: what the local clock shows


def _by_clock(second: int, where: ZoneInfo, length: int) -> tuple[int, int]:
    offset = _offset(second, where)
    start = second - (second + offset) % length
    end = start + length
    if _offset(start, where) != offset:
        start = _change(start, second, where)
    if _offset(end - 1, where) != offset:
        end = _change(second, end - 1, where)
    return start, end


def _change(before: int, after: int, where: ZoneInfo) -> int:
    """The first second with the offset of `after`; they are at most an hour apart, in which no clock is changed twice."""
    wanted = _offset(after, where)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(middle, where) == wanted:
            after = middle
        else:
            before = middle
    return after


def _offset(second: int, where: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(second, where).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


# ---- days and longer: dates


def _by_date(second: int, where: ZoneInfo, unit: Unit) -> tuple[int, int]:
    today = datetime.fromtimestamp(second, where).date()
    first = _first(today, unit)
    start, end = _midnight(first, where), _midnight(_following(first, unit), where)
    # The clock may have been put back across midnight, so that one date is shown twice: the first midnight counts.
    while second < start:
        first = _first(first - timedelta(days=1), unit)
        start, end = _midnight(first, where), start
    while second >= end:
        first = _following(first, unit)
        start, end = end, _midnight(_following(first, unit), where)
    return start, end


def _first(day: date, unit: Unit) -> date:
    match unit:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case _:
            return day


def _following(first: date, unit: Unit) -> date:
    days = {"week": 7, "month": 31, "quarter": 92}.get(unit, 1)
    return _first(first + timedelta(days=days), unit)


def _midnight(day: date, where: ZoneInfo) -> int:
    """UTC seconds of the first instant at which the date's midnight is shown; of a skipped one, where the old clock would show it."""
    return int(datetime(day.year, day.month, day.day, tzinfo=where).astimezone(UTC).timestamp())
