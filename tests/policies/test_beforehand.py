"""policies/beforehand.py: what can be said of a call whose body isn't here."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spangate.call.body import Body
from spangate.call.call import Call
from spangate.call.errors import Refused
from spangate.policies import beforehand
from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.ledger.memory import MemoryLedger
from spangate.proxy.kinds import Kinds

from admitting import CALLER, Gate, notes

BARE = Call("chat", "", Body({}), caller=CALLER)


SETTINGS = Kinds().settings


def rule(**said: Any) -> Any:
    return SETTINGS.model_validate({"defaults": {"policies": [said]}}).defaults.policies[0].settings


def budget(limit: Any, **more: Any) -> Any:
    return rule(budget={"limit": limit, "name": "b", "window": "total", **more})


def limit(**said: Any) -> Any:
    return rule(rate_limit={"name": "l", **said})


async def said(gate: Gate, asked: Call = BARE) -> Refused | None:
    try:
        await beforehand.check(gate.bounds, gate.books, asked)
    except Refused as error:
        return error
    return None


@pytest.mark.fault("HDR-10")
@pytest.mark.parametrize(
    ("one", "code"),
    [
        (budget(0), "budget_exceeded"),
        (budget(0, unit="usd"), "budget_exceeded"),
        (budget(30), "budget_exceeded"),
        (budget(31), "budget_exceeded"),
        (budget(32), None),
        (budget(1, unit="requests"), "budget_exceeded"),
        (budget(2, unit="requests"), None),
        (budget(20, on_exceeded="wrap_up", grace="50%"), "budget_exceeded"),
        (budget(20, on_exceeded="wrap_up", grace="100%"), None),
        (budget(30, on_exceeded="warn"), None),
        (budget(30, mode="shadow"), None),
        (budget(30, models=["m"]), None),
        (budget(30, when="stream || !stream"), None),
        (budget(30, per="model"), None),
        (budget(30, per="user"), None),
        (limit(requests="1/min"), "rate_limit_exceeded"),
        (limit(requests="2/min"), None),
        (limit(requests="1/min", wait="2s"), None),
        (limit(concurrent=1), None),
    ],
)
async def test_a_rule_without_room_says_so(one: Any, code: str | None) -> None:
    """One call has used 30 tokens, as far as there was room for it."""
    gate = Gate(one, script=[{"usage": {"input": 10, "output": 20}}])
    try:
        await gate.ask(max_tokens=20)
    except Refused:
        assert gate.bounds[0].limit == 0
    error = await said(gate)
    assert (error.code if error else None) == code


async def test_it_is_told_as_any_refusal() -> None:
    gate = Gate(limit(requests="1/min"), budget(1, unit="requests"))
    await gate.ask()
    asked = replace(BARE)
    error = await said(gate, asked)
    assert error is not None
    assert (error.code, error.source, error.facts["budget"]["used"]) == ("budget_exceeded", "policy", 1)
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert notes(asked, "budget.refused")[0]["name"] == "b"
    assert await gate.figures("b") == (1, 0)


async def test_nobody_is_refused_for_want_of_counters() -> None:
    class Gone(MemoryLedger):
        async def read(self, claims: Any) -> Any:
            raise StateUnavailable("gone")

    assert await said(Gate(budget(0), ledger=Gone())) is None


async def test_without_rules_nothing_is_asked() -> None:
    assert await said(Gate()) is None
