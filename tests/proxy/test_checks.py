"""proxy/checks.py: what must fit together. How it is told in its place: test_config.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.checks import address_problem, check, check_stored
from spangate.proxy.document import read

MINIMUM = "providers: {p: {kind: scripted}}\nmodels: {fast: {targets: [{provider: p}]}}\n"


def found(text: str) -> list[str]:
    """The paths of what doesn't fit, in this text after the least that does."""
    return [mistake.path for mistake in check(read(MINIMUM + text, "f", {}))]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("", []),
        ("teams: {a: {models: [fast], keys: [{name: x, hash: h}, {name: y, hash: i}]}}", []),
        ("teams: {a: {models: [slow]}}", ["teams.a.models[0]"]),
        ("teams: {a: {keys: [{name: x, hash: h}, {name: x, hash: i}]}}", ["teams.a.keys[1].name"]),
        ("teams: {a: {keys: [{name: x, hash: h}]}, b: {keys: [{name: x, hash: h}]}}", ["teams.b.keys[0].hash"]),
        ("policies: {one: [{access: {}}]}\ndefaults: {policies: [one, two]}", ["defaults.policies[1]"]),
        ("policies: {one: [{access: {}, other: {}}, {}]}", ["policies.one[0]", "policies.one[1]"]),
        ("teams: {a: {policies: [one]}}", ["teams.a.policies[0]"]),
    ],
)
def test_names_refer_and_keys_differ(text: str, paths: list[str]) -> None:
    assert found(text) == paths


@pytest.mark.parametrize(
    "text", ["teams: 5", "teams: [a]", "teams: {a: }", "teams: {a: {models: x, keys: {}, policies: 1}}", "policies: {a: 1}", "defaults: x"]
)  # fmt: skip
def test_what_is_of_the_wrong_type_is_passed_over(text: str) -> None:
    assert found(text) == []


def test_an_unset_variable_is_no_unknown_name_too() -> None:
    assert found('teams: {a: {models: ["${NONE}"]}}') == []


def test_keys_of_both_files_differ_too() -> None:
    document = read("teams: {a: {keys: [{name: x, hash: h}]}}", "f", {})
    stored = read("teams: {a: [{name: x, hash: i}], b: [{name: x, hash: h}]}", "k", {})
    assert [(m.file, m.path) for m in check_stored(document, stored)] == [("k", "teams.a[0].name"), ("k", "teams.b[0].hash")]


@pytest.mark.parametrize("address", ["http://127.0.0.1:11434/v1", "https://api.openai.com/v1", "http://[::1]:80", "https://a.b/c%20d"])
def test_addresses(address: str) -> None:
    assert address_problem(address) == ""


@given(st.text(max_size=30) | st.text(alphabet="htps:/[]@?#.%0a\\ ", max_size=30).map("http://".__add__))
def test_no_address_is_too_odd(address: str) -> None:
    assert "\n" not in address_problem(address)
