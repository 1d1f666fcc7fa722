"""policies/access.py: which models a caller may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from spangate.call.body import Body
from spangate.call.call import Call
from spangate.call.errors import Refused, model_not_found
from spangate.call.events import Closed, Event
from spangate.policies.access import Access


async def answered(call: Call) -> AsyncIterator[Event]:
    yield Closed()


def call(model: str) -> Call:
    return Call(op="chat", model=model, body=Body.of({}))


@pytest.mark.parametrize(
    ("models", "model", "allowed"),
    [
        (["*"], "anything", True),
        (["fast"], "fast", True),
        (["fast"], "Fast", False),
        (["fast"], "faster", False),
        (["gpt-*"], "gpt-5", True),
        (["gpt-*"], "xgpt-5", False),
        (["*-mini"], "gpt-5-mini", True),
        ([], "fast", False),
        (["a[b]"], "ab", False),
        (["a[b]"], "a[b]", True),
        (["a?"], "ab", False),
    ],
)
async def test_names_and_patterns(models: list[str], model: str, allowed: bool) -> None:
    rule = Access(models=tuple(models))
    assert rule.allows(model) == allowed
    asked = call(model)
    if allowed:
        assert [event async for event in rule(asked, answered)] == [Closed()]
        assert len(asked.notes) == 0
    else:
        with pytest.raises(Refused) as caught:
            rule(asked, answered)
        assert caught.value.code == "model_not_found"
        assert [note.figures for note in asked.notes.named("access.refused")] == [{"model": model}]


def test_a_forbidden_model_gets_the_words_of_one_that_nobody_knows() -> None:
    with pytest.raises(Refused) as caught:
        Access(models=("fast",)).naming(["fast", "small"])(call("strong"), answered)
    assert caught.value.message == model_not_found("strong", ["fast", "small"]).message


def test_it_is_first() -> None:
    assert Access.stage == 10
