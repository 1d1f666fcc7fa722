"""exporters/seldom.py: once in ten seconds."""

from __future__ import annotations

from spangate.exporters.seldom import Seldom


def test_once_in_a_while() -> None:
    now = 100.0
    seldom = Seldom(now=lambda: now)
    assert [seldom.may(), seldom.may()] == [True, False]
    now = 109.9
    assert not seldom.may()
    now = 110.0
    assert [seldom.may(), seldom.may()] == [True, False]
