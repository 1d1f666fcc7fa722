"""proxy/rules.py: which policies hold for a team, where they stand, and what is wrong with them together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spangate.proxy.config import Config, parse
from spangate.proxy.mistakes import ConfigMistakes

from gateway import KINDS


def parsed(**sections: Any) -> Config:
    usual: dict[str, Any] = {"providers": {"s": {"kind": "scripted"}}, "models": {"m": {"targets": [{"provider": "s"}]}}}
    return parse(json.dumps(usual | sections).encode(), "spangate.yaml", environ={}, kinds=KINDS)


LIMIT = {"budget": {"limit": 5}}


def test_defaults_stand_around_a_teams_own_and_a_list_counts_once() -> None:
    config = parsed(
        policies={"standard": [LIMIT, {"rate_limit": {"concurrent": 1}}]},
        defaults={"policies": ["standard", {"budget": {"limit": 1, "window": "day"}}]},
        teams={"search": {"policies": ["standard", {"budget": {"limit": 2, "window": "day"}}]}},
    )
    found = [(rule.kind, rule.origin, rule.path) for rule in config.rules_of("search")]
    assert found == [
        ("budget", "standard", ("policies", "standard", 0, "budget")),
        ("rate_limit", "standard", ("policies", "standard", 1, "rate_limit")),
        ("budget", "defaults", ("defaults", "policies", 1, "budget")),
        ("budget", "search", ("teams", "search", "policies", 1, "budget")),
    ]
    assert [rule.origin for rule in config.rules_of(None)] == ["standard", "standard", "defaults"]
    assert config.has_budgets
    assert not config.in_dollars


@pytest.mark.parametrize(
    ("sections", "path", "words"),
    [
        (
            {"defaults": {"policies": [LIMIT, LIMIT]}},
            "defaults.policies[1].budget",
            "is called 'defaults.budget.weighted_tokens.month.team'",
        ),
        (
            {
                "policies": {"p": [{"rate_limit": {"requests": "1/s"}}, {"rate_limit": {"requests": "9/min"}}]},
                "defaults": {"policies": ["p"]},
            },
            "policies.p[1].rate_limit",
            "give one a name",
        ),
        (
            {"defaults": {"policies": [{"budget": {"limit": 1, "on_exceeded": "downgrade", "downgrade_to": "n"}}]}},
            "defaults.policies[0].budget.downgrade_to",
            'no model "n"',
        ),
    ],
)
def test_what_does_not_go_together(sections: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(ConfigMistakes) as caught:
        parsed(**sections)
    [mistake] = caught.value.mistakes
    assert mistake.path == path
    assert words in mistake.message
    assert mistake.line > 0


def test_teams_may_have_budgets_of_one_name() -> None:
    named = {"budget": {"limit": 5, "name": "mine"}}
    assert parsed(teams={"a": {"policies": [named]}, "b": {"policies": [named]}}).has_budgets


def test_what_is_likely_a_slip_is_a_warning() -> None:
    file = """\
providers: {s: {kind: scripted}}
models:
  fast: {targets: [{provider: s}]}
  "gpt-*": {targets: [{provider: s}]}
policies:
  careful:
    - access: {models: [fast, fsat, gpt-5, "f*", "x-*", "claude-*"], when: "team == 'serach' || op != 'chatt' && tags.team == 'any'"}
  idle: [{access: {operations: [chat]}}]
defaults: {policies: [careful]}
teams: {search: {models: [fast], policies: [{access: {models: [fast], when: 'op == "chat"'}}]}}
"""
    found = parse(file.encode(), "f", environ={}, kinds=KINDS).warnings
    told = [(warning.path, warning.message) for warning in found if "key" not in warning.message]
    assert told == [
        ("policies.careful[0].access.models[1]", 'no model "fsat", so that this allows nothing; did you mean "fast"?'),
        ("policies.careful[0].access.when", 'no team "serach"; did you mean "search"?'),
        ("policies.careful[0].access.when", 'no operation "chatt"; did you mean "chat"?'),
        ("policies.idle", "neither the defaults nor a team use this list, so that it holds for nobody"),
    ]
    assert {warning.level for warning in found} == {"warning"}
