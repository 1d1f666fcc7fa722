"""Text that goes out in a thread of its own: whoever reads it slowly, or not at all (a full pipe, Ctrl-S), holds nobody up."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread
from typing import TextIO

MOST = 1 << 20  # characters that wait


class Aside:
    """A stream for text, of which `write` never waits. What is too much for those who read is lost; `lost` counts its lines."""

    def __init__(self, out: TextIO, *, most: int = MOST) -> None:
        self.lost = 0
        self._put = _writing(out)
        self._most = most
        self._held = 0
        self._pieces: list[str] = []
        self._changed = Condition()
        self._thread: Thread | None = None

    def write(self, text: str) -> None:
        with self._changed:
            if self._held + len(text) > self._most:
                self.lost += text.count("\n")
                return
            self._held += len(text)
            self._pieces.append(text)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = Thread(target=self._run, name="spangate.aside", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """All of it is on its way; `finish` waits for it."""

    def finish(self, seconds: float = 2.0) -> None:
        """Wait until all is out, for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._pieces))
                text, self._pieces = "".join(self._pieces), []
            lost = 0
            try:
                self._put(text)
            except (OSError, ValueError):  # closed, full or gone
                lost = text.count("\n")
            with self._changed:
                self.lost += lost
                self._held -= len(text)
                self._changed.notify_all()


def _writing(out: TextIO) -> Callable[[str], None]:
    """Around Python's own buffer where there is a file: a thread that waits in it would break the interpreter's end."""

    def to_file(text: str) -> None:
        data = memoryview(text.encode(out.encoding or "utf-8", "backslashreplace"))
        while data:
            data = data[os.write(number, data) :]

    def to_stream(text: str) -> None:
        out.write(text)
        out.flush()

    with suppress(OSError, ValueError, AttributeError):
        number = out.fileno()
        out.flush()
        return to_file
    return to_stream
