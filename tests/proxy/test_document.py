"""proxy/document.py: YAML as a tree that knows where everything stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.document import MAX_DEPTH, path_text, read


def told(text: str, **environ: str) -> list[str]:
    """The mistakes of a text, as `line:column: path: message`."""
    return [str(mistake).removeprefix("f:") for mistake in read(text, "f", environ).mistakes]


def test_keeps_the_place_of_every_key_and_value() -> None:
    document = read("a:\n  b: [1, {c: x}]\n", "f", {})
    assert document.place(("a", "b"), key=True) == (2, 3)
    assert document.place(("a", "b")) == (2, 6)
    assert document.place(("a", "b", 1, "c")) == (2, 14)
    assert document.place(("a", "nowhere", "at", "all")) == (1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2027-01-31", "2027-01-31"),
        ("true", True),
        ("0o17", "0o17"),
        ("017", 17),
        ("-5", -5),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("1e3", "1e3"),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_reads_scalars_as_yaml_1_2_does(text: str, value: object) -> None:
    assert read(f"a: {text}", "f", {}).plain() == {"a": value}


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("a: 1\nb: 2\na: 3\n", ["3:1: a: stands here twice: first in line 1"]),
        ("x:\n  a: {b: 1, b: 2}\n", ["2:13: x.a.b: stands here twice: first in line 2"]),
        ("1: x\n", ['1:1: the key 1 must be text: write it as "1"']),
        ("a: {true: x}\n", ['1:5: a: the key true must be text: write it as "true"']),
        ("? [a]\n: x\n", ["1:3: a key must be text"]),
        ("a: !!python/object:os.system {}\n", ["1:4: a: tags such as !!str or !include are not used here"]),
        ("a: !include x.yaml\n", ["1:4: a: tags such as !!str or !include are not used here"]),
        ("a: *b\n", ["1:4: a: *b has no anchor &b before it"]),
        ("a: &a {b: *a}\n", ["1:11: a.b: *a has no anchor &a before it"]),
        ("a: 1\n---\nb: 2\n", ["2:1: a second document begins here: a configuration is one document"]),
        ("a: [1, 2\nb: 3\n", ["2:2: is not YAML: expected ',' or ']' while parsing a flow sequence"]),
        ("a:\n\tb: 1\n", ["2:1: is not YAML: found character that cannot start any token; indent with spaces, not tabs"]),
        ("a: {key: ${KEY}}\n", ['1:11: is not YAML: inside {…} and […] write "${NAME}" with quotes']),
        ("a: \x07\n", ["1:4: holds a character that YAML doesn't allow (U+0007)"]),
        ("a: b: c\n", ["1:5: is not YAML: mapping values are not allowed in this context"]),
    ],
)  # fmt: skip
def test_tells_what_is_no_tree_of_names(text: str, mistakes: list[str]) -> None:
    assert told(text) == mistakes


def test_repeats_an_anchored_part() -> None:
    document = read("a: &limits {first: 5s}\nb: *limits\n", "f", {})
    assert document.plain() == {"a": {"first": "5s"}, "b": {"first": "5s"}}


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    (mistake,) = told("\n".join(lines))
    assert mistake.endswith("holds more than 100,000 values, aliases included")


def test_deep_nesting_is_refused() -> None:
    assert told("[" * 200) == [f"1:{MAX_DEPTH + 2}: [0][0][0]: is nested deeper than {MAX_DEPTH} levels"]
    assert told("[" * 100_000) == ["1:1001: is not YAML: exceeded maximum nesting depth while increasing flow level"]
    assert told("\n".join(f"{' ' * n}a:" for n in range(200)))[0].endswith(f"is nested deeper than {MAX_DEPTH} levels")


def test_fills_in_the_environment() -> None:
    document = read('key: "${KEY}"\nat: http://${HOST}:80\nplain: $${HOST} costs $5\n', "f", {"KEY": "k", "HOST": "h"})
    assert document.plain() == {"key": "k", "at": "http://h:80", "plain": "${HOST} costs $5"}
    assert document.written(("at",)) == "http://${HOST}:80"
    assert document.variables == {"KEY": "k", "HOST": "h"}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('a: "${NONE}"', "1:4: a: the environment variable NONE is not set"),
        ('a: "${BLANK}"', "1:4: a: the environment variable BLANK is empty"),
        ('a: "x${NONE}y"', "1:4: a: the environment variable NONE is not set"),
        ('a: "${NO-DASH}"', "1:4: a: a variable is written ${NAME}; write $${ for a plain ${"),
        ('a: "${"', "1:4: a: a variable is written ${NAME}; write $${ for a plain ${"),
    ],
)
def test_tells_which_variable_is_missing(text: str, mistake: str) -> None:
    assert told(text, BLANK="  ") == [mistake]


def test_what_a_variable_holds_is_not_filled_in_again() -> None:
    assert read('a: "${A}"', "f", {"A": "${B}", "B": "b"}).plain() == {"a": "${B}"}


def test_paths_are_written_as_people_point() -> None:
    assert path_text(("teams", "search", "keys", 0, "hash")) == "teams.search.keys[0].hash"
    assert path_text(("models", "gpt-5.5")) == 'models."gpt-5.5"'
    assert path_text(()) == ""


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"#%@`$?, \n\t~1.", max_size=60))
def test_any_text_is_a_document_with_or_without_mistakes(text: str) -> None:
    document = read(text, "f", {})
    for mistake in document.mistakes:
        assert mistake.line >= 1
        assert mistake.column >= 1
        assert "\n" not in str(mistake)
    document.plain()
