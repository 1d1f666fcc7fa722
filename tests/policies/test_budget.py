"""policies/budget.py: what may be said of a budget, and what it comes to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from spangate.policies.bounds import Weights
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ({"limit": "5M"}, "standard.budget.weighted_tokens.month.team"),
        ({"limit": 50, "unit": "usd", "window": "day", "per": "key"}, "standard.budget.usd.day.key"),
        ({"limit": 1, "window": "rolling 24h"}, "standard.budget.weighted_tokens.rolling-1d.team"),
        ({"limit": 1, "timezone": "Europe/Rome"}, "standard.budget.weighted_tokens.month-Europe-Rome.team"),
        ({"limit": 1, "per": "thread"}, "standard.budget.weighted_tokens.total.thread"),
        ({"limit": 1, "name": "mine"}, "mine"),
    ],
)
def test_names_by_default(said: dict[str, Any], name: str) -> None:
    assert Budget.model_validate(said).named("standard") == name


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "Field required"),
        ({"limit": -1}, "a number such as"),
        ({"limit": "5MB"}, "units are k M G"),
        ({"limit": "9999999999999999"}, "must be between"),
        ({"limit": 1, "window": "fortnight"}, "must be one of minute"),
        ({"limit": 1, "timezone": "Mars"}, "no timezone"),
        ({"limit": 1, "per": "tags"}, "must be one of organisation"),
        ({"limit": 1, "grace": "ten"}, "a share such as"),
        ({"limit": 1.5, "unit": "requests"}, "whole number"),
        ({"limit": 1, "on_exceeded": "downgrade"}, "belong together"),
        ({"limit": 1, "downgrade_to": "m"}, "belong together"),
        ({"limit": 1, "weights": {"inputs": 1}}, "Extra inputs"),
        ({"limit": 1, "weights": {"input": "2M"}}, "at most 1000000"),
        ({"limit": 1, "models": []}, "at least 1"),
        ({"limit": 1, "what": 1}, "Extra inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Budget.model_validate(said)


def test_weights_follow_their_totals() -> None:
    budget = Budget.model_validate({"limit": 1, "weights": {"input": 2, "cached": 0.1, "output": 4}})
    assert budget.weights.nano() == Weights(2 * NANO, NANO // 10, 2 * NANO, 4 * NANO, 4 * NANO)
    assert Budget.model_validate({"limit": 1}).weights.nano() == Weights()


@pytest.mark.parametrize(
    ("said", "grace", "full", "capping"),
    [
        ({}, 0, "refuse", True),
        ({"on_exceeded": "warn"}, 0, "count", False),
        ({"on_exceeded": "wrap_up"}, 100 * NANO, "refuse", True),
        ({"on_exceeded": "downgrade", "downgrade_to": "m", "grace": "5%"}, 50 * NANO, "refuse", True),
        ({"cap_output": False}, 0, "refuse", False),
        ({"unit": "requests"}, 0, "refuse", False),
    ],
)
def test_what_it_is_to_a_call(said: dict[str, Any], grace: int, full: str, capping: bool) -> None:
    [bound] = Budget.model_validate({"limit": 1000, **said}).bounds("standard")
    assert (bound.limit, bound.grace, bound.full, bound.capping) == (1000 * NANO, grace, full, capping)
    assert bound.origin == "standard"
