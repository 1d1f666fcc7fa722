"""The words that options take."""

from __future__ import annotations

import logging

import pytest

from spangate.proxy.commands.choices import Format, Level


@pytest.mark.parametrize("level", Level)
def test_a_level_is_one_of_logging(level: Level) -> None:
    assert level.upper() in logging.getLevelNamesMapping()


def test_formats_are_words() -> None:
    assert [str(shape) for shape in Format] == ["text", "json", "github", "sarif"]
