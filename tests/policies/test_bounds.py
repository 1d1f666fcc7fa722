"""policies/bounds.py: whom a bound concerns, and what a call takes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.call import Call, Caller, Labels, Target
from spangate.call.events import Usage
from spangate.policies.bounds import Bound, Need, dearest, plain, scope_of
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Standing

from admitting import call


def bound(**more: Any) -> Bound:
    [made] = Budget.model_validate({"limit": 1000, "window": "total", **more}).bounds("list")
    return made


@pytest.mark.parametrize(
    ("per", "scope"),
    [
        ("organisation", "acme"),
        ("team", "search"),
        ("key", "search/ci"),
        ("user", "search/ann"),
        ("model", "m"),
        ("thread", "search/t1"),
        ("reply", "search/r1"),
        ("tag:project", "search/apollo"),
        ("tag:other", None),
        ("provider", "script"),
    ],
)
def test_whose_usage_a_call_is(per: str, scope: str | None) -> None:
    labels = Labels(thread="t1", reply="r1", tags={"project": "apollo"})
    asked = call(caller=Caller("acme", "search", "ci", "ann"), labels=labels).to(Target("script", "x"))
    assert scope_of(per)(asked) == scope


@pytest.mark.parametrize("per", ["user", "thread", "reply", "tag:project", "provider"])
def test_what_a_call_does_not_name_does_not_concern_it(per: str) -> None:
    assert scope_of(per)(call()) is None


@pytest.mark.parametrize("per", ["", "teams", "tag:", "tag:UPPER", "tag:a b"])
def test_there_is_nothing_else_to_count_by(per: str) -> None:
    with pytest.raises(ValueError, match="must be one of organisation, team"):
        scope_of(per)


def test_counters_have_the_home_of_the_caller_or_of_the_provider() -> None:
    asked = call().to(Target("script", "x"))
    ours, theirs = bound().place(asked), bound(per="provider").place(asked)
    assert ours is not None
    assert theirs is not None
    assert ours.counter.home == "acme"
    assert theirs.counter.home == "provider:script"
    assert bound().place(asked) is not ours


@pytest.mark.parametrize(
    ("changed", "same"), [({"limit": 5}, True), ({"weights": {"output": 3}}, True), ({"unit": "usd"}, False), ({"window": "day"}, False)]
)
def test_a_counter_is_its_name_scope_and_window(changed: dict[str, Any], same: bool) -> None:
    one, other = bound(name="b").place(call()), bound(name="b", **changed).place(call())
    assert one is not None
    assert other is not None
    assert (one.counter == other.counter) is same


usages = st.builds(
    lambda fresh, cached, write, said, thought: Usage(fresh + cached + write, said + thought, cached, write, thought),
    *[st.integers(0, 10**6)] * 5,
)
weights = st.fixed_dictionaries({name: st.integers(0, 9) for name in ("input", "cached", "cache_write", "output", "reasoning")})


@given(usages, weights)
def test_nothing_takes_more_than_was_claimed_for_it(usage: Usage, weighed: dict[str, int]) -> None:
    made = bound(weights=weighed)
    assert made.used(usage, None) <= made.amount(Need(usage.input, usage.output))


@given(usages, weights)
def test_tokens_are_weighed_as_the_contract_says(usage: Usage, weighed: dict[str, int]) -> None:
    by_hand = (
        weighed["input"] * (usage.input - usage.cached - usage.cache_write)
        + weighed["cached"] * usage.cached
        + weighed["cache_write"] * usage.cache_write
        + weighed["output"] * (usage.output - usage.reasoning)
        + weighed["reasoning"] * usage.reasoning
    )
    assert bound(weights=weighed).used(usage, None) == by_hand * NANO


def price(input: int, output: int, cached: int = 0, cache_write: int = 0, reasoning: int = 0, /) -> int:
    return (300 * input - 270 * cached + 75 * cache_write + 1500 * output + 3 * reasoning) // 7


@given(usages)
def test_dollars_are_claimed_at_the_dearest(usage: Usage) -> None:
    made = bound(unit="usd")
    assert made.used(usage, price) <= made.amount(Need(usage.input, usage.output, price)) + 1
    assert made.used(usage, None) == 0


@given(st.integers(0, 10**5), st.integers(0, 10**12), st.sampled_from(["weighted_tokens", "usd"]))
def test_what_fits_is_the_most_that_does(input: int, room: int, unit: str) -> None:
    made = bound(unit=unit, weights={"input": 2, "output": 3} if unit == "weighted_tokens" else {})
    fits = made.fits(Need(input, 0, price), room)
    if fits >= 0:
        assert made.amount(Need(input, fits, price)) <= room
        assert made.amount(Need(input, fits + 2, price)) > room
    else:
        assert made.amount(Need(input, 0, price)) > room


def test_an_output_that_costs_nothing_always_fits() -> None:
    made = bound(weights={"input": 1, "output": 0})
    assert made.fits(Need(10, 500), 10 * NANO) == 500
    assert made.fits(Need(10, 500), 9 * NANO) == -1


def test_models_and_shadow() -> None:
    assert bound(models=["gpt-*"]).place(call(model="gpt-5")) is not None
    assert bound(models=["gpt-*"]).place(call(model="m")) is None


def test_many_scopes_are_not_kept_for_ever() -> None:
    made = bound(per="thread")
    for number in range(5000):
        made.place(call(labels=Labels(thread=str(number))))
    assert 0 < len(made.places) <= 4096


def test_amounts_as_people_read_them() -> None:
    assert [plain(5 * NANO), plain(NANO // 4), plain(0)] == [5, 0.25, 0]
    assert dearest(lambda *tokens: sum(tokens), 2, 3) == 2 + 3 + 2 + 3
    assert Call.__struct_fields__[0] == "op"


def test_what_is_known_to_be_left() -> None:
    place = bound().place(call())
    assert place is not None
    assert place.room == 1000 * NANO, "nobody has looked yet"
    place.standing = Standing(place.counter, 1000 * NANO, 300 * NANO, 500 * NANO)
    assert place.room == 200 * NANO
    place.back += 400 * NANO
    assert place.room == 600 * NANO, "a call that held 500 has used 100"
    place.back += 5000 * NANO
    assert place.room == 1000 * NANO, "all of it, where another window has begun since"
    place.standing, place.back = Standing(place.counter, 1000 * NANO, 1200 * NANO, 0), 0
    assert place.room == 0
