"""Log lines: one a record, whatever is in it."""

from __future__ import annotations

import logging
import sys

from spangate.proxy.commands.logs import OneLine


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("spangate.proxy", logging.ERROR, __file__, 1, message, (), info)


def failed() -> ValueError:
    try:
        int("a\nb")
    except ValueError as error:
        return error
    raise AssertionError


def test_a_record_is_a_time_a_level_and_a_message() -> None:
    line = OneLine().format(record("the port\nis\r\ntaken"))
    assert line[19:] == " ERROR the port | is | taken"


def test_an_error_comes_with_its_place_on_the_same_line() -> None:
    line = OneLine().format(record("req_1 failed", failed()))
    place = f"{__file__}:{failed.__code__.co_firstlineno + 2}"
    assert line[19:] == rf" ERROR req_1 failed | ValueError: invalid literal for int() with base 10: 'a\nb' ({place})"


def test_with_traces_the_way_there_comes_too() -> None:
    line = OneLine(traces=True).format(record("req_1 failed", failed()))
    assert "Traceback (most recent call last): | File " in line
    assert "\n" not in line
    assert sys.exception() is None
