"""How a command fails: one line that says what to do, and an exit code."""

from __future__ import annotations

FAILED, UNUSABLE, INTERRUPTED = 1, 2, 130


class Failure(Exception):
    """A command can't go on. `code` is the exit code: 1 it failed, 2 what it was given can't be used."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def unusable(message: str) -> Failure:
    """What was given can't be used."""
    return Failure(message, UNUSABLE)
