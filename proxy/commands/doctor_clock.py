"""The clock of this machine beside those of others, by the Date of their answers: keys expire and windows end by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from ..callers import loopback_address
from .doctor_findings import Finding, off, ok, warning

MUCH = 5.0  # seconds
NAME = "clock"


@dataclass(frozen=True, slots=True)
class Reading:
    """How far ahead of us the clock of `host` is, in seconds."""

    host: str
    ahead: float


def reading(host: str, date: str, before: float, after: float) -> Reading | None:
    """By a Date that came between two moments of our clock; it has whole seconds."""
    try:
        at = parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    late, early = at + 1 - before, at - after
    return Reading(host, early if early > 0 else late if late < 0 else 0.0)


def clock(readings: Sequence[Reading]) -> Finding:
    """One host that agrees is enough: then others are wrong. One on this machine has our clock, so it counts only if it is alone."""
    if not readings:
        return off(NAME, "nobody told the time", "a provider or collector that answers does")
    told = [each for each in readings if not loopback_address(each.host) and each.host != "localhost"] or list(readings)
    nearest = min(told, key=lambda each: abs(each.ahead))
    if abs(nearest.ahead) > MUCH:
        way = "behind" if nearest.ahead > 0 else "ahead of"
        return warning(NAME, f"{abs(nearest.ahead):,.0f} s {way} {nearest.host}", "let NTP set it, such as by `timedatectl set-ntp true`")
    return ok(NAME, f"agrees with {nearest.host}")
