"""Small words."""

from __future__ import annotations

from spangate.proxy.commands.words import count


def test_count_speaks_english() -> None:
    assert [count(number, "key") for number in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]
