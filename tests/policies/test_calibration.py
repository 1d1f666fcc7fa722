"""policies/calibration.py: figures that mend themselves."""

from __future__ import annotations

from random import Random

import pytest

from spangate.policies.calibration import LONGEST, Kept, Ratio, Usual


def test_a_ratio_finds_what_is_so() -> None:
    ratio, random = Ratio(), Random(1)
    for _ in range(200):
        ratio.learn(1000, 1000 * random.gauss(1.4, 0.05))
    assert ratio.mean == pytest.approx(1.4, abs=0.05)
    assert 1.45 < ratio.upper < 1.8
    exceeded = sum(random.gauss(1.4, 0.05) > ratio.upper for _ in range(1000))
    assert exceeded < 5


def test_a_ratio_follows_what_changes() -> None:
    ratio = Ratio()
    for _ in range(100):
        ratio.learn(1000, 1000)
    for _ in range(60):
        ratio.learn(1000, 2000)
    assert ratio.mean == pytest.approx(2.0, abs=0.1)


def test_small_requests_say_little() -> None:
    ratio = Ratio()
    for _ in range(50):
        ratio.learn(10_000, 10_000)
    for _ in range(5):
        ratio.learn(4, 400)
    assert 1 < ratio.mean < 1.4


@pytest.mark.parametrize(("estimated", "used"), [(0, 100), (100, 0), (-1, 100)])
def test_what_says_nothing_teaches_nothing(estimated: int, used: int) -> None:
    ratio = Ratio(1.5)
    ratio.learn(estimated, used)
    assert (ratio.known, ratio.mean) == (0, 1.5)


def test_nonsense_is_bounded() -> None:
    ratio = Ratio()
    for used in (2**40, 1):
        ratio.learn(1000, used)
        assert Ratio.LEAST <= ratio.mean <= Ratio.MOST


def test_what_is_usual() -> None:
    usual = Usual()
    assert usual.below(0.9) == 0
    for used in range(1, 101):
        usual.learn(used * 10)
    assert 500 <= usual.below(0.5) <= 500 * 1.2
    assert 950 <= usual.below(0.95) <= 950 * 1.2
    assert usual.below(0.0) >= 1


@pytest.mark.parametrize("used", [0, 1, 2, 7, 4096, 100_000])
def test_a_use_is_within_what_was_seen(used: int) -> None:
    usual = Usual()
    usual.learn(used)
    assert used <= usual.below(1.0) <= max(1, used * 1.2)


def test_what_is_long_ago_fades() -> None:
    usual = Usual()
    for _ in range(10_000):
        usual.learn(10)
    for _ in range(1500):
        usual.learn(1000)
    assert usual.below(0.5) >= 1000
    usual.learn(2**60)
    assert usual.below(1.0) >= 2**20


def test_names_have_room_and_no_more() -> None:
    kept = Kept(Ratio, room=3)
    for name in "abc":
        kept.at(name, "m")
    assert kept.at("a", "m") is kept.get("a", "m")
    for number in range(100):
        kept.at("made up", str(number))
        kept.at("a", "m")
    assert len(kept) == 3
    assert kept.get("a", "m") is not None
    assert kept.get("b", "m") is None
    assert kept.at("x" * (LONGEST + 1)) is None
