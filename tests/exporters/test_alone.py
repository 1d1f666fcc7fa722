"""exporters/alone.py: what fails, fails alone."""

from __future__ import annotations

import pytest

from spangate.exporters.alone import alone


def test_a_value_or_an_error() -> None:
    assert alone(int, "12") == 12
    assert alone(int, "0x10", base=16) == 16
    assert isinstance(alone(int, "x"), ValueError)


def test_what_ends_a_program_is_no_failure() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alone(stop)
