"""call/amounts.py: amounts as people write them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from spangate.call.amounts import (
    Duration,
    Number,
    Quantity,
    Rate,
    RateOf,
    Share,
    Size,
    number,
    quantity,
    rate,
    seconds,
    share,
    show_number,
    show_quantity,
    show_seconds,
    show_share,
    show_size,
    size,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (seconds, "250ms", 0.25),
        (seconds, "5s", 5.0),
        (seconds, "1.5m", 90.0),
        (seconds, "1h", 3600.0),
        (seconds, "30d", 2_592_000.0),
        (seconds, " 5 s ", 5.0),
        (seconds, "0", 0.0),
        (seconds, 0, 0.0),
        (seconds, 2.5, 2.5),
        (seconds, 0.00001, 0.00001),
        (size, "32MiB", 32 * 1024 * 1024),
        (size, "1.5KiB", 1536),
        (size, "1GB", 1_000_000_000),
        (size, "2kB", 2000),
        (size, "600", 600),
        (size, 600, 600),
        (number, "600", 600),
        (number, "200k", 200_000),
        (number, "2.5M", 2_500_000),
        (number, "1G", 1_000_000_000),
        (number, 5.0, 5),
    ],
)
def test_reads(read: Callable[[object], float], text: object, value: float) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "told"),
    [
        (seconds, "", "must be a time"),
        (seconds, "5 sec", "units are ms s m h d"),
        (seconds, "5S", "the unit is s"),
        (seconds, "-5s", "must be a time"),
        (seconds, "1m30s", "must be a time"),
        (seconds, "1e3s", "must be a time"),
        (seconds, "٣s", "must be a time"),
        (seconds, "9" * 400, "must be a time"),
        (seconds, "40000d", "at most 36500d"),
        (seconds, True, "must be a time"),
        (seconds, None, "must be a time"),
        (seconds, [5], "must be a time"),
        (seconds, float("nan"), "must be a time"),
        (seconds, float("inf"), "must be a time"),
        (seconds, -1, "must be a time"),
        (size, "32mib", "the unit is MiB"),
        (size, "32M", "the unit is MB"),
        (size, "0.3kiB", "the unit is KiB"),
        (size, "0.0001kB", "whole bytes"),
        (size, "99999999999GiB", "too large"),
        (number, "5K", "the unit is k"),
        (number, "5m", "the unit is M"),
        (number, "0.5", "whole numbers"),
    ],
)
def test_refuses(read: Callable[[object], float], text: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_shown_reads_as_the_same_whole_amount(value: int) -> None:
    assert size(show_size(value)) == value
    assert number(show_number(value)) == value


@given(st.integers(min_value=0, max_value=36500 * 86400 * 1000))
def test_what_is_shown_reads_as_the_same_time(milliseconds: int) -> None:
    assert seconds(show_seconds(milliseconds / 1000)) == milliseconds / 1000


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1500ms"), (60.0, "60s"), (600.0, "600s"), (1200.0, "20m"), (3600.0, "1h"), (86400.0, "1d")],
)
def test_times_are_shown_as_people_write_them(value: float, text: str) -> None:
    assert show_seconds(value) == text


def test_numbers_and_sizes_are_shown_as_people_write_them() -> None:
    assert [show_number(n) for n in (0, 600, 1000, 200_000, 5_000_000)] == ["0", "600", "1000", "200k", "5M"]
    assert [show_size(n) for n in (0, 600, 32 * 1024**2, 1024**3, 5_000_000)] == ["0", "600", "32MiB", "1GiB", "5MB"]


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.binary()))
def test_anything_is_an_amount_or_a_value_error(value: object) -> None:
    for read in (seconds, size, number):
        with suppress(ValueError):
            assert read(value) >= 0


class Limits(BaseModel):
    wait: Duration = 5.0
    body: Size = 1024
    calls: Number = 10


def test_settings_classes_take_amounts() -> None:
    limits = Limits.model_validate({"wait": "250ms", "body": "1MiB", "calls": "2k"})
    assert (limits.wait, limits.body, limits.calls) == (0.25, 1024**2, 2000)
    with pytest.raises(ValidationError, match="must be a time such as"):
        Limits.model_validate({"wait": "soon"})


def test_the_schema_of_an_amount_is_text_or_a_number() -> None:
    schema = Limits.model_json_schema()["properties"]["wait"]
    assert [kind["type"] for kind in schema["anyOf"]] == ["string", "number"]


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (rate, "10/s", Rate(10, 1)),
        (rate, "600/min", Rate(600, 60)),
        (rate, "200k / h", Rate(200_000, 3600)),
        (rate, "5M/day", Rate(5_000_000, 86400)),
        (rate, Rate(1, 1), Rate(1, 1)),
        (quantity, "5M", Decimal(5_000_000)),
        (quantity, "0.25", Decimal("0.25")),
        (quantity, 0.1, Decimal("0.1")),
        (quantity, 50, Decimal(50)),
        (share, "10%", Decimal("0.1")),
        (share, "12.5 %", Decimal("0.125")),
        (share, 0.1, Decimal("0.1")),
        (share, "1", Decimal(1)),
    ],
)
def test_rates_quantities_and_shares(read: Callable[[object], Any], text: object, value: Any) -> None:
    assert read(text) == value


NO_RATES = ["600", 600, "600/m", "/s", "1.5/s", "-1/s", "1/s/s"]
NO_QUANTITIES = ["5MB", -1, True, float("nan"), None]
NO_SHARES = ["ten%", "-5%", "10%%", None]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((rate, text) for text in NO_RATES),
        *((quantity, text) for text in NO_QUANTITIES),
        *((share, text) for text in NO_SHARES),
    ],
)
def test_other_rates_quantities_and_shares_are_refused(read: Callable[[object], Any], text: object) -> None:
    with pytest.raises(ValueError, match=r"must be a (rate|number|share) such as|must come to whole"):
        read(text)


@given(st.integers(0, 10**12), st.sampled_from([1, 60, 3600, 86400]))
def test_what_is_shown_is_read_as_the_same(amount: int, per: int) -> None:
    assert rate(str(Rate(amount, per))) == Rate(amount, per)
    assert quantity(show_quantity(Decimal(amount) / 1000)) == Decimal(amount) / 1000
    assert share(show_share(Decimal(amount) / 10**6)) == Decimal(amount) / 10**6


def test_settings_read_them() -> None:
    class Rule(BaseModel):
        rate: RateOf
        limit: Quantity
        grace: Share

    rule = Rule.model_validate({"rate": "10/s", "limit": "2k", "grace": "5%"})
    assert (rule.rate, rule.limit, rule.grace) == (Rate(10, 1), Decimal(2000), Decimal("0.05"))
