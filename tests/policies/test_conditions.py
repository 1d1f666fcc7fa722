"""policies/conditions.py: CEL over a call, checked before it is used."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Labels
from spangate.policies.conditions import LONGEST, Condition, ConditionFailed, ConditionMistakes

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAgAAAAIACAIAAAB7GkOt"
BODY: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "what is this"}, {"type": "image_url", "image_url": {"url": PNG}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "get_weather"}}, {"type": "web_search"}],
}


def call(body: dict[str, Any] | None = None, **changes: Any) -> Call:
    given: dict[str, Any] = {
        "op": "chat",
        "model": "gpt-5",
        "body": Body.of(BODY if body is None else body),
        "head": Head(stream=True),
        "caller": Caller(team="search", key="ci", user="ann"),
        "labels": Labels(tags={"env": "prod"}),
    }
    return Call(**given | changes)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("true", True),
        ("model == 'gpt-5'", True),
        ("model.startsWith('gpt-') && team != 'search'", False),
        ('team == "search" || user == "bob"', True),
        ("key == 'ci' && user == 'ann'", True),
        ("tags.env == 'prod'", True),
        ("tags['env'] == 'test'", False),
        ("'team' in tags", False),
        ("has(tags.team) && tags.team == 'x'", False),
        ("op == 'chat' && stream", True),
        ("'get_weather' in tools && tools.exists(t, t.startsWith('web'))", True),
        ("size(tools) > 2", False),
        ("images == 1", True),
        ("input_tokens > 100 && input_tokens < 500", True),
        ("bytes > 100", True),
        ("size(bytes('abc')) == 3 && 'bytes' != tags.env && bytes < 100000", True),
        ("r'\\bytes' != '' // bytes and modl\n && !stream", False),
        ("model.matches('^gpt-[0-9]$')", True),
        ("tags.exists(key, tags[key] == 'prod')", True),
    ],
)
def test_what_holds(condition: str, holds: bool) -> None:
    assert Condition.of(condition)(call()) is holds


def test_only_what_it_names_is_looked_for() -> None:
    unreadable = call({"messages": [], "tools": {}})
    assert Condition.of("model == 'gpt-5'")(unreadable)
    with pytest.raises(ConditionFailed):
        Condition.of("size(tools) > 0")(unreadable)


def test_a_body_that_was_changed_has_a_size_too() -> None:
    before = call()
    after = before.with_body(before.body.changed(model="x" * 1000))
    size = len(b"".join(after.body.pieces()))
    assert Condition.of(f"bytes == {size}")(after)


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("modl == 'a'", ['1:1: nothing is called "modl"; did you mean "model"?']),
        ("team == 'x' || usr == 'y'", ['1:16: nothing is called "usr"; did you mean "user"?']),
        ("stream &&\n  tool == 'y'", ['2:3: nothing is called "tool"; did you mean "tools"?']),
        ("'日本' == modl", ['1:9: nothing is called "modl"; did you mean "model"?']),
        (
            "zz",
            ['1:1: nothing is called "zz"; there are model, team, key, user, tags, op, stream, tools, input_tokens, bytes and images'],
        ),
        ("model.mathes('x')", ['1:7: nothing is called "mathes"; did you mean "matches"?']),
        ("qqqq(1) == 2", ['1:1: there is no function "qqqq"']),
        ("model = 'a'", ['1:7: is not CEL: equality is written "=="']),
        ("stream and true", ['1:8: is not CEL: "and" is written "&&"']),
        ("stream or true", ['1:8: is not CEL: "or" is written "||"']),
        ("not stream", ['1:5: is not CEL: "not" is written "!"']),
        ('model == "a', ["1:10: is not CEL: a quote has no end"]),
        ("tags['a'", ["1:9: is not CEL: it ends too soon"]),
        ("1 +", ["1:4: is not CEL: it ends too soon"]),
        ("input_tokens > 'a'", ['1:14: ">" doesn\'t go with int and string']),
        (
            "bytes == 'a' && modl == 'x'",
            ['1:7: "==" doesn\'t go with int and string', '1:17: nothing is called "modl"; did you mean "model"?'],
        ),
        ("!model", ['1:1: "!" doesn\'t go with string']),
        ("has(model)", ["1:5: is not CEL: has() argument must be a field selection"]),
        ("input_tokens", ["1:1: must be true or false, and this is an int"]),
        ("bytes", ["1:1: must be true or false, and this is an int"]),
        ("model + team", ["1:1: must be true or false, and this is a string"]),
        ("  ", ["1:1: is empty; leave it out for every call"]),
        ("Bytes > 1", ['1:1: nothing is called "Bytes"; did you mean "bytes"?']),
        (".team == 't'", ['1:1: a name begins without "."']),
        ("stream || 'a' in // list\n  .tools", ['2:3: a name begins without "."']),
        ("model.matches('(')", ["1:15: is no pattern that can be looked for"]),
        ("stream && matches(model, r'a(?=b)')", ["1:26: is no pattern that can be looked for"]),
        ("tools.all(t, t.matches ( 'a{2000}'))", ["1:26: is no pattern that can be looked for"]),
        ("true || " * LONGEST, [f"1:1: is longer than {LONGEST} characters"]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(condition: str, told: list[str]) -> None:
    with pytest.raises(ConditionMistakes) as raised:
        Condition.of(condition)
    assert [f"{line}:{column}: {message}" for line, column, message in raised.value.mistakes] == told
    assert str(raised.value) == "; ".join(told)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("tags.team == 'x'", "NOT_FOUND"),
        ("model.matches('(a' + team)", "INVALID_ARGUMENT"),
        ("int(model) > 1", "INVALID_ARGUMENT"),
        ("dyn(model)", "INVALID_ARGUMENT"),
        ("10 / (images - 1) > 1", "INVALID_ARGUMENT"),
    ],
)
def test_what_can_not_be_said_fails_without_a_value(condition: str, kind: str) -> None:
    with pytest.raises(ConditionFailed) as raised:
        Condition.of(condition)(call())
    assert str(raised.value) == raised.value.kind == kind


def test_a_text_that_no_encoding_knows_fails() -> None:
    with pytest.raises(ConditionFailed):
        Condition.of("model == 'a'")(call(model="\ud800"))


def test_a_walk_over_everything_ends() -> None:
    many = call({"messages": [], "tools": [{"type": "function", "function": {"name": f"t{n}"}} for n in range(1000)]})
    with pytest.raises(ConditionFailed):
        Condition.of("tools.exists(a, tools.exists(b, a + b == ''))")(many)


def test_one_text_is_compiled_once() -> None:
    assert Condition.of("team == 'once'") is Condition.of("team == 'once'")
    assert repr(Condition.of("team == 'once'")) == "Condition(\"team == 'once'\")"
