"""policies/told_limits.py: what heads tell, in every family's words, and that nonsense counts as not said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.policies.told_limits import FARTHEST, MOST, NAMES, PAST, Left, Told, count, passed_on, seconds, told_by

NOW = datetime(2026, 9, 14, 12, 0, tzinfo=UTC)
NOW_NS = round(NOW.timestamp() * 1e9)


def told(**fields: str) -> Told | None:
    return told_by([(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()], NOW_NS)


def test_most_heads_tell_nothing() -> None:
    assert told(content_type="application/json", date="Mon, 14 Sep 2026 12:00:00 GMT", x_request_id="1") is None


def test_as_openai_tells_it() -> None:
    assert told(
        x_ratelimit_limit_requests="500",
        x_ratelimit_remaining_requests="499",
        x_ratelimit_reset_requests="120ms",
        x_ratelimit_limit_tokens="200000",
        x_ratelimit_remaining_tokens="149984",
        x_ratelimit_reset_tokens="6m0s",
    ) == Told((Left("requests", 499, 500, 0.12), Left("tokens", 149_984, 200_000, 360.0)))


def test_as_anthropic_tells_it() -> None:
    at = "2026-09-14T12:00:30Z"
    said = {
        f"anthropic_ratelimit_{unit}_{part}": value
        for unit in ("requests", "input_tokens", "output_tokens")
        for part, value in (("limit", "50"), ("remaining", "7"), ("reset", at))
    }
    found = told(**said)
    assert found is not None
    assert set(found.limits) == {Left(unit, 7, 50, 30.0) for unit in ("requests", "input_tokens", "output_tokens")}  # type: ignore[arg-type]


def test_instants_go_by_the_providers_own_clock() -> None:
    """Which may be minutes away from ours."""
    theirs = NOW + timedelta(minutes=7)
    soon, later = (theirs + timedelta(seconds=5)).isoformat(), format_datetime(theirs + timedelta(seconds=9), usegmt=True)
    fields = {"anthropic_ratelimit_requests_remaining": "0", "anthropic_ratelimit_requests_reset": soon, "retry_after": later}
    found = told(**fields, date=format_datetime(theirs, usegmt=True))
    assert found == Told((Left("requests", 0, None, 5.0),), 9.0)


@pytest.mark.parametrize(
    ("policy", "left", "limits"),
    [
        ('"default";q=100;w=60', '"default";r=50;t=30', (Left("requests", 50, 100, 30.0, "default"),)),
        ("", "default;r=0;t=5", (Left("requests", 0, None, 5.0, "default"),)),
        (
            '"a";q=10;w=1, "b";q=1000;w=86400',
            '"a";r=9;t=1, "b";r=3;t=99',
            (Left("requests", 9, 10, 1.0, "a"), Left("requests", 3, 1000, 99.0, "b")),
        ),
        ('"t";q=100;w=60;qu="tokens"', '"t";r=50;t=30', (Left("tokens", 50, 100, 30.0, "t"),)),
        ('"l.tokens";q=100;w=60', '"l.tokens";r=50;t=30', (Left("tokens", 50, 100, 30.0, "l.tokens"),)),
        ('"b";q=100;w=60;qu="content-bytes"', '"b";r=0;t=30', ()),
        ("", '"a";r=0', (Left("requests", 0, None, None, "a"),)),
        ("", ", ".join(f'"n{number}";r=1' for number in range(9)), tuple(Left("requests", 1, name=f"n{number}") for number in range(4))),
        ("q=1", "limit=100, remaining=50, reset=5", ()),
        ("", "{[;;;,,", ()),
    ],
)  # fmt: skip
def test_as_lists_tell_it(policy: str, left: str, limits: tuple[Left, ...]) -> None:
    assert told(ratelimit_policy=policy, ratelimit=left) == Told(limits)


@pytest.mark.fault("RET-01")
@pytest.mark.parametrize(
    ("fields", "wait"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": format_datetime(NOW + timedelta(seconds=2), usegmt=True)}, 2.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after_ms": "", "retry_after": "2"}, 2.0),
        ({"retry_after_ms": "NaN", "retry_after": "2"}, 2.0),
        ({"retry_after_ms": "-5", "retry_after": "2"}, 2.0),
        ({"retry_after": str(round(NOW.timestamp()) + 3)}, 3.0),
        ({"retry_after": "-1"}, 0.0),
        ({"retry_after": "soon"}, 0.0),
        ({"retry_after": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0.0),
        ({"retry_after": "Fri, 14 Sep 2426 12:00:00 GMT"}, 0.0),
        ({"retry_after": "999999999"}, 0.0),
        ({"retry_after_ms": "9" * 18, "retry_after": "2"}, 2.0),
    ],
)
def test_when_to_come_back(fields: dict[str, str], wait: float) -> None:
    found = told(**fields)
    assert found is not None
    assert found.retry_after == pytest.approx(wait)


def dated(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.fault("RET-01")
@pytest.mark.parametrize("text", ["0", "7", "1.5", "86400", str(int(FARTHEST)), dated(0), dated(9), dated(-PAST), dated(FARTHEST)])
def test_callers_hear_what_makes_sense_as_it_was_said(text: str) -> None:
    assert passed_on([(b"retry-after", text.encode()), (b"x-other", b"1")], NOW_NS) == {"retry-after": text}


@pytest.mark.fault("RL-04")
@pytest.mark.parametrize(
    "text",
    [
        "", "-1", "-0.5", "soon", "inf", "nan", "1e3", "0x10", "٣", "9" * 18, "9" * 400, "999999999999", "-1s", "999999h", "0001-01-01",
        dated(-PAST - 1), "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 14 Sep 2426 12:00:00 GMT", "Mon, 99 Sep 2026 12:00:00 GMT",
    ],
    ids=ascii,
)  # fmt: skip
def test_callers_hear_no_nonsense(text: str) -> None:
    assert passed_on([(b"retry-after", text.encode())], NOW_NS) == {}
    assert passed_on([(b"retry-after-ms", text.encode()), (b"retry-after", b"2")], NOW_NS)["retry-after"] == "2"


@pytest.mark.fault("RL-04")
@pytest.mark.parametrize(
    ("name", "text", "heard"),
    [
        ("retry-after", str(round(NOW.timestamp()) + 3), "3"),
        ("retry-after", "2026-09-14T14:00:29.5+02:00", "30"),
        ("retry-after", "1m2s", "62"),
        ("retry-after", "500µs", "1"),
        ("retry-after", "Monday, 14-Sep-26 12:00:08 GMT", "8"),
        ("retry-after-ms", "1500", "1500"),
        ("retry-after-ms", "20.5", "20.5"),
        ("retry-after-ms", "2s", "2000"),
        ("retry-after-ms", dated(4), "4000"),
    ],
)
def test_callers_hear_other_words_as_a_number(name: str, text: str, heard: str) -> None:
    assert passed_on([(name.encode(), text.encode())], NOW_NS) == {name: heard}


def test_callers_hear_of_instants_by_the_providers_own_clock() -> None:
    theirs = NOW - timedelta(minutes=7)
    head = [(b"date", format_datetime(theirs, usegmt=True).encode()), (b"retry-after", str(round(theirs.timestamp()) + 5).encode())]
    assert passed_on(head, NOW_NS) == {"retry-after": "5"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("6m0s", 360.0), ("1h2m3.5s", 3723.5), ("120ms", 0.12), ("7.66s", 7.66), ("500us", 0.0005), ("500µs", 0.0005), ("1ns", 1e-9),
        ("12", 12.0), ("0.25", 0.25), (str(round(NOW.timestamp() * 1000) + 1500), 1.5), ("2026-09-14T14:00:30+02:00", 30.0),
        ("2026-09-14T12:00:30", 30.0), ("", None), ("s", None), ("-1s", None), ("1s garbage", None), ("1e9", None), ("inf", None),
        ("٣", None),
    ],
)  # fmt: skip
def test_a_time_in_anybodys_words(text: str, found: float | None) -> None:
    assert seconds(text, NOW.timestamp) == (None if found is None else pytest.approx(found))


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), ("149984.0", 149_984), ("-5", 0), ("9" * 18, MOST), ("", None), ("9" * 19, None), ("1_0", None), ("all", None)],
)
def test_a_count_in_anybodys_words(text: str, found: int | None) -> None:
    assert count(text) == found


def test_a_limit_of_which_nothing_is_told_to_be_left_is_none() -> None:
    fields = {"x_ratelimit_limit_requests": "10", "x_ratelimit_reset_requests": "1s", "x_ratelimit_remaining_tokens": "many"}
    assert told(**fields) == Told()


VALUES = st.binary(max_size=80) | st.from_regex(rb"[-0-9TZ:.+;=a-z ,\"]*")


@given(st.lists(st.tuples(st.sampled_from(sorted({*NAMES, b"date"})), VALUES)))
def test_no_head_breaks_it(headers: list[tuple[bytes, bytes]]) -> None:
    found = told_by(headers, NOW_NS)
    assert all(value.isascii() and value for value in passed_on(headers, NOW_NS).values())
    if found is not None:
        assert found.retry_after >= 0
        assert all(0 <= left.remaining <= MOST and (left.reset is None or left.reset >= 0) for left in found.limits)
