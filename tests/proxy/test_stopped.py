"""proxy/stopped.py: which call is refused for which switch, and in which words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spangate.call.call import Caller, Target
from spangate.call.errors import Refused
from spangate.call.notes import Note, Notes
from spangate.policies.refusals import TargetRefused
from spangate.proxy.stopped import Stopped
from spangate.proxy.stops_file import Turn

AT = datetime(2026, 11, 30, 3, 12, 4, 567, tzinfo=UTC)


def stopped(*switches: str, resumed: str = "team:else") -> Stopped:
    return Stopped({**{switch: Turn(True, AT) for switch in switches}, resumed: Turn(False, AT)})


def refusing(it: Stopped, caller: Caller | None = None, *, model: str = "fast", target: Target | None = None) -> str:
    """The switch that refuses; none: empty."""
    notes = Notes()
    try:
        if caller is not None:
            it.check_caller(caller, notes)
        else:
            it.check_target(model, target or Target("openai", "gpt-5-mini"), notes)
    except Refused as error:
        refused = error
    else:
        assert len(notes) == 0
        return ""
    switch = str(refused.facts["stopped"]["switch"])
    assert (refused.code, isinstance(refused, TargetRefused)) == ("stopped", caller is None)
    assert list(notes) == [Note("stop.refused", {"rule": switch, "since": "2026-11-30T03:12:04Z"})]
    return switch


def test_nothing() -> None:
    it = stopped()
    assert (it.callers, it.targets, it.since) == (False, False, {})
    assert refusing(it, Caller(team="search", key="ci")) == refusing(it) == ""


@pytest.mark.parametrize(
    ("switch", "search_ci", "search_two", "other_ci"),
    [("team:search", True, True, False), ("key:search/ci", True, False, False), ("team:other", False, False, True)],
)
def test_a_team_or_a_key(switch: str, search_ci: bool, search_two: bool, other_ci: bool) -> None:
    it = stopped(switch)
    assert (it.callers, it.targets) == (True, False)
    callers = [Caller(team="search", key="ci"), Caller(team="search", key="two"), Caller(team="other", key="ci"), Caller()]
    wanted = [search_ci, search_two, other_ci, False]
    assert [refusing(it, caller) for caller in callers] == [switch if each else "" for each in wanted]


@pytest.mark.parametrize(
    ("switch", "refuses"),
    [
        ("provider:openai", True),
        ("provider:local", False),
        ("model:fast", True),
        ("model:gpt-5-mini", True),
        ("model:gpt-5", False),
        ("model:gpt-*", True),
        ("model:f*t", True),
        ("model:*", True),
        ("model:gpt-5-min?", False),
    ],
)
def test_a_model_by_either_name_or_a_provider(switch: str, refuses: bool) -> None:
    it = stopped(switch)
    assert (it.callers, it.targets) == (False, True)
    assert refusing(it) == (switch if refuses else "")


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ("team:search", "Calls of the team 'search' are stopped by"),
        ("key:search/ci", "Calls with the key 'search/ci' are stopped by"),
    ],
)
def test_the_words_for_a_caller(switch: str, words: str) -> None:
    with pytest.raises(Refused) as caught:
        stopped(switch).check_caller(Caller(team="search", key="ci"), Notes())
    assert caught.value.message.startswith(words)
    assert caught.value.message.endswith("since 2026-11-30T03:12:04Z; trying again changes nothing until they resume it.")
    assert caught.value.source == "gateway"


def test_the_words_for_a_model_name_it_as_it_was_asked_for() -> None:
    with pytest.raises(TargetRefused) as caught:
        stopped("model:*").check_target("m" * 200, Target("p", "x"), Notes())
    assert caught.value.message.startswith(f"The model '{'m' * 61}...' is stopped by")
    assert caught.value.facts == {"stopped": {"switch": "model:*", "since": "2026-11-30T03:12:04Z"}}
