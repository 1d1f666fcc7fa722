"""policies/reserving.py: how much is asked for, and what happens while nobody knows how the counters stand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spangate.call.errors import Refused
from spangate.call.events import Usage
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, StateUnavailable
from spangate.policies.ledger.memory import MemoryLedger
from spangate.policies.rate_limit import RateLimit
from spangate.policies.tokens import Estimate, Tokens

from admitting import Gate, call, notes
from ledgers import Gone

USES_30 = [{"usage": {"input": 10, "output": 20}}]


def budget(limit: Any = 10_000, **more: Any) -> Budget:
    return Budget.model_validate({"name": "b", "limit": limit, "window": "total", **more})


async def asks(gate: Gate, **asked: Any) -> str:
    try:
        await gate.ask(**asked)
    except (Refused, StateUnavailable) as error:
        return error.code
    return "admitted"


@pytest.mark.fault("RL-01")
@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([budget()], ["state_unavailable"] * 3),
        ([budget(on_state_error="allow")], ["admitted"] * 3),
        ([RateLimit.model_validate({"requests": "2/min"})], ["admitted", "admitted", "rate_limit_exceeded"]),
        ([RateLimit.model_validate({"requests": "2/min", "on_state_error": "refuse"})], ["state_unavailable"] * 3),
        ([RateLimit.model_validate({"requests": "2/min", "on_state_error": "allow"})], ["admitted"] * 3),
        (
            [RateLimit.model_validate({"requests": "2/min"}), budget(on_state_error="allow")],
            ["admitted", "admitted", "rate_limit_exceeded"],
        ),
        ([RateLimit.model_validate({"requests": "2/min"}), budget()], ["state_unavailable"] * 3),
    ],
)
async def test_each_rule_does_what_it_says_while_the_counters_are_away(rules: list[Budget | RateLimit], told: list[str]) -> None:
    ledger = Gone()
    gate = Gate(*rules, ledger=ledger, script=USES_30)
    ledger.away = True
    assert [await asks(gate) for _ in range(3)] == told
    ledger.away = False
    assert await asks(gate) == "admitted"
    assert ledger.open == 0


async def test_what_was_let_go_is_noted() -> None:
    ledger = Gone()
    gate = Gate(budget(on_state_error="allow"), RateLimit(concurrent=1), ledger=ledger, script=USES_30)
    ledger.away = True
    heard = await gate.ask()
    assert [note["then"] for note in notes(heard, "budget.state_unavailable")] == ["allow"]
    assert [note["then"] for note in notes(heard, "rate_limit.state_unavailable")] == ["local"]
    assert gate.books.local.open == 0


@pytest.mark.fault("RL-01")
async def test_a_call_that_is_too_many_here_waits_here() -> None:
    ledger = Gone()
    gate = Gate(RateLimit.model_validate({"concurrent": 1, "wait": "5s"}), ledger=ledger, script=[{"answer": {"first": "10ms"}}, *USES_30])
    ledger.away = True
    heard = await asyncio.gather(*(gate.ask() for _ in range(3)))  # without patience two are refused
    assert len(heard) == len(gate.received) == 3
    assert (gate.books.local.open, gate.books.waiting_locally.standing) == (0, 0)


async def test_where_only_limits_apply_nothing_needs_to_be_kept() -> None:
    gate = Gate(RateLimit.model_validate({"requests": "2/min", "on_state_error": "refuse"}), trouble=lambda: "no space left")
    assert [await asks(gate) for _ in range(3)] == ["admitted", "admitted", "rate_limit_exceeded"]
    assert await gate.figures("list.rate_limit.key") == (2, 0)


async def test_what_is_let_go_though_it_can_not_be_kept_is_counted() -> None:
    gate = Gate(budget(40, on_state_error="allow"), trouble=lambda: "no space left", script=USES_30)
    heard = await gate.ask(max_tokens=20)
    assert [note["then"] for note in notes(heard, "budget.state_unavailable")] == ["allow"]
    assert await gate.figures("b") == (30, 0)
    assert await asks(gate, max_tokens=20) == "budget_exceeded"


async def test_where_nothing_can_be_kept_the_rule_says_what_happens() -> None:
    gate = Gate(budget(), trouble=lambda: "no space left")
    assert await asks(gate) == "state_unavailable"
    gate = Gate(budget(on_state_error="allow"), trouble=lambda: "no space left")
    assert await asks(gate) == "admitted"


async def test_without_a_cap_twice_what_is_usual_is_held() -> None:
    tokens = Tokens()
    for _ in range(20):
        tokens.learn(call(), Usage(10, 300), Estimate(10, 10))
    usual = tokens.output("search", "m")
    gate = Gate(budget(1000), tokens=tokens, script=USES_30)
    heard = await gate.ask()
    assert heard.headers["x-spangate-capped"] == str(2 * usual)


@pytest.mark.parametrize(
    ("rule", "asked", "output_cap"),
    [
        (budget(1000, weights={"input": 0}), 10**18, 1000),
        (budget(1000, weights={"input": 0, "output": 7}), 900, 142),
        (budget("0.00123", unit="usd"), 5000, 246),
        (budget(100, weights={"input": 0}, on_exceeded="wrap_up", grace="50%"), 5000, 150),
    ],
)
@pytest.mark.parametrize("n", [1, 3])
async def test_a_cap_is_lowered_to_the_most_that_fits_in_one_question(rule: Budget, asked: int, output_cap: int, n: int) -> None:
    ledger = Gone()
    gate = Gate(rule, ledger=ledger, script=USES_30, pricing=lambda _: lambda _into, output, *_: output * 5000)
    heard = await gate.ask(max_tokens=asked, n=n)
    assert heard.headers["x-spangate-capped"] == str(output_cap // n)
    assert ledger.asked == 1


async def test_a_price_that_is_no_whole_number_is_held_in_full() -> None:
    gate = Gate(budget("0.000001", unit="usd"), script=USES_30, pricing=lambda _: lambda _into, output, *_: round(output * 3.7))
    heard = await gate.ask(max_tokens=5000)
    most = int(heard.headers["x-spangate-capped"])
    assert 1000 // 3.7 - 60 <= most <= 1000 / 3.7
    assert round(most * 3.7) <= notes(heard, "budget.settled")[0]["reserved"] * NANO <= 1000


async def test_where_nobody_caps_a_long_cap_of_the_callers_is_not_held() -> None:
    gate = Gate(budget(3000, cap_output=False), script=USES_30)
    heard = await gate.ask(max_tokens=100_000)
    assert gate.received[0]["max_tokens"] == 100_000
    assert notes(heard, "budget.settled")[0]["reserved"] < 3000


async def test_a_call_that_was_refused_holds_nothing() -> None:
    gate = Gate(budget(10), RateLimit(concurrent=1))
    assert await asks(gate, content="a long text " * 50) == "budget_exceeded"
    ledger = gate.ledger
    assert isinstance(ledger, MemoryLedger)
    assert ledger.open == 0


async def test_estimates_get_better_and_their_error_is_known() -> None:
    gate = Gate(budget("1G"), script=[{"usage": {"input": 30, "output": 20}}])
    for _ in range(20):
        await gate.ask("some words to be counted " * 4, max_tokens=100)
    errors = gate.books.tokens.input_errors
    assert errors.calls == 20
    assert errors.used == 600


async def test_what_a_large_hold_gave_back_is_there_for_the_next_answer() -> None:
    gate = Gate(budget(100_000), script=USES_30)
    await gate.ask()
    await gate.ask(max_tokens=99_000)  # holds nearly all of it, and uses 30
    await gate.ask()
    first, _, third = (each.get("max_completion_tokens") for each in gate.received)
    assert first == pytest.approx(100_000 / 16, rel=0.01)
    assert third == pytest.approx(first, rel=0.01)
