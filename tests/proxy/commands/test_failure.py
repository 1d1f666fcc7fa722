"""Failures carry their exit code."""

from __future__ import annotations

from spangate.proxy.commands.failure import Failure, unusable


def test_a_failure_is_1_and_unusable_input_is_2() -> None:
    assert (Failure("no").code, unusable("no").code) == (1, 2)
    assert str(unusable("why")) == unusable("why").message == "why"
