"""policies/gauges.py: what is left of a provider's limit between two words of its own, and that no word holds anybody for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.policies.gauges import LONGEST, MOST_TRIED, PAUSE, STEP, Amount, Gauge
from spangate.policies.told_limits import MOST, Left

NOW = 1000.0


def gauge(remaining: int, limit: int | None = 10, reset: float | None = 30.0, *, sent: int = 0) -> Gauge:
    return Gauge(Left("requests", remaining, limit, reset), sent, NOW)


def test_an_amount_as_each_unit_counts_it() -> None:
    amount = Amount(1, 20, 300)
    assert [amount.of(unit) for unit in ("requests", "tokens", "input_tokens", "output_tokens")] == [1, 320, 20, 300]  # type: ignore[arg-type]
    assert amount.plus(amount).minus(amount) == amount


def test_what_was_sent_since_is_not_left() -> None:
    told = gauge(2, sent=5)
    assert [told.wait(1, 0, sent, NOW) for sent in (5, 6, 7)] == [0.0, 0.0, 30.0]
    assert [told.wait(1, ahead, 5, NOW) for ahead in (0, 1, 2)] == [0.0, 0.0, 30.0]
    assert told.wait(1, 0, 7, NOW + 29) == 1.0
    assert told.wait(1, 0, 7, NOW + 30) == 0.0


def test_after_a_window_comes_another() -> None:
    told = gauge(0)
    assert told.wait(1, 25, 0, NOW) == 90.0
    assert [told.wait(1, 0, sent, NOW + 31) for sent in (0, 9, 10)] == [0.0, 0.0, 30.0]
    assert told.guessed
    told.hear(Left("requests", 3, 10, 20.0), 10, 10, NOW + 32, alone=True)
    assert not told.guessed
    assert [told.wait(1, 0, sent, NOW + 32) for sent in (10, 13)] == [0.0, 20.0]


def test_old_news_is_no_news() -> None:
    told = gauge(1, sent=9)
    told.hear(Left("requests", 8, 10, 30.0), 8, 9, NOW, alone=True)
    assert told.left == 1
    told.hear(Left("requests", 5, 10, 30.0), 9, 9, NOW, alone=True)
    assert told.left == 5


def test_answers_to_calls_that_went_together_come_in_any_order() -> None:
    """Four went, and the last of them was counted first."""
    told = gauge(4)
    told.hear(Left("requests", 3, 10, 30.0), 4, 4, NOW, alone=False)
    assert told.wait(1, 0, 4, NOW) == 30.0
    told.hear(Left("requests", 0, 10, 30.0), 2, 4, NOW, alone=False)
    assert told.wait(1, 0, 4, NOW) == 30.0
    told.hear(Left("requests", 2, 10, 30.0), 5, 5, NOW, alone=True)
    assert told.wait(1, 0, 5, NOW) == 0.0


def test_what_others_used_is_not_left() -> None:
    """Who share the provider's key, in another process."""
    told = gauge(9)
    told.hear(Left("requests", 1, 10, 30.0), 2, 3, NOW, alone=False)
    assert [told.wait(1, 0, sent, NOW) for sent in (2, 3)] == [0.0, 30.0]


def test_a_bucket_fills_all_the_time() -> None:
    """Its reset moves away as it is used; a window's end stays."""
    bucket, window = gauge(4, 10, 36.0), gauge(4, 10, 36.0)
    bucket.hear(Left("requests", 0, 10, 60.0), 4, 4, NOW + 1, alone=False)
    window.hear(Left("requests", 0, 10, 35.0), 4, 4, NOW + 1, alone=False)
    assert window.wait(1, 0, 4, NOW + 1) == 35.0
    assert bucket.wait(1, 0, 4, NOW + 1) == pytest.approx(6.0)
    assert bucket.wait(1, 2, 4, NOW + 1) == pytest.approx(18.0)
    assert bucket.wait(1, 0, 4, NOW + 7) == pytest.approx(0.0)
    assert bucket.wait(1, 0, 5, NOW + 7) == pytest.approx(6.0)
    bucket.fills = False
    assert bucket.wait(1, 0, 4, NOW + 1) == 60.0


def test_a_new_window_does_not_make_a_bucket() -> None:
    told = gauge(0, 10, 2.0)
    told.hear(Left("requests", 9, 10, 30.0), 0, 0, NOW + 1.0, alone=True)
    assert not told.fills


def test_a_call_larger_than_the_limit_goes_when_all_of_it_is_there() -> None:
    assert gauge(10).wait(5000, 0, 0, NOW) == 0.0
    assert gauge(9).wait(5000, 0, 0, NOW) == 30.0
    unknown = gauge(70, None, None)
    assert unknown.wait(5000, 0, 0, NOW) == 0.0
    assert unknown.wait(5000, 0, 1, NOW) == PAUSE


@pytest.mark.parametrize(("limit", "reset", "wait"), [(10, None, PAUSE), (None, None, PAUSE), (None, 5.0, 5.0), (10, 1e9, LONGEST)])
def test_what_has_no_known_end_is_tried(limit: int | None, reset: float | None, wait: float) -> None:
    """Twice as many in each step, so that a crowd doesn't come at once."""
    told = gauge(0, limit, reset)
    assert told.wait(1, 0, 0, NOW) == wait
    now, sent, tried = NOW + wait, 0, []
    for _ in range(4):
        at_once = 0
        while told.wait(1, 0, sent, now) == 0.0:
            sent, at_once = sent + 1, at_once + 1
        tried.append(at_once)
        now += STEP
    assert tried == [1, 2, 4, 8]


def test_there_is_an_end_to_trying() -> None:
    told, now = gauge(0, None, None), NOW + PAUSE
    sent = 0
    for _ in range(20):
        told.wait(1, 0, sent, now)
        sent, now = sent + 1000 * MOST_TRIED, now + STEP
    assert told.tried == MOST_TRIED


def test_what_is_left_without_a_reset_is_left() -> None:
    told = gauge(400, None, None)
    assert [told.wait(1, 0, sent, NOW + 10) for sent in (0, 399)] == [0.0, 0.0]
    assert told.wait(1, 0, 400, NOW + 10) == pytest.approx(STEP)


ANY = st.integers(0, MOST)
WORDS = st.builds(
    Left, st.just("requests"), ANY, st.none() | st.integers(1, MOST), st.none() | st.floats(0, 1e300, allow_nan=False), st.just("")
)


@given(st.lists(st.tuples(WORDS, st.floats(0, 200)), min_size=1, max_size=6), ANY, st.booleans())
def test_whatever_is_said_the_first_who_comes_waits_no_longer_than_a_minute(
    words: list[tuple[Left, float]], amount: int, alone: bool
) -> None:
    now, sent = NOW, 0
    told = Gauge(words[0][0], 0, now)
    for word, passed in words:
        told.hear(word, sent, sent, now, alone=alone)
        wait = told.wait(amount, 0, sent, now)
        assert 0.0 <= wait <= LONGEST
        assert told.wait(amount, 0, sent, now + wait) <= 1e-6
        now += passed
        sent += amount
