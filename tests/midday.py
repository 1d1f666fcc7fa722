"""A timezone in which it is about noon: for tests on the real clock that use windows of the calendar and aren't about where they end.

    {"budget": {"name": "b", "limit": 100, "window": "day", "timezone": MIDDAY}}
    claim("month", 10, 100, f"month {MIDDAY}")

A day of it, and so a week or a month, neither begins nor ends for eleven hours, though midnight passes elsewhere while tests run.
"""

from __future__ import annotations

from datetime import UTC, datetime


def midday(hour: int) -> str:
    """The timezone in which it is twelve when it is that `hour` in UTC. The names have the sign of POSIX: what is east of it is `-`."""
    return f"Etc/GMT{hour - 12:+d}"


MIDDAY = midday(datetime.now(UTC).hour)
