"""policies/charge.py: what one call holds and has used, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.call import Target
from spangate.call.errors import Refused
from spangate.call.events import Usage
from spangate.call.usage import NOTHING
from spangate.policies.bounds import Need
from spangate.policies.budget import Budget
from spangate.policies.charge import Charge
from spangate.policies.entries import Sheet
from spangate.policies.ledger.ledger import NANO

from admitting import Gate, call, notes
from ledgers import Backend, fresh


def budget(limit: Any = 1000, **more: Any) -> Budget:
    return Budget.model_validate({"name": "b", "limit": limit, "window": "month", **more})


async def held(gate: Gate, need: Need) -> tuple[Charge, Any]:
    """A charge that holds what `need` claims."""
    asked = call().to(Target("script", "m"))
    sheet = Sheet([(bound, place) for bound in gate.bounds if (place := bound.place(asked)) is not None])
    charge = Charge.of(gate.books, asked, sheet)
    claims = [bound.claim(place.counter, bound.amount(need)) for bound, place in sheet.places]
    charge.held_for(need, await charge.hold.reserve(claims), claims, asked.target)
    return charge, asked


async def test_what_is_said_twice_counts_once() -> None:
    gate = Gate(budget())
    charge, asked = await held(gate, Need(10, 100))
    await charge.before(asked)
    charge.after(asked, Usage(10, 20), cut=False)
    charge.settle()
    charge.settle()
    assert await gate.figures("b") == (30, 0)
    assert len(notes(asked, "budget.settled")) == 1


@pytest.mark.fault("USE-13")
async def test_every_attempt_is_paid_for() -> None:
    gate = Gate(budget())
    charge, asked = await held(gate, Need(10, 100))
    await charge.before(asked)
    charge.after(asked, Usage(2, 5, source="estimated"), cut=False)
    await charge.before(asked)
    charge.after(asked, Usage(13, 20), cut=False)
    charge.settle()
    used, reserved = await gate.figures("b")
    assert reserved == 0
    assert used == 33 + 2 + 5
    [line] = notes(asked, "budget.settled")
    assert line["estimated"] is True


@pytest.mark.parametrize("billed", [None, NOTHING])
async def test_who_used_nothing_pays_nothing(billed: Usage | None) -> None:
    gate = Gate(budget())
    charge, asked = await held(gate, Need(10, 100))
    await charge.before(asked)
    assert charge.after(asked, billed, cut=False) is None
    charge.settle()
    assert await gate.figures("b") == (0, 0)
    assert "estimated" not in notes(asked, "budget.settled")[0]


@pytest.mark.parametrize(("billed", "learnt"), [(Usage(10, 20), 1), (Usage(10, 20, source="estimated"), 0)])
async def test_only_what_a_provider_told_teaches(billed: Usage, learnt: int) -> None:
    gate = Gate(budget())
    charge, asked = await held(gate, Need(10, 100))
    charge.after(asked, billed, cut=False)
    assert gate.books.tokens.output_errors.calls == learnt


async def test_a_dearer_target_is_held_before_it_is_asked() -> None:
    prices = {"m": 1, "dear": 10}
    gate = Gate(budget(1, unit="usd"), pricing=lambda target: lambda i, o, *_: prices[target.model] * (i + o) * NANO // 1000)
    charge, asked = await held(gate, Need(10, 40, gate.books.pricing(Target("script", "m"))))
    await charge.before(asked.to(Target("script", "dear")))
    assert await gate.figures("b") == (0, 0.5)
    charge.after(asked.to(Target("script", "dear")), Usage(10, 20), cut=False)
    charge.settle()
    assert await gate.figures("b") == (0.3, 0)


async def test_a_target_that_is_too_dear_is_refused_and_the_hold_stays() -> None:
    gate = Gate(
        budget(1, unit="usd"), pricing=lambda target: lambda i, o, *_: (100 if target.model == "dear" else 1) * (i + o) * NANO // 1000
    )
    charge, asked = await held(gate, Need(10, 40, gate.books.pricing(Target("script", "m"))))
    with pytest.raises(Refused) as caught:
        await charge.before(asked.to(Target("script", "dear")))
    assert caught.value.code == "budget_exceeded"
    assert await gate.figures("b") == (0, 0.05)
    charge.settle()
    assert await gate.figures("b") == (0, 0)


async def test_a_call_within_a_call_is_charged_to_the_same_hold() -> None:
    gate = Gate(budget(), budget(5, name="calls", unit="requests"))
    charge, asked = await held(gate, Need(10, 100))
    await charge.before(asked)
    inner = call("summarize this", max_tokens=50).to(Target("script", "m"))
    from msgspec.structs import replace

    inner = replace(inner, purpose="summary", meter=charge)
    await charge.before(inner)
    charge.after(inner, Usage(5, 7), cut=False)
    charge.after(asked, Usage(10, 20), cut=False)
    charge.settle()
    assert await gate.figures("b") == (42, 0)
    assert await gate.figures("calls") == (1, 0)


async def test_the_line_of_the_spool_says_what_is_held() -> None:
    gate = Gate(budget())
    charge, _ = await held(gate, Need(10, 100))
    assert charge.holds["input"] == 10
    assert charge.holds["output"] == 100
    [[name, scope, unit, window, mode, resets_at, amount, limit]] = charge.holds["budgets"]
    assert (name, scope, unit, window, mode, amount, limit) == ("b", "team:search", "weighted_tokens", "month", "enforce", 110, 1000)
    assert resets_at.endswith("-01T00:00:00Z")


@pytest.mark.parametrize(
    ("output", "used", "overshoot"),
    [(90, 140, 50), (40, 70, None), (40, 110, 20)],
)
async def test_more_than_was_held_is_told_as_overshoot_where_there_was_no_room(
    backend: Backend, output: int, used: int, overshoot: int | None
) -> None:
    async with backend.ledger() as ledger:
        gate = Gate(budget(100, name=fresh()), ledger=ledger)
        charge, asked = await held(gate, Need(10, output))
        charge.after(asked, Usage(10, used), cut=False)
        charge.settle()
        assert await ledger.drain(5) == 0
        assert notes(asked, "budget.settled")[0].get("overshoot") == overshoot


async def test_what_is_left_is_known_after_a_hold_became_more() -> None:
    gate = Gate(budget(weights={"input": 0}))
    charge, asked = await held(gate, Need(0, 100))
    assert await charge.more_output(800)
    [(_, place)] = charge.sheet.places
    assert place.room == 100 * NANO
    charge.after(asked, Usage(0, 850), cut=False)
    charge.settle()
    assert place.room == 150 * NANO


async def test_slices_are_as_large_as_there_is_room_for() -> None:
    gate = Gate(budget(100, weights={"input": 0}))
    charge, asked = await held(gate, Need(0, 50))
    assert await charge.more_output(30)
    assert await charge.more_output(256)
    assert charge.output == 100
    assert not await charge.more_output(1)
    assert notes(asked, "budget.cut")[0]["reserved"] == 100
    charge.settle()
