"""A call is frozen; change is a new value that shares what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Labels, Target


def call() -> Call:
    return Call(op="chat", model="fast", body=Body.of({"model": "fast"}))


@pytest.mark.parametrize(
    ("value", "name"), [(call(), "model"), (Caller(), "team"), (Target("a", "b"), "model"), (Head(), "n"), (Labels(), "reply")]
)
def test_nothing_that_travels_changes(value: Any, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, "other")


def test_a_new_body_a_target_and_limits_are_new_calls() -> None:
    first = call()
    body = first.body.changed(model="other")
    last = first.with_body(body).to(Target("openai", "gpt")).within(connect=1.5, deadline=100.0)
    assert (last.body, last.target, last.connect, last.deadline) == (body, Target("openai", "gpt"), 1.5, 100.0)
    assert (last.op, last.model) == ("chat", "fast")
    assert (first.body.get("model"), first.target, first.connect, first.deadline) == ("fast", None, 5.0, None)


@pytest.mark.parametrize(("first", "then", "kept"), [(None, 9.0, 9.0), (5.0, 9.0, 5.0), (9.0, 5.0, 5.0)])
def test_a_limit_never_puts_a_deadline_off(first: float | None, then: float, kept: float) -> None:
    asked = Call(op="chat", model="fast", body=Body.of({}), deadline=first)
    assert asked.within(connect=1.0, deadline=then, begun=0.5).begun == 0.5
    assert asked.within(connect=1.0, deadline=then).deadline == kept


def test_what_became_of_a_call_is_told_in_one_place() -> None:
    """Retries and fallbacks are new values of one call: their notes stand together."""
    first = call()
    first.notes.add("route.chose", target="openai")
    second = first.to(Target("openai", "gpt"))
    second.notes.add("retry.again")
    assert second.id == first.id
    assert [note.name for note in first.notes] == ["route.chose", "retry.again"]


def test_each_call_has_its_own_id_and_notes() -> None:
    first, second = call(), call()
    first.notes.add("only.first")
    assert first.id != second.id
    assert len(second.notes) == 0


def test_a_call_of_nobody_in_particular() -> None:
    plain = call()
    assert plain.caller == Caller(organisation="default", team="", key="", user="")
    assert plain.head == Head(stream=False, n=1, output_cap=None, usage_frame=False)
    assert (plain.purpose, plain.meter, dict(plain.labels.tags)) == ("main", None, {})
