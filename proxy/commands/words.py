"""Small words of the commands."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 key`, `2 keys`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
