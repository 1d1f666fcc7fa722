"""policies/refusals.py: what a refusal says, and what is left as headers."""

from __future__ import annotations

import re

import pytest

from spangate.policies.bounds import Bound
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Counter, Standing
from spangate.policies.rate_limit import RateLimit
from spangate.policies.refusals import duration, limit_headers, refused, unpriced, when
from spangate.policies.windows import SECOND

NOW = 1_790_000_000 * SECOND


def standing(bound: Bound, used: int, reserved: int = 0, *, resets: float | None = 30, fits: float | None = None) -> Standing:
    counter = Counter("acme", bound.counter_name, "search", bound.window)
    at = None if resets is None else NOW + round(resets * SECOND)
    return Standing(counter, bound.limit, used * NANO, reserved * NANO, True, at, fits)


def budget(**more: object) -> Bound:
    [bound] = Budget.model_validate({"name": "b", "limit": 100, "window": "day", **more}).bounds("list")
    return bound


def limits(**said: object) -> tuple[Bound, ...]:
    return RateLimit.model_validate({"name": "r", **said}).bounds("list")


@pytest.mark.parametrize(("resets", "told"), [(30, "30"), (0.2, "1"), (61, None), (None, None)])
def test_a_budget_says_when_to_come_back_if_that_is_soon(resets: float | None, told: str | None) -> None:
    error = refused(budget(), standing(budget(), 100, resets=resets), NOW)
    assert error.headers.get("retry-after") == told
    assert error.source == "policy"
    assert error.code == "budget_exceeded"


def test_a_budget_says_whose_it_is_and_how_it_stands() -> None:
    error = refused(budget(unit="usd"), standing(budget(), 90, 5), NOW)
    assert error.message == (
        "The budget 'b' of team search has no room for this call: 90 of 100 US dollars used, and 5 held for calls under way."
        " It begins anew at 2026-09-21T14:13:50Z."
    )
    assert error.facts["budget"]["resets_at"] == "2026-09-21T14:13:50Z"
    assert (error.facts["budget"]["used"], error.facts["budget"]["reserved"]) == (90, 5)
    assert "of team search is used up: 100 of 100 US dollars used." in refused(budget(unit="usd"), standing(budget(), 100), NOW).message


@pytest.mark.parametrize(
    ("said", "fits", "told"),
    [
        ({"requests": "5/min"}, 2.2, 3),
        ({"requests": "5/min"}, 0.01, 1),
        ({"requests": "5/min"}, 900, 60),
        ({"concurrent": 2}, None, 1),
    ],
)
def test_a_limit_says_when_to_come_back_in_whole_seconds(said: dict[str, object], fits: float | None, told: int) -> None:
    [bound] = limits(**said)
    error = refused(bound, standing(bound, 5, fits=fits), NOW)
    assert error.headers["retry-after"] == str(told)
    assert error.code == "rate_limit_exceeded"


def test_what_is_left_as_headers() -> None:
    bounds = (*limits(requests="100/min", tokens="1000/min", concurrent=5), *limits(requests="1000/h", name="h"))
    told = [(bounds[0], standing(bounds[0], 10, 1)), (bounds[1], standing(bounds[1], 400)), (bounds[2], standing(bounds[2], 0, 1))]
    told.append((bounds[3], standing(bounds[3], 990, resets=3599.5)))
    assert limit_headers(told, NOW) == {
        "x-ratelimit-limit-requests": "1000",
        "x-ratelimit-remaining-requests": "10",
        "x-ratelimit-reset-requests": "1h0m0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "600",
        "x-ratelimit-reset-tokens": "30s",
        "ratelimit-policy": '"r.requests";q=100;w=60, "r.tokens";q=1000;w=60, "h.requests";q=1000;w=3600',
        "ratelimit": '"r.requests";r=89;t=30, "r.tokens";r=600;t=30, "h.requests";r=10;t=3600',
    }
    assert limit_headers(told[2:3], NOW) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.12, "120ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (60, "1m0s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (90061, "25h1m1s"),
    ],
)
def test_durations_as_go_writes_them(seconds: float, text: str) -> None:
    assert duration(round(seconds * SECOND)) == text
    assert re.fullmatch(r"(\d+h)?(\d+m)?[\d.]+(s|ms)", text)


def test_instants() -> None:
    assert when(None) is None
    assert when(NOW) == "2026-09-21T14:13:20Z"


def test_an_unpriced_model_is_named_and_cut_short() -> None:
    error = unpriced(budget(unit="usd"), "search", "x" * 100)
    assert "x" * 61 + "..." in error.message
    assert error.facts["budget"]["scope"] == "team:search"
