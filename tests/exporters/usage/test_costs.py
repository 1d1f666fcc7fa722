"""exporters/usage/costs.py: what attempts cost, on metrics as in rows."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.exporters.usage.costs import Costs
from spangate.exporters.usage.prices import Prices
from spangate.exporters.usage.rows import Rows
from spangate.exporters.usage.settings import Price
from spangate.exporters.usage.spool_lines import Closing, closing, read

from finished import attempt, call, whole_call

PRICES = [Price.model_validate({"model": "m-big", "input": 1, "cached": 0.1, "output": 4})]


def asked(model: str, **fields: Any) -> Seen:
    seen = call(usage=fields.get("usage"))
    attempt(seen, **{"target_model": model} | fields)
    return seen


def test_what_a_provider_said_is_priced() -> None:
    seen = asked("m-big", usage=Usage(1000, 100, cached=400))
    assert Costs(PRICES)(seen, seen.attempts[0]) == (pytest.approx((600 * 1 + 400 * 0.1 + 100 * 4) / 1e6), "override")


def test_an_estimate_is_priced_and_says_so() -> None:
    seen = asked("m-big", usage=None, outcome="cancelled", answer_bytes=400)
    dollars, source = Costs(PRICES)(seen, seen.attempts[0]) or (0, "")
    assert dollars > 0
    assert source == "estimated"


def test_nobody_knows_every_price() -> None:
    seen = asked("no-such-model-1", usage=Usage(1000, 100))
    assert Costs(PRICES)(seen, seen.attempts[0]) is None


def test_an_attempt_that_was_refused_costs_nothing() -> None:
    seen = asked("m-big", usage=None, outcome="error", status=429, answer_bytes=0)
    assert Costs(PRICES)(seen, seen.attempts[0]) is None


@pytest.mark.parametrize("seen", [whole_call(), asked("m-big", usage=Usage(3, 5)), asked("m-big", usage=None, answer_bytes=9)])
def test_it_is_what_the_rows_say(seen: Seen) -> None:
    line = read(closing(seen).removesuffix(b"\n"))
    assert isinstance(line, Closing)
    billed = [bill and (bill.cost / 1e9, bill.cost_source) for bill in Rows(Prices(PRICES)).bills(line) if bill is None or bill.cost]
    costs = Costs(PRICES)
    assert [costs(seen, each) for each in seen.attempts] == billed
