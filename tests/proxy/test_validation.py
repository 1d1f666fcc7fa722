"""proxy/validation.py: pydantic's findings in our words. The whole of it: test_config.py."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from spangate.policies.terms import When
from spangate.proxy.document import read
from spangate.proxy.validation import WORDS, known_keys, mistakes_of


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    word: Literal["left", "right"] = "left"
    when: str = ""


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    count: Annotated[int, Field(ge=1, le=5)] = 1
    flag: bool = True
    either: str | list[Inner] = ""
    names: dict[str, Inner] = {}
    code: Annotated[str, Field(max_length=3, pattern="^[a-z]+$")] = "a"

    @field_validator("count")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("Must be odd")
        return value


def told(text: str) -> list[str]:
    document = read(text, "f", {})
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(document.plain())
    return [str(mistake).removeprefix("f:") for mistake in mistakes_of(raised.value, document, Outer.model_json_schema())]


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("count: x", ["1:8: count: must be a whole number"]),
        ("count: 1.5", ["1:8: count: must be a whole number"]),
        ("count: 0", ["1:8: count: must be at least 1"]),
        ("count: 9", ["1:8: count: must be at most 5"]),
        ("count: 2", ["1:8: count: must be odd"]),
        ("flag: maybe", ["1:7: flag: must be true or false"]),
        ("code: 5", ["1:7: code: must be text"]),
        ("code: abcd", ["1:7: code: must have at most 3 characters"]),
        ("code: A", ["1:7: code: must match ^[a-z]+$"]),
        ("names: []", ["1:8: names: must be a mapping of names to values"]),
        ("names: {a: 1}", ["1:12: names.a: must be a mapping such as {key: value}"]),
        ("names: {a: {word: lft}}", ['1:19: names.a.word: "lft" is not one of left, right; did you mean "left"?']),
        ("names: {a: {wrod: left}}", ['1:13: names.a.wrod: unknown key; did you mean "word"?']),
        ("either: [{wrod: left}]", ['1:11: either[0].wrod: unknown key; did you mean "word"?']),
        ("either: [{when: 1}, {word: up}]", ["1:17: either[0].when: must be text", '1:28: either[1].word: "up" is not one of left, right']),
        ('"[key]": 1', ['1:1: "[key]": unknown key; known here: code, count, either, flag, names']),
    ],
)
def test_findings_are_told_in_place_and_in_words(text: str, mistakes: list[str]) -> None:
    assert told(text) == mistakes


def test_alternatives_that_all_fail_are_told_of_one_value() -> None:
    assert told("either: 5") == ["1:9: either: must be text, or a list"]


def test_known_keys_come_from_the_schema() -> None:
    schema = Outer.model_json_schema()
    assert known_keys(schema, ()) == {"count", "flag", "either", "names", "code"}
    assert known_keys(schema, ("names", "any")) == {"word", "when"}
    assert known_keys(schema, ("either", 0)) == {"word", "when"}
    assert known_keys(schema, ("count", "x")) == set()


def test_no_words_of_ours_quote_the_input() -> None:
    assert not any("{input" in words for words in WORDS.values())


class Conditional(BaseModel):
    when: When = "true"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("when: modl == 'a'", ["1:7"]),
        ("when: \"modl == 'a'\"", ["1:8"]),
        ("when: 'team == ''a'' && modl == ''b'''", ["1:25"]),
        ('when: "team == \\"a\\" && modl == \\"b\\""', ["1:25"]),
        ("when: |\n  team == 'a'\n    && modl == 'b'", ["3:8"]),
        ("when: >-\n  team == 'a'\n  && modl == 'b'\n  && usr == 'c'", ["3:6", "4:6"]),
        ("when: team == 'a' &&\n  modl == 'b'", ["2:3"]),
        ('when: \'team == "a" &&\n  modl == "b"\'', ["2:3"]),
        ("{when: stream && modl == 'a' && usr == 'b'}", ["1:18", "1:33"]),
        ("when: modl == '${NAME}'", ["1:7"]),
    ],
)
def test_what_is_wrong_in_a_condition_has_its_place_in_the_file(text: str, places: list[str]) -> None:
    document = read(text, "f", {"NAME": "x"})
    with pytest.raises(ValidationError) as raised:
        Conditional.model_validate(document.plain())
    found = mistakes_of(raised.value, document, Conditional.model_json_schema())
    assert [f"{mistake.line}:{mistake.column}" for mistake in found] == places
    assert {mistake.path for mistake in found} == {"when"}
