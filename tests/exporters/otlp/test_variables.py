"""exporters/otlp/variables.py: OTEL_* variables, whatever they hold."""

from __future__ import annotations

import pytest

from spangate.exporters.otlp.variables import Variables


def test_an_empty_one_is_not_set() -> None:
    variables = Variables({"A": "", "B": "  ", "C": " c "})
    assert variables.text("A", "B", "C") == "c"
    assert variables.text("A", default="d") == "d"
    assert variables.told == []


@pytest.mark.parametrize("text", ["x", "-1", "0", "nan", "inf", "1e999"])
def test_a_time_that_is_none(text: str) -> None:
    variables = Variables({"A": text})
    assert variables.seconds("B", "A", default=10.0) == 10.0
    assert variables.told == ["A can't be used: 10 s it is"]


def test_times_in_milliseconds() -> None:
    assert Variables({"A": "250"}).seconds("A", default=1.0, unit=0.001) == 0.25


@pytest.mark.parametrize(("text", "count"), [("", 5), ("0", 0), ("12", 12), ("-1", 5), ("x", 5), ("٣", 5), ("9" * 10, 5)])
def test_counts(text: str, count: int) -> None:
    variables = Variables({"A": text})
    assert variables.count("A", default=5, least=0) == count
    assert bool(variables.told) == (bool(text) and count == 5)


def test_a_count_may_have_to_be_one_at_least() -> None:
    variables = Variables({"A": "0"})
    assert variables.count("A", default=7) == 7
    assert variables.told


def test_words() -> None:
    variables = Variables({"A": "otlp, zipkin ,CONSOLE,otlp", "B": "none"})
    known = {"otlp": "otlp", "console": "console"}
    assert variables.words("A", "", known) == ["otlp", "console"]
    assert variables.words("B", "otlp", known) == []
    assert variables.words("C", "otlp", known) == ["otlp"]
    assert variables.told == ["A must be of otlp, console: 1 of its words is left out"]


def test_one_word() -> None:
    variables = Variables({"A": "GZIP", "B": "brotli"})
    assert variables.word("A", ["none", "gzip"]) == "gzip"
    assert variables.word("C", ["none", "gzip"], "B") == "none"
    assert variables.told == ["B must be one of none, gzip: none it is"]


@pytest.mark.parametrize(("text", "true"), [("true", True), (" TRUE ", True), ("1", False), ("", False)])
def test_truth_is_one_word(text: str, true: bool) -> None:
    assert Variables({"A": text}).true("A") == true


def test_headers_of_the_first_that_is_set() -> None:
    variables = Variables({"A": " ", "B": "X-Team=a%2Cb, plain=Bearer 100%25 ,empty=", "C": "no"})
    assert variables.headers("A", "B", "C") == {"x-team": "a,b", "plain": "Bearer 100%25", "empty": ""}
    assert variables.headers("A") == {}
    with pytest.raises(ValueError, match=r"^C: must be headers such as "):
        variables.headers("A", "C")


def test_no_text_is_repeated() -> None:
    """A key may have been pasted into any of them."""
    key = "sk-CANARY-0123456789"
    variables = Variables({"A": key})
    variables.words("A", "", {"otlp": "otlp"})
    variables.word("A", ["none", "gzip"])
    variables.seconds("A", default=1.0)
    variables.count("A", default=1)
    assert len(variables.told) == 4
    assert [told for told in variables.told if not told.startswith("A") or key.lower() in told.lower()] == []
