"""Windows: they tile time, whatever the clocks of a place do, and mean what their names say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.policies.windows import SECOND, SLOTS, Calendar, InFlight, Rolling, Span, window

UNITS = ("minute", "hour", "day", "week", "month", "quarter")
# A clock put forward at midnight (Santiago, Beirut), back across it (St_Johns, until 2011), by half an hour (Lord_Howe), over a whole
# day (Apia, 2011), by offsets of a quarter (Kathmandu) and a half (Kolkata).
ZONES = (
    "UTC",
    "Europe/Rome",
    "America/New_York",
    "America/Santiago",
    "Asia/Beirut",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "America/Havana",
    "Africa/Casablanca",
)
LONGEST = {"minute": 60, "hour": 3600, "day": 26 * 3600, "week": 170 * 3600, "month": 745 * 3600, "quarter": 2210 * 3600}
SHORTEST = {"minute": 1, "hour": 1, "day": 22 * 3600, "week": 143 * 3600, "month": 671 * 3600, "quarter": 2135 * 3600}

instants = st.integers(int(datetime(1990, 1, 1, tzinfo=UTC).timestamp()), int(datetime(2090, 1, 1, tzinfo=UTC).timestamp())).map(
    lambda second: second * SECOND
)
calendars = st.builds(Calendar, st.sampled_from(UNITS), st.sampled_from(ZONES))


def at(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * SECOND)


def shown(span: Span, zone: str) -> tuple[str, str]:
    assert span.end is not None
    start, end = (datetime.fromtimestamp(edge // SECOND, ZoneInfo(zone)) for edge in (span.start, span.end))
    return f"{start:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}"


def change_of(zone: str, year: int, number: int) -> int:
    """An instant of the year at which the place's clocks are changed: the number-th, round and round; its beginning if there is none."""
    where = ZoneInfo(zone)
    hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(0, 366 * 24, 6)]
    offsets = [hour.astimezone(where).utcoffset() for hour in hours]
    found = [hour for hour, (one, two) in zip(hours, pairwise(offsets), strict=False) if one != two]
    return round((found[number % len(found)] if found else hours[0]).timestamp()) * SECOND


changes = st.builds(
    lambda change, minutes: change + minutes * 60 * SECOND,
    st.builds(change_of, st.sampled_from(ZONES), st.integers(1995, 2037), st.integers(0, 3)),
    st.integers(-120, 500),
)


@pytest.mark.fault("BUD-10")
@given(calendars, instants | changes)
def test_an_instant_is_in_exactly_one_window(calendar: Calendar, instant: int) -> None:
    span = calendar.span(instant)
    assert span.holds(instant)
    assert span.end is not None
    assert calendar.span(span.start) == calendar.span(span.end - 1) == span
    after, before = calendar.span(span.end), calendar.span(span.start - 1)
    assert (after.start, before.end) == (span.end, span.start)


@given(calendars, instants | changes)
def test_a_window_is_as_long_as_its_name_says(calendar: Calendar, instant: int) -> None:
    span = calendar.span(instant)
    assert span.end is not None
    if calendar.timezone != "Pacific/Apia":  # which once had a week of six days
        assert SHORTEST[calendar.unit] * SECOND <= span.end - span.start <= LONGEST[calendar.unit] * SECOND


@given(st.sampled_from(["day", "week", "month", "quarter"]), instants)
def test_longer_windows_begin_where_days_do(unit: str, instant: int) -> None:
    span = window(unit, "Europe/Rome").span(instant)  # type: ignore[union-attr]
    first = datetime.fromtimestamp(span.start // SECOND, ZoneInfo("Europe/Rome"))
    assert (first.hour, first.minute, first.second) == (0, 0, 0)
    assert unit != "week" or first.isoweekday() == 1
    assert unit not in ("month", "quarter") or first.day == 1
    assert unit != "quarter" or first.month in (1, 4, 7, 10)


@pytest.mark.fault("BUD-10")
@pytest.mark.parametrize(
    ("name", "zone", "instant", "start", "end"),
    [
        ("minute", "UTC", "2026-03-29 01:00:59", "2026-03-29 01:00", "2026-03-29 01:01"),
        ("hour", "Asia/Kathmandu", "2026-03-29 01:59:59", "2026-03-29 01:00", "2026-03-29 02:00"),
        ("day", "UTC", "2026-12-31 23:59:59", "2026-12-31 00:00", "2027-01-01 00:00"),
        ("day", "UTC", "2027-01-01 00:00:01", "2027-01-01 00:00", "2027-01-02 00:00"),
        ("day", "Europe/Rome", "2026-03-29 12:00", "2026-03-29 00:00", "2026-03-30 00:00"),  # 23 hours
        ("day", "Europe/Rome", "2026-10-25 12:00", "2026-10-25 00:00", "2026-10-26 00:00"),  # 25 hours
        ("day", "America/Santiago", "2026-09-06 12:00", "2026-09-06 01:00", "2026-09-07 00:00"),  # midnight is skipped
        ("week", "UTC", "2026-03-01 12:00", "2026-02-23 00:00", "2026-03-02 00:00"),  # a Sunday
        ("month", "UTC", "2028-02-29 12:00", "2028-02-01 00:00", "2028-03-01 00:00"),
        ("month", "UTC", "2026-01-31 00:00", "2026-01-01 00:00", "2026-02-01 00:00"),
        ("quarter", "UTC", "2026-12-31 12:00", "2026-10-01 00:00", "2027-01-01 00:00"),
    ],
)
def test_what_a_window_is(name: str, zone: str, instant: str, start: str, end: str) -> None:
    assert shown(window(name, zone).span(at(instant, zone)), zone) == (start, end)  # type: ignore[union-attr]


def test_the_hour_that_comes_twice_is_two_windows() -> None:
    first, second = (window("hour", "Europe/Rome").span(at("2026-10-25 02:30", "Europe/Rome", fold)) for fold in (0, 1))  # type: ignore[union-attr]
    assert first.end == second.start
    assert first.start != second.start


def test_total_is_one_window_without_an_end() -> None:
    assert window("total", "Europe/Rome").span(at("2026-10-25")) == Span(0, None)  # type: ignore[union-attr]
    assert window("total", "Europe/Rome") == window("total")


@given(st.integers(SECOND, 400 * 86400 * SECOND))
def test_sixty_slots_are_the_whole_length_and_hardly_more(length: int) -> None:
    rolling = Rolling(length)
    assert length <= rolling.slot * SLOTS < length + SLOTS * 1000
    assert rolling.slot % 1000 == 0


@pytest.mark.parametrize(
    "known",
    [Calendar("month"), Calendar("day", "Europe/Rome"), Rolling(86400 * SECOND), Rolling(90 * SECOND), InFlight(), Calendar("total")],
)
def test_a_windows_text_says_which_it_is(known: Calendar | Rolling | InFlight) -> None:
    assert window(known.text, "Asia/Tokyo" if " " in known.text else "UTC") == known


def test_what_people_write() -> None:
    assert window("rolling 24h") == Rolling(86400 * SECOND)
    assert window("month", "Europe/Rome").text == "month Europe/Rome"
    assert window("rolling 24h").text == "rolling 1d"


@pytest.mark.parametrize(
    ("text", "zone", "told"),
    [
        ("fortnight", "UTC", "minute hour day"),
        ("", "UTC", "rolling 24h"),
        ("rolling", "UTC", "rolling 24h"),
        ("rolling 5", "UTC", None),
        ("rolling 0s", "UTC", "at least 1s"),
        ("rolling 10ms", "UTC", "at least 1s"),
        ("rolling x", "UTC", "a time such as"),
        ("day", "Europe/Nowhere", "no timezone"),
        ("day", "../../etc/passwd", "no timezone"),
        ("day", "Europe", "no timezone"),
    ],
)
def test_what_is_no_window(text: str, zone: str, told: str | None) -> None:
    if told is None:
        assert window(text, zone) == Rolling(5 * SECOND)
        return
    with pytest.raises(ValueError, match=told):
        window(text, zone)
