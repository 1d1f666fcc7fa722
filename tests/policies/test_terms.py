"""policies/terms.py: `mode` and `when`, which every policy may carry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Labels
from spangate.call.chain import Next, chain
from spangate.call.errors import Refused
from spangate.call.events import Closed, Event
from spangate.policies.access import Access
from spangate.policies.conditions import ConditionMistakes
from spangate.policies.content import unseen
from spangate.policies.shadow import Shadow
from spangate.policies.terms import MISTAKE, Applies, Terms, holds, terms_of, under

NOTHING = Access(models=())


async def answered(call: Call) -> AsyncIterator[Event]:
    yield Closed()


class Later:
    """A rule of another stage, which answers nothing."""

    stage = 40
    needs = frozenset({"targets"})

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        yield Closed(finish="later")


def call(**tags: str) -> Call:
    return Call(op="chat", model="m", body=Body.of({"messages": []}), caller=Caller(team="search"), labels=Labels(tags=tags))


def test_a_policy_without_terms_is_itself() -> None:
    assert under(NOTHING, kind="access") is NOTHING
    assert Terms().none
    assert terms_of(NOTHING).none
    assert not Terms(mode="shadow").none
    assert not Terms(when="true").none


def test_it_holds_where_its_condition_does() -> None:
    rule = under(NOTHING, kind="access", when="tags.env == 'prod'")
    with pytest.raises(Refused):
        rule(call(env="prod"), answered)
    asked = call(env="test")
    assert rule(asked, answered)
    assert len(asked.notes) == 0


@pytest.mark.parametrize("stage", [10, 20, 30])
def test_where_a_condition_fails_a_guard_holds(stage: int) -> None:
    asked, applies = call(), Applies("redact", "tags.env == 'prod'", stage)
    assert applies(asked)
    assert [(note.name, note.figures) for note in asked.notes] == [
        ("redact.condition_failed", {"verdict": "warn", "error": "NOT_FOUND", "holds": True})
    ]


@pytest.mark.parametrize("stage", [35, 40, 50, 90])
def test_where_a_condition_fails_another_rule_does_not(stage: int) -> None:
    asked, applies = call(), Applies("summarize", "tags.env == 'prod'", stage)
    assert not applies(asked)
    assert [note.figures["holds"] for note in asked.notes] == [False]


async def test_a_failed_condition_decides_by_what_the_policy_is() -> None:
    with pytest.raises(Refused):
        under(NOTHING, kind="access", when="tags.x == 'y'")(call(), answered)
    later = under(Later(), kind="later", when="tags.x == 'y'")
    assert [event async for event in later(call(), answered)] == [Closed()]
    assert [event async for event in later(call(x="y"), answered)] == [Closed(finish="later")]


@pytest.mark.parametrize("condition", ["input_tokens > 10000", "images == 0 && input_tokens > 1"])
async def test_a_long_call_is_looked_at_in_steps_first(condition: str) -> None:
    long = Call(op="chat", model="m", body=Body.of({"messages": [{"role": "user", "content": "word " * 100_000}]}))
    assert unseen(long)
    rule = under(Later(), kind="later", when=condition)
    assert [event async for event in rule(long, answered)] == [Closed(finish="later")]
    assert not unseen(long)
    with pytest.raises(Refused):
        under(NOTHING, kind="access", when=condition)(long, answered)


def test_without_a_condition_it_always_applies() -> None:
    asked = call()
    assert Applies("budget", None, 20)(asked)
    assert len(asked.notes) == 0


def test_in_shadow_it_decides_only_where_it_holds() -> None:
    rule = under(NOTHING, kind="access", mode="shadow", when="team == 'search'")
    for team, told in (("search", ["access.refused"]), ("other", [])):
        asked = Call(op="chat", model="m", body=Body.of({}), caller=Caller(team=team))
        assert rule(asked, answered)
        assert [note.name for note in asked.notes] == told


async def test_in_shadow_a_failed_condition_says_so() -> None:
    asked = call()
    rule = under(NOTHING, kind="access", mode="shadow", when="tags.x == 'y'")
    assert [event async for event in rule(asked, answered)] == [Closed()]
    assert [(note.name, note.figures.get("mode")) for note in asked.notes] == [
        ("access.condition_failed", "shadow"),
        ("access.refused", "shadow"),
    ]


def test_it_stands_where_its_policy_stands() -> None:
    assert isinstance(under(NOTHING, kind="access", mode="shadow"), Shadow)
    stages: list[Any] = [under(Later(), kind="later", mode="shadow"), under(Later(), kind="later", when="true"), under(NOTHING, kind="a")]
    assert [rule.stage for rule in stages] == [40, 40, 10]
    assert [set(rule.needs) for rule in stages[:2]] == [{"targets"}] * 2


def test_a_condition_is_checked_where_it_is_written() -> None:
    with pytest.raises(ConditionMistakes):
        under(NOTHING, kind="access", when="modl == 'a'")
    with pytest.raises(ValidationError) as raised:
        Terms(when="modl == 'a'")
    (details,) = raised.value.errors()
    assert details["type"] == MISTAKE
    assert details["ctx"]["mistakes"] == ((1, 1, 'nothing is called "modl"; did you mean "model"?'),)


def test_what_settings_say_of_themselves() -> None:
    class Settings(Access):
        mode: str = "shadow"
        when: str | None = "true"

    assert terms_of(Settings()) == Terms(mode="shadow", when="true")


async def test_a_policy_of_a_configuration_signs_its_notes_and_nobody_elses() -> None:
    class Noting:
        def __init__(self, **figures: Any) -> None:
            self.figures = figures

        def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
            call.notes.add("some.before", **self.figures)
            return next(call)

    asked = call()
    inner = Noting()
    signed = under(Noting(), kind="some", rule="defaults.policies[0]")
    own = under(Noting(rule="own"), kind="some", rule="defaults.policies[1]")
    assert [event async for event in chain([signed, inner, own], answered)(asked)] == [Closed()]
    assert [note.figures.get("rule") for note in asked.notes] == ["defaults.policies[0]", None, "own"]
    assert len(asked.notes.by({"rule": "r"})) == 3


def test_what_holds_of_a_call_is_told_without_a_note() -> None:
    asked = call(env="prod")
    told = [
        holds(Access(), asked),
        holds(Terms(mode="shadow"), asked),
        holds(Terms(when="tags.env == 'prod'"), asked),
        holds(Terms(when="tags.env == 'test'"), asked),
        holds(Terms(when="tags.x == 'y'"), asked),
    ]
    assert told == [True, False, True, False, False]
    assert len(asked.notes) == 0


def test_a_failed_condition_says_whose_it_is_where_that_is_known() -> None:
    asked, applies = call(), Applies("budget", "tags.env == 'prod'", 20)
    applies.rule = "policies.standard[0]"
    assert applies(asked)
    assert [note.figures["rule"] for note in asked.notes] == ["policies.standard[0]"]
