"""How a command that must leave nothing behind ends when a signal tells it to: once, whole, and whoever asks again waits for no more."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from .failure import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """While it is entered, the first of SIGNALS does what was said last by `calls`, and any more do nothing: what they would cut short
    is the end. `came` is that first one. After it they stay without effect, else one that comes late would spoil the exit code.

    Handlers of the process rather than the loop's, which takes its own away when it is closed, before files are.
    """

    def __init__(self) -> None:
        self.came: signal.Signals | None = None
        self._calls: Callable[[], object] | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def code(self) -> int:
        """The exit code of what was cut short."""
        return INTERRUPTED if self.came == signal.SIGINT else 128 + signal.SIGTERM

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._signalled) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.came else before)

    def calls(self, what: Callable[[], object]) -> None:
        """On the running loop, once a signal comes; at once if one has come."""
        loop = asyncio.get_running_loop()
        self._calls = lambda: loop.call_soon_threadsafe(what)
        if self.came:
            what()

    def begun(self) -> None:
        """The end has begun, by a signal or not: one that comes from now on does nothing."""
        self._calls = None

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if self.came is None:
            self.came = signal.Signals(number)
            if self._calls is not None:
                self._calls()
