"""exporters/metrics/model_names.py: the models that have a name on metrics are the operator's; all others are one."""

from __future__ import annotations

from spangate.exporters.metrics.model_names import ANSWERED, TRIED, ModelNames

OTHER = "_other"


def test_configured_names_are_kept() -> None:
    models = ModelNames(["fast", "gpt-5-mini"])
    assert [models.named(name) for name in ("fast", "gpt-5-mini", "gpt-5", "")] == ["fast", "gpt-5-mini", OTHER, ""]


def test_models_of_a_pattern_are_called_as_it() -> None:
    models = ModelNames(["gpt-5"], ["*", "gpt-*", "gpt-5-*"])
    assert models.named("gpt-5") == "gpt-5"
    assert models.named("gpt-5-anything") == "gpt-5-*"
    assert models.named("gpt-4") == "gpt-*"
    assert models.named("claude") == OTHER


def test_a_route_is_an_entry_of_the_configuration() -> None:
    models = ModelNames(["fast"], ["*", "gpt-*"])
    assert [models.route(name) for name in ("fast", "gpt-4", "claude", "")] == ["fast", "gpt-*", "*", ""]
    assert ModelNames(["fast"]).route("claude") == OTHER


def test_a_catalogue_helps_those_who_pass_everything_through() -> None:
    catalogue = {f"known-{number}" for number in range(1000)}
    models = ModelNames([], ["*"], catalogue)
    assert models.named("known-1") == "known-1"
    assert models.named("made up") == OTHER
    named = {models.named(name) for name in catalogue}
    assert len(named) == TRIED + 1
    assert models.named("known-1") == "known-1"


def test_answers_of_a_known_model_bear_a_few_names() -> None:
    models = ModelNames(["gpt-5"], ["*"])
    assert models.answered("gpt-5", "gpt-5") == "gpt-5"
    assert models.answered("gpt-5", "gpt-5-2026-01-01") == "gpt-5-2026-01-01"
    assert models.answered("gpt-5", "") == ""
    assert {models.answered("gpt-5", f"gpt-5-{number}") for number in range(100)} >= {OTHER}
    assert len({models.answered("gpt-5", f"gpt-5-{number}") for number in range(100)}) == ANSWERED
    assert models.answered("gpt-5", "gpt-5-2026-01-01") == "gpt-5-2026-01-01"


def test_answers_of_a_stranger_bear_none() -> None:
    models = ModelNames(["gpt-5"], ["*", "my-*"])
    assert models.answered(OTHER, "whatever was asked") == OTHER
    assert models.answered("my-*", "my-1") == OTHER
    assert models.answered(OTHER, "gpt-5") == "gpt-5"
    assert models.answered("gpt-5", "x" * 10_000) == OTHER


def test_what_strangers_ask_is_not_kept() -> None:
    models = ModelNames(["fast"], ["*"])
    for number in range(5000):
        models.named(f"random-{number}")
    assert len(models._fitting) <= 1024
