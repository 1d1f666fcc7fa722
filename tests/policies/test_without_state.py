"""policies/without_state.py: what each rule does while the counters can't be reached."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.call import Target
from spangate.call.notes import Notes
from spangate.policies.budget import Budget
from spangate.policies.charge import Entry
from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.rate_limit import RateLimit
from spangate.policies.terms import Terms
from spangate.policies.without_state import apart

from admitting import call


class ShadowBudget(Terms, Budget):
    """A budget as a configuration has it."""


def entries(*rules: Budget | RateLimit) -> list[Entry]:
    asked = call().to(Target("script", "m"))
    bounds = [bound for rule in rules for bound in rule.bounds("list")]
    return [Entry(bound, place) for bound in bounds if (place := bound.place(asked)) is not None]


def budget(**more: Any) -> Budget:
    return Budget.model_validate({"name": "b", "limit": 10, **more})


def limit(**more: Any) -> RateLimit:
    return RateLimit.model_validate({"name": "r", "requests": "2/min", **more})


def names(found: list[Entry]) -> list[str]:
    return [entry.bound.name for entry in found]


@pytest.mark.parametrize("rules", [[budget()], [limit(on_state_error="refuse")], [budget(on_state_error="allow"), budget(name="c")]])
def test_who_wants_to_be_sure_refuses(rules: list[Budget | RateLimit]) -> None:
    notes = Notes()
    with pytest.raises(StateUnavailable):
        apart(entries(*rules), notes)
    assert [note.figures["then"] for note in notes][-1] == "refuse"


def test_the_others_count_here_or_are_owed() -> None:
    notes = Notes()
    rules = budget(on_state_error="allow"), limit(), limit(name="free", on_state_error="allow")
    local, owed = apart(entries(*rules), notes)
    assert (names(local), names(owed)) == (["r"], ["b", "free"])
    assert [(note.name, note.figures["then"]) for note in notes] == [
        ("budget.state_unavailable", "allow"),
        ("rate_limit.state_unavailable", "local"),
        ("rate_limit.state_unavailable", "allow"),
    ]


def test_a_shadow_stops_nobody() -> None:
    shadow = ShadowBudget.model_validate({"name": "s", "limit": 10, "mode": "shadow"})
    local, owed = apart(entries(shadow), Notes())
    assert (names(local), names(owed)) == ([], ["s"])
