"""call/rules.py: what a script may say, and what is said of what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from spangate.call.rules import Figures, Refusal, Reset, Rule, Stall, ToolCall, When, fits_glob, problems_of


def test_the_rule_of_the_product_page() -> None:
    rule = Rule.model_validate(
        {
            "when": {"model": "echo*", "contains": "weather", "attempt": 1},
            "answer": {
                "text": "…",
                "tool_calls": [{"name": "get_weather", "arguments": {"city": "Rome"}}],
                "reasoning": "…",
                "finish": "stop",
                "chunks": 12,
                "every": "20ms",
                "first": "200ms",
            },
            "usage": {"input": 13, "output": 20, "cached": 0, "reasoning": 0},
            "fault": {"status": 429, "headers": {"retry-after": "2"}},
            "times": 2,
        }
    )
    assert (rule.answer.every, rule.answer.first) == (0.02, 0.2)
    assert rule.answer.tool_calls == [ToolCall(name="get_weather", arguments={"city": "Rome"})]
    assert rule.usage == Figures(input=13, output=20)
    assert rule.fault == Refusal(status=429, headers={"retry-after": "2"})


@pytest.mark.parametrize("usage", ["omit", "late", "twice", "cumulative"])
def test_ways_of_usage(usage: str) -> None:
    assert Rule.model_validate({"usage": usage}).usage == usage


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        ({"reset_after": 3}, Reset(reset_after=3)),
        ({"stall_after": 0}, Stall(stall_after=0)),
        ("truncate", "truncate"),
        ("error_in_200", "error_in_200"),
        ("empty", "empty"),
        (Reset(reset_after=1), Reset(reset_after=1)),
        (Stall(stall_after=1), Stall(stall_after=1)),
        (Refusal(status=500), Refusal(status=500)),
    ],
)
def test_faults(fault: Any, read: Any) -> None:
    assert Rule.model_validate({"fault": fault}).fault == read


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "anything", True),
        ("echo*", "echo-1", True),
        ("echo*", "ECHO-1", False),
        ("gpt-5", "gpt-5", True),
        ("gpt-5", "gpt-5-mini", False),
        ("a[bc]?", "a[bc]?", True),
        ("a[bc]?", "abx", False),
    ],
)
def test_a_glob_has_one_special_character(pattern: str, name: str, fits: bool) -> None:
    assert fits_glob(pattern, name) is fits


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({}, True),
        ({"contains": "WEATHER"}, True),
        ({"contains": "snow"}, False),
        ({"attempt": 2}, True),
        ({"attempt": 1}, False),
        ({"model": "n", "contains": "weather"}, False),
    ],
)
def test_what_fits(when: dict[str, Any], fits: bool) -> None:
    assert When(**when).fits("m", 2, ["Be brief.", "The weather in Rome?"]) is fits


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"wen": {}}, ['rule 3: wen: unknown key; did you mean "when"?']),
        ({"answer": {"txt": "a"}}, ['rule 3: answer.txt: unknown key; did you mean "text"?']),
        ({"when": {"colour": 1}}, ["rule 3: when.colour: unknown key; known here: model, contains, attempt"]),
        ({"answer": {"tool_calls": [{"nme": "f"}]}}, ['rule 3: answer.tool_calls[0].nme: unknown key; did you mean "name"?']),
        ({"answer": {"tool_calls": [{}]}}, ["rule 3: answer.tool_calls[0].name: is missing"]),
        ({"answer": {"every": "soon"}}, ["rule 3: answer.every: must be a time such as 250ms, 5s, 10m, 1h or 30d"]),
        ({"usage": {"inpt": 1}}, ['rule 3: usage.inpt: unknown key; did you mean "input"?']),
        ({"usage": "lat"}, ["rule 3: usage: should be 'omit', 'late', 'twice' or 'cumulative'"]),
        ({"fault": {"stats": 429}}, ['rule 3: fault.stats: unknown key; did you mean "status"?']),
        ({"fault": {"reset_afer": 1}}, ['rule 3: fault.reset_afer: unknown key; did you mean "reset_after"?']),
        ({"fault": {"status": 200}}, ["rule 3: fault.status: should be greater than or equal to 400"]),
        ({"fault": "trunkate"}, ["rule 3: fault: should be 'truncate', 'error_in_200' or 'empty'"]),
        ("echo", ["rule 3: should be a valid dictionary or instance of Rule"]),
        (
            {"times": 0, "wen": {}},
            ["rule 3: times: should be greater than or equal to 1", 'rule 3: wen: unknown key; did you mean "when"?'],
        ),
    ],
)
def test_mistakes_name_the_rule_and_the_key(written: Any, said: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        Rule.model_validate(written)
    assert problems_of(error.value, 3) == said


def test_two_faults_are_a_mistake() -> None:
    with pytest.raises(ValidationError):
        Rule.model_validate({"fault": {"reset_after": 1, "stall_after": 2}})
