"""proxy/kinds.py: kinds of providers and policies, ours and other people's."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from spangate.policies.access import Access
from spangate.policies.budget import Budget
from spangate.policies.rate_limit import RateLimit
from spangate.policies.terms import Terms, terms_of
from spangate.policies.time_limit import TimeLimit
from spangate.proxy import kinds
from spangate.proxy.config import Config, ConfigMistakes, parse
from spangate.proxy.kinds import Kinds
from spangate.proxy.providers.openai import OpenAI
from spangate.proxy.providers.scripted import Scripted


class Parrot(BaseModel):
    """Repeats."""

    model_config = ConfigDict(extra="forbid")
    kind: Literal["parrot"]
    colour: str = "grey"
    """Of its feathers."""


class Plain(BaseModel):
    """Has no `kind` of its own."""

    model_config = ConfigDict(extra="forbid")
    size: int = 1


class Slow(BaseModel):
    """Waits."""

    model_config = ConfigDict(extra="forbid")
    seconds: int


class Own(BaseModel):
    """Has a mode of its own."""

    model_config = ConfigDict(extra="forbid")
    mode: Literal["loud", "low"]


def config_of(providers: str, policies: str, known: Kinds) -> Config:
    text = f"providers: {providers}\nmodels: {{m: {{targets: [{{provider: p}}]}}}}\ndefaults: {{policies: {policies}}}"
    return parse(text.encode(), "f", environ={}, kinds=known)


def test_ours_are_there() -> None:
    assert Kinds().policies == {"access": Access, "budget": Budget, "rate_limit": RateLimit, "time_limit": TimeLimit}
    assert Kinds().providers == {"openai": OpenAI, "scripted": Scripted}


def test_other_peoples_kinds_are_as_good_as_ours() -> None:
    known = Kinds(providers={"parrot": Parrot, "plain": Plain}, policies={"slow": Slow})
    config = config_of("{p: {kind: parrot, colour: red}, q: {kind: plain, size: 2}}", "[slow: {seconds: 3}]", known)
    assert config.settings.providers["p"] == Parrot(kind="parrot", colour="red")
    assert config.settings.providers["q"].size == 2
    ((kind, slow),) = config.policies_of(None)
    assert (kind, isinstance(slow, Slow), slow.model_dump()) == ("slow", True, {"seconds": 3, "mode": "enforce", "when": None})
    assert config.parts_of("m") == []
    with pytest.raises(ConfigMistakes) as raised:
        config_of("{p: {kind: parot}, q: {kind: plain, sise: 1}}", "[slow: {secs: 1}]", known)
    assert [mistake.message for mistake in raised.value.mistakes] == [
        '"parot" is not one of parrot, plain; did you mean "parrot"?',
        'unknown key; did you mean "size"?',
        "is missing",
        'unknown key; did you mean "seconds"?',
    ]


def test_every_policy_may_carry_mode_and_when() -> None:
    known = Kinds(providers={"parrot": Parrot}, policies={"slow": Slow, "own": Own})
    policies = "[slow: {seconds: 1, mode: shadow, when: stream}, own: {mode: loud}]"
    (_, slow), (_, own) = config_of("{p: {kind: parrot}}", policies, known).policies_of(None)
    assert terms_of(slow) == Terms(mode="shadow", when="stream")
    assert own.model_dump() == {"mode": "loud", "when": None}
    with pytest.raises(ConfigMistakes) as raised:
        config_of("{p: {kind: parrot}}", "[slow: {seconds: 1, mode: loud, when: strem}]", known)
    assert [str(mistake) for mistake in raised.value.mistakes] == [
        'f:3:48: defaults.policies[0].slow.mode: "loud" is not one of enforce, shadow',
        'f:3:60: defaults.policies[0].slow.when: nothing is called "strem"; did you mean "stream"?',
    ]


def test_a_single_kind_of_provider_is_enough() -> None:
    known = Kinds(providers={"parrot": Parrot}, policies={})
    assert config_of("{p: {kind: parrot}}", "[]", known).settings.providers["p"] == Parrot(kind="parrot")
    with pytest.raises(ConfigMistakes, match='"parot" is not one of parrot; did you mean "parrot"'):
        config_of("{p: {kind: parot}}", "[]", known)


def test_a_plug_in_that_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds.OURS, "spangate.policies", {"odd": ".nowhere:Odd"})
    with pytest.raises(ConfigMistakes, match=r"entry point: spangate\.policies odd: this plug-in can't be imported: No module named"):
        Kinds()
