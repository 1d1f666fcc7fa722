"""proxy/mistakes.py: how what is wrong is told."""

from __future__ import annotations

import json

import pytest

from spangate.proxy.mistakes import ConfigMistakes, Mistake, as_github, as_json, as_sarif, as_text, did_you_mean, masked, quoted

TYPO = Mistake("spangate.yaml", 31, 9, "teams.search.polices", 'unknown key; did you mean "policies"?')
LATE = Mistake("spangate.yaml", 4, 1, "teams.a", "has no key", "warning")


def test_a_mistake_is_a_line_that_editors_jump_to() -> None:
    assert str(TYPO) == 'spangate.yaml:31:9: teams.search.polices: unknown key; did you mean "policies"?'
    assert str(LATE) == "spangate.yaml:4:1: warning: teams.a: has no key"
    assert str(Mistake("spangate.yaml", 0, 0, "", "there is no such file")) == "spangate.yaml: there is no such file"


def test_all_of_them_come_in_the_order_of_the_file_and_once() -> None:
    assert ConfigMistakes([TYPO, LATE, TYPO]).mistakes == [LATE, TYPO]
    assert str(ConfigMistakes([TYPO, LATE])) == f"{LATE}\n{TYPO}"


def test_text_is_a_line_each() -> None:
    assert as_text([LATE, TYPO]) == f"{LATE}\n{TYPO}"
    assert as_text([]) == ""


def test_json_has_every_part() -> None:
    assert json.loads(as_json([TYPO])) == [
        {"file": "spangate.yaml", "line": 31, "column": 9, "path": TYPO.path, "message": TYPO.message, "level": "error"}
    ]
    assert json.loads(as_json([])) == []


def test_github_escapes_what_would_end_a_command() -> None:
    odd = Mistake("a,b:c%.yaml", 0, 0, "", "100%\nof it")
    assert as_github([TYPO, odd]).splitlines() == [
        '::error file=spangate.yaml,line=31,col=9::teams.search.polices: unknown key; did you mean "policies"?',
        "::error file=a%2Cb%3Ac%25.yaml,line=1,col=1::100%25%0Aof it",
    ]
    assert as_github([LATE]).startswith("::warning file=")


def test_sarif_is_what_code_scanners_read() -> None:
    log = json.loads(as_sarif([TYPO, LATE, Mistake("/etc/a b.yaml", 0, 0, "", "x")], version="0.1.0"))
    run = log["runs"][0]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["name"] == "spangate"
    assert [result["level"] for result in run["results"]] == ["error", "warning", "error"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "spangate.yaml"}, "region": {"startLine": 31, "startColumn": 9}}
    assert run["results"][2]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///etc/a%20b.yaml"
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}


@pytest.mark.parametrize(
    ("word", "hint"),
    [("polices", '; did you mean "policies"?'), ("nothing-like-it", ""), ("", ""), ("p" * 10_000, "")],
)
def test_suggests_only_what_is_near(word: str, hint: str) -> None:
    assert did_you_mean(word, ["policies", "teams"]) == hint


def test_quotes_words_on_one_bearable_line() -> None:
    assert quoted('a"b\n') == '"a\\"b\\n"'
    assert len(quoted("x" * 1000)) < 70


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no provider CANARY-123 here", "no provider ${KEY} here"),
        ("no provider sk-live-abcdefghijkl1234", "no provider sk-…"),
        ("sg-" + "0123456789abcdef" * 4, "sg-…"),
        ("text-embedding-3-large", "text-embedding-3-large"),
        ("port 8484", "port 8484"),
    ],
)
def test_masks_what_came_from_the_environment_and_what_looks_like_a_key(text: str, shown: str) -> None:
    assert masked(text, {"KEY": "CANARY-123", "DIGIT": "8"}) == shown
