"""policies/entries.py: which counters concern a call, and what notes tell of one."""

from __future__ import annotations

from msgspec.structs import replace

from spangate.call.call import Target
from spangate.policies.bounds import Bound, Need
from spangate.policies.budget import Budget
from spangate.policies.entries import Entry, Sheet, line
from spangate.policies.ledger.ledger import NANO, Standing
from spangate.policies.rate_limit import RateLimit

from admitting import call


def sheet(*rules: Budget | RateLimit, shadow: RateLimit | None = None) -> Sheet:
    asked = call().to(Target("script", "m"))
    bounds: list[Bound] = [bound for rule in rules for bound in rule.bounds("list")]
    bounds += [replace(bound, shadow=True) for bound in shadow.bounds("list")] if shadow else []
    return Sheet([(bound, place) for bound in bounds if (place := bound.place(asked)) is not None])


def budget(**more: object) -> Budget:
    return Budget.model_validate({"name": "b", "limit": 1000, "window": "month", **more})


def test_what_follows_from_the_bounds_of_a_caller() -> None:
    limits = RateLimit.model_validate({"requests": "5/min", "concurrent": 2, "wait": "3s"})
    found = sheet(limits, budget(), budget(name="c", cap_output=False), shadow=RateLimit.model_validate({"requests": "5/min"}))
    assert [at for at, *_ in found.by_tokens] == [2, 3]
    assert [at for at, *_ in found.settling] == [2, 3]
    assert [(at, bound.unit) for at, bound in found.limits] == [(0, "requests")], "of calls at once no header tells, nor of a shadow"
    assert [bound.name for bound, _ in found.capping] == ["b"]
    assert set(found.waits.values()) == {3.0}
    assert [claim.amount for claim in found.claims] == [NANO, NANO, 0, 0, NANO]
    for (_, place), claim in zip(found.places, found.claims, strict=True):
        assert claim.counter == place.counter


def test_whose_counter_it_is() -> None:
    found = sheet(budget(), budget(name="c"))
    [(_, _), (bound, place)] = found.places
    assert found.bound_of(Standing(place.counter, bound.limit, 1, 2)) is bound


def test_the_ledgers_line_is_what_was_so_when_it_was_noted() -> None:
    [(bound, place)] = sheet(budget()).places
    held = bound.amount(Need(10, 90))
    standing = Standing(place.counter, bound.limit, 200 * NANO, 50 * NANO + held)
    note = Entry(bound, place, held, 30 * NANO, standing)
    place.standing = Standing(place.counter, bound.limit, bound.limit, 0)
    assert note.name == "budget.settled"
    assert note.figures == {
        **line(bound, standing),
        "reserved": 100,
        "settled": 30,
        "remaining": 1000 - 200 - 50 - 30,
    }
    assert note.figures is note.figures, "worked out once"


def test_a_line_tells_of_estimates_and_of_what_went_beyond() -> None:
    [(bound, place)] = sheet(budget()).places
    standing = Standing(place.counter, 1000 * NANO, 990 * NANO, NANO)
    note = Entry(bound, place, NANO, 20 * NANO, standing, estimated=True, overshoot=10 * NANO)
    assert (note.figures["estimated"], note.figures["overshoot"], note.figures["remaining"]) == (True, 10, 0)
