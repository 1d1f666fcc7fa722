"""Answers of providers are read with distrust: ends, content, errors, words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.answers import MAX_MESSAGE, error_in, finish_of, has_content, provider_error, safe_text

ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@pytest.mark.parametrize(("said", "finish"), [("stop", "stop"), ("", None), (None, None), (5, None), (["stop"], None)])
def test_an_empty_finish_reason_is_none(said: Any, finish: str | None) -> None:
    assert finish_of({"finish_reason": said}) == finish
    assert finish_of({}) is None


@pytest.mark.parametrize(
    "choice",
    [
        {"delta": {"content": "a"}},
        {"delta": {"role": "assistant", "content": "a"}},
        {"delta": {"reasoning_content": "hm"}},
        {"delta": {"reasoning": "hm"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"delta": {"refusal": "no"}},
        {"delta": {"audio": {"data": "UklG"}}},
        {"delta": {"images": [{}]}},
        {"delta": {}, "finish_reason": "stop"},
        {"finish_reason": "length"},
        {"text": "a"},
    ],
)
def test_content(choice: dict[str, Any]) -> None:
    assert has_content(choice)


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"delta": {}},
        {"delta": None},
        {"delta": "a"},
        {"delta": {"role": "assistant"}},
        {"delta": {"role": "assistant", "content": "", "refusal": None, "tool_calls": []}},
        {"delta": {"content": None}, "finish_reason": ""},
        {"text": ""},
    ],
)
def test_no_content(choice: dict[str, Any]) -> None:
    assert not has_content(choice)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"error": {"message": "quota"}}, {"message": "quota"}),
        ({"error": "quota"}, "quota"),
        ({"object": "error", "message": "quota"}, {"object": "error", "message": "quota"}),
        ({"error": None}, None),
        ({"error": {}}, None),
        ({"object": "chat.completion"}, None),
    ],
)
def test_where_an_answer_carries_its_error(answer: dict[str, Any], error: Any) -> None:
    assert (error_in(answer) or None) == error


def test_a_providers_error_keeps_its_four_words() -> None:
    error = provider_error(
        {"message": "Too long", "type": "invalid_request_error", "code": "context_length_exceeded", "param": "messages"}, 400, {"a": "b"}
    )
    assert (error.message, error.kind, error.own_code, error.param) == (
        "Too long",
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
    )
    assert (error.status, error.headers, error.retryable) == (400, {"a": "b"}, False)


@pytest.mark.parametrize(
    ("said", "status", "message"),
    [
        ("plain words", 400, "plain words"),
        ("plain words", 429, "plain words"),
        ("plain words, and the prompt", 500, "The provider answered with status 500."),
        ({"message": "quota", "type": "insufficient_quota", "code": None}, None, "quota"),
        (None, 503, "The provider answered with status 503."),
        ({"message": ["a", "b"]}, 422, "The provider answered with status 422."),
        ({"message": ""}, None, "The provider reported an error."),
        (True, None, "The provider reported an error."),
        ([{"msg": "x"}], 400, "The provider answered with status 400."),
        ("<html><head><title>413</title></head><body>\n<h1>Too Large</h1>", 413, "413 Too Large"),
    ],
)
def test_any_error_has_a_message(said: Any, status: int | None, message: str) -> None:
    assert provider_error(said, status).message == message


def test_words_that_are_not_the_callers_go_to_the_log() -> None:
    fault = provider_error("<b>plain</b> words, and the prompt", 500)
    assert (fault.message, fault.detail) == ("The provider answered with status 500.", "plain words, and the prompt")


@pytest.mark.parametrize(
    ("code", "own"), [("x", "x"), (429, 429), (None, None), ("", None), (True, None), (1.5, None), ({}, None), ("y" * 300, "y" * 200)]
)
def test_a_code_is_a_word_or_a_number(code: Any, own: Any) -> None:
    assert provider_error({"message": "m", "code": code}).own_code == own


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(None, True), (408, True), (409, True), (429, True), (500, True), (529, True), (400, False), (401, False), (404, False)],
)
def test_what_another_try_may_mend(status: int | None, retryable: bool) -> None:
    assert provider_error("m", status).retryable is retryable


@given(st.dictionaries(st.sampled_from(["message", "type", "code", "param"]), ODD) | ODD)
def test_no_error_of_a_provider_is_too_odd(said: Any) -> None:
    error = provider_error(said, 400)
    assert error.message
    assert all(word is None or (isinstance(word, str) and 0 < len(word) <= 200) for word in (error.kind, error.param))


# Words


TAG = re.compile(r"<[^<>]*>")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@pytest.mark.parametrize(
    ("said", "safe"),
    [
        ("as it is", "as it is"),
        ("  a\r\n\tb\x00\x1b[31m  ", "a b [31m"),
        ("a\u2028b\u2029c\u0085d\x9fe", "a b c d e"),
        ("lone \ud83d!", "lone !"),
        ("<p>Hello<br/>there</p>", "Hello there"),
        ("<script>alert(1)</script>", "alert(1)"),
        ("<<b>script>", "script>"),
        ("if a < b and c", "if a < b and c"),
        ("<a" + " " * 600 + "href=x>", ""),
        ("é日🙂", "é日🙂"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 499 + "…"),
        (None, ""),
        (5, ""),
    ],
)
def test_safe_text(said: Any, safe: str) -> None:
    assert safe_text(said) == safe


PIECES = st.lists(
    st.sampled_from(["<", ">", "</a>", "<a b='", "'", "x" * 300, " " * 300, "\n", "\x00", "\x85", "\u2028", "\ud83d", "é", "<b>"])
)


@given(PIECES.map("".join) | st.text())
def test_safe_text_is_one_short_line_without_markup(said: str) -> None:
    safe = safe_text(said)
    assert len(safe) <= MAX_MESSAGE == 500
    assert not TAG.search(safe)
    assert not CONTROL.search(safe)
    assert safe == safe.strip()
    assert safe.encode().decode() == safe


def test_a_page_is_not_read_to_its_end() -> None:
    assert safe_text("<pp>" * 2400 + "soon") == "soon"
    assert safe_text("<pp>" * 2500 + "late") == ""
