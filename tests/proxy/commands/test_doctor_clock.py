"""The clock beside those of others."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from spangate.proxy.commands.doctor_clock import Reading, clock, reading

NOW = 1_800_000_000.4


@pytest.mark.parametrize(("ahead", "told"), [(0, 0), (-0.4, 0), (60, 59.5), (-60, -59.5)])
def test_a_date_of_whole_seconds_is_read_kindly(ahead: float, told: float) -> None:
    found = reading("api", formatdate(NOW + ahead, usegmt=True), NOW, NOW + 0.1)
    assert found is not None
    assert found.ahead == pytest.approx(told, abs=0.51)


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Foo 9999 99:99:99 GMT"])
def test_what_is_no_date_tells_nothing(date: str) -> None:
    assert reading("api", date, NOW, NOW) is None


def test_one_that_agrees_is_enough() -> None:
    assert clock([Reading("a.example", 900), Reading("b.example", 0)]).words == "agrees with b.example"


def test_far_off_is_a_warning_that_says_which_way() -> None:
    found = clock([Reading("api.example", 61.2)])
    assert (found.level, found.told) == ("warning", "61 s behind api.example")
    assert "timedatectl" in found.mend
    assert clock([Reading("api.example", -3600)]).told == "3,600 s ahead of api.example"
    assert clock([Reading("api.example", 5)]).level == "ok"


def test_a_server_of_this_machine_has_our_own_clock() -> None:
    assert clock([Reading("127.0.0.1", 0), Reading("api.example", 60)]).level == "warning"
    assert clock([Reading("127.0.0.1", 0)]).level == "ok"


def test_nobody_told_the_time() -> None:
    assert clock([]).level == "off"
