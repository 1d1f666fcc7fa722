"""The tree of errors says who erred, what a caller may read, and whether to try again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spangate.call import errors
from spangate.call.errors import (
    CallerFault,
    OurFault,
    ProviderFault,
    Refused,
    SpangateError,
    UpstreamError,
    UpstreamIncomplete,
    UpstreamTimeout,
    UpstreamUnreachable,
    may_have_worked,
    model_not_found,
    shortened,
)


def drawn() -> dict[str, int]:
    """The tree at the top of the module: each name, and the column in which it stands."""
    named = [re.search(r"[A-Z]\w+", line) for line in (errors.__doc__ or "").splitlines() if "──" in line or "SpangateError" in line]
    return {match[0]: match.start() for match in named if match}


def test_the_drawn_tree_is_the_tree() -> None:
    def below(kind: type[SpangateError]) -> set[type[SpangateError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__() if each.__module__ == errors.__name__))

    assert set(drawn()) == {kind.__name__ for kind in below(SpangateError)}
    depths = {name: len(getattr(errors, name).__mro__) for name in drawn()}
    assert sorted(drawn(), key=lambda name: drawn()[name]) == sorted(depths, key=lambda name: depths[name])


@pytest.mark.parametrize(
    ("error", "code", "source"),
    [
        (Refused("no"), "invalid_api_key", "gateway"),
        (Refused("no", code="budget_exceeded"), "budget_exceeded", "gateway"),
        (CallerFault("what"), "invalid_request", "gateway"),
        (OurFault("oh"), "internal_error", "gateway"),
        (ProviderFault("they"), "upstream_error", "provider"),
        (UpstreamUnreachable("they"), "upstream_unreachable", "provider"),
        (UpstreamTimeout("they", limit="first"), "upstream_timeout", "provider"),
        (UpstreamIncomplete("they"), "upstream_incomplete", "provider"),
        (UpstreamError("they"), "upstream_error", "provider"),
    ],
)
def test_each_error_has_its_word_and_says_whose_it_is(error: SpangateError, code: str, source: str) -> None:
    assert (error.code, error.source) == (code, source)
    assert str(error) == error.message
    assert (error.param, error.headers, error.facts, error.detail) == (None, {}, {}, "")


def test_an_error_keeps_its_own_copy_of_what_it_carries() -> None:
    headers, facts = {"retry-after": "2"}, {"limit": {"used": 5}}
    error = Refused("no", param="model", headers=headers, facts=facts, detail="for the log")
    headers.clear()
    facts.clear()
    assert (error.param, error.headers, error.facts, error.detail) == ("model", {"retry-after": "2"}, {"limit": {"used": 5}}, "for the log")


def test_a_timeout_names_its_limit_and_a_providers_error_its_words() -> None:
    assert UpstreamTimeout("slow", limit="silence", detail="60 s").limit == "silence"
    error = UpstreamError("bad", status=400, kind="invalid_request_error", own_code="x", retryable=False)
    assert (error.status, error.kind, error.own_code, error.retryable) == (400, "invalid_request_error", "x", False)


@pytest.mark.parametrize(
    "error", [UpstreamUnreachable("a"), UpstreamIncomplete("b"), UpstreamTimeout("c", limit="total"), UpstreamError("d")]
)
def test_another_try_may_go_well_unless_the_provider_said_otherwise(error: ProviderFault) -> None:
    assert error.retryable


# A model that a key may not use


def test_unknown_and_forbidden_are_told_in_the_same_words() -> None:
    """Who asks for `secret` can't learn whether it exists: the words follow from the name and from what the key may use."""
    refusal = model_not_found("secret", ["gpt-mini"])
    assert (refusal.code, refusal.param) == ("model_not_found", "model")
    assert refusal.message.replace("secret", "nosuch") == model_not_found("nosuch", ["gpt-mini"]).message


@pytest.mark.parametrize(
    ("asked", "allowed", "message"),
    [
        ("gpt-5-mni", ["gpt-5-mini", "claude"], "… Did you mean 'gpt-5-mini'? It may use: claude, gpt-5-mini."),
        ("zzz", ["gpt-5-mini"], "… It may use: gpt-5-mini."),
        ("zzz", [], "…"),
        ("zzz", ["gpt-*"], "…"),
        ("zzz", [f"m{number:02}" for number in range(12)], "… It may use: m00, m01, m02, m03, m04, m05, m06, m07, m08, m09, …."),
        ("\ud83d\n", ["a"], "… It may use: a."),
    ],
)
def test_what_a_key_may_use_is_said(asked: str, allowed: list[str], message: str) -> None:
    said = model_not_found(asked, allowed).message
    assert said == message.replace("…", f"The model {asked!r} is not one that this key may use.", 1)
    assert said.isprintable()


def test_a_very_long_name_is_cut() -> None:
    said: Any = model_not_found("x" * 100_000, ["a"]).message
    assert len(said) < 200
    assert "x" * 61 + "...'" in said


@pytest.mark.parametrize(
    ("fault", "worked"),
    [
        (UpstreamUnreachable("x"), False),
        (UpstreamTimeout("x", limit="connect"), False),
        (UpstreamTimeout("x", limit="first"), True),
        (UpstreamError("x", status=500), False),
        (UpstreamIncomplete("x"), True),
    ],
)
def test_who_may_have_used_tokens(fault: ProviderFault, worked: bool) -> None:
    assert may_have_worked(fault) is worked


@pytest.mark.parametrize(("name", "shown"), [("m" * 64, "m" * 64), ("m" * 65, "m" * 61 + "...")])
def test_a_name_is_shown_as_far_as_there_is_room(name: str, shown: str) -> None:
    assert shortened(name) == shown
