"""proxy/guessing.py: wrong keys, by the address that they came from."""

from __future__ import annotations

import pytest

from spangate.call.errors import Refused
from spangate.proxy.guessing import A_MINUTE, AT_ONCE, SOURCES, Guessing, source_of

from ledgers import Hands

WRONG = Refused("This needs a valid API key.", code="invalid_api_key")


@pytest.mark.fault("RES-11")
def test_a_source_that_tries_many_is_told_to_wait() -> None:
    hands = Hands()
    guessing = Guessing(hands.clock)
    told = [guessing.judged(WRONG, "192.0.2.1") for _ in range(AT_ONCE + 20)]
    assert told[:AT_ONCE] == [WRONG] * AT_ONCE
    assert {error.code for error in told[AT_ONCE:]} == {"rate_limit_exceeded"}
    assert {error.headers["retry-after"] for error in told[AT_ONCE:]} == {"1"}
    assert guessing.judged(WRONG, "192.0.2.2") is WRONG, "nobody else is"
    hands.pass_(60)
    told = [guessing.judged(WRONG, "192.0.2.1") for _ in range(A_MINUTE + 1)]
    assert [error is WRONG for error in told] == [True] * A_MINUTE + [False]


def test_other_errors_and_a_local_socket_are_nobodys_guess() -> None:
    guessing, other = Guessing(Hands().clock), Refused("no", code="model_not_found")
    for _ in range(2 * AT_ONCE):
        assert guessing.judged(other, "192.0.2.1") is other
        assert guessing.judged(WRONG, "") is WRONG
    assert guessing.judged(WRONG, "192.0.2.1") is WRONG


@pytest.mark.fault("RES-11")
def test_sources_are_not_remembered_for_ever() -> None:
    guessing = Guessing(Hands().clock)
    for number in range(SOURCES + 500):
        guessing.judged(WRONG, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(guessing._sources) == SOURCES


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("no address", "no address", True),
    ],
)
def test_what_a_source_is(one: str, other: str, same: bool) -> None:
    assert (source_of(one) == source_of(other)) is same
