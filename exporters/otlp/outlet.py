"""The end of the way out, one for each signal: encoded messages become requests of a size that collectors take, and what became of each
is counted. Everything that is lost is told of here, in one line in ten seconds at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from ..alone import alone
from ..seldom import Seldom
from . import encoding
from .config import Name, Target
from .http import HttpSender, Reason, Result, Sender

log = logging.getLogger("spangate.exporters")

PATIENCE: Final = 5.0  # seconds that a flush waits, and an end lasts
HEAVY: Final = 2 << 20  # bytes of one request; collectors commonly take 4 MiB


class Counts:
    """How many items of each signal were sent, and how many were lost for which reason. One for all signals of a process."""

    def __init__(self) -> None:
        self.sent: dict[Name, int] = {}
        self.dropped: dict[tuple[Name, Reason], int] = {}
        self.last_error = ""
        self._seldom = Seldom()
        self._told = 0
        self._counting = threading.Lock()  # whoever ends an exporter counts beside its thread

    def send(self, name: Name, number: int) -> None:
        self.sent[name] = self.sent.get(name, 0) + number

    def lose(self, name: Name, number: int, reason: Reason, words: str = "") -> None:
        """Count `number` lost items of a signal. `words` say more than the reason does."""
        if not number:
            return
        with self._counting:
            self.dropped[name, reason] = self.dropped.get((name, reason), 0) + number
        self.last_error = f"{name}: {reason}{f' ({words})' if words else ''}"
        if self._seldom.may():
            self.tell()

    def tell(self) -> None:
        """Say how much is lost, if that is more than was said."""
        lost = self.lost
        if lost > self._told:
            self._told = lost
            log.warning("telemetry is lost: %s; %d items by now", self.last_error, lost)

    @property
    def lost(self) -> int:
        """All of it."""
        return sum(list(self.dropped.values()))


class Outlet:
    """One signal's encoded messages, sent to its collector. `start`: its resource and its scope, encoded."""

    def __init__(self, name: Name, sender: Sender, start: tuple[bytes, bytes], batch: int, counts: Counts) -> None:
        self.name = name
        self.sender = sender
        self.counts = counts
        self._start = start
        self._batch = batch
        self._messages: list[bytes] = []
        self._size = 0
        self._held = 0
        self._counting = threading.Lock()

    def add(self, messages: list[bytes]) -> None:
        """Take these, and send a request if there are enough for one."""
        with self._counting:
            self._held += len(messages)
        self._messages += messages
        self._size += sum(map(len, messages))
        while len(self._messages) >= self._batch or self._size >= HEAVY:
            self.send()

    def send(self) -> None:
        """Send the oldest, as many as fit into one request."""
        messages = self._messages[: self._batch]
        if not messages:
            return
        del self._messages[: len(messages)]
        self._size = sum(map(len, self._messages))
        result = alone(self.sender.send, encoding.frame(*self._start, messages))
        if isinstance(result, Exception):
            result = Result("failed", type(result).__name__)
        with self._counting:
            number = min(len(messages), self._held)  # none, if they were given up meanwhile
            self._held -= number
        if result.reason:
            self.counts.lose(self.name, number, result.reason, result.words)
        else:
            rejected = min(result.rejected, number)  # a collector may say what it likes
            self.counts.send(self.name, number - rejected)
            self.counts.lose(self.name, rejected, "rejected", "the collector took the others")

    def give_up(self) -> None:
        """Count what was taken and neither sent nor lost, even what is under way. From any thread; the outlet's own may hang."""
        with self._counting:
            number, self._held = self._held, 0
        self.counts.lose(self.name, number, "failed", "closed")


def end(
    wait: Callable[[float], bool], break_off: Callable[[], None], thread: Callable[[], threading.Thread | None], seconds: float
) -> bool:
    """An exporter's end, within `seconds` altogether: most of them to send what is left, the rest for its thread to count what isn't."""
    until = time.monotonic() + seconds
    done = wait(seconds * 0.9)
    break_off()
    running = thread()
    if running is not None:
        running.join(max(until - time.monotonic(), 0.0))
    return done


def sender_of(target: Target, name: Name) -> Sender:
    """What sends a signal to `target`, whatever its protocol."""
    if target.protocol != "grpc":
        return HttpSender(target)
    from .grpc import GrpcSender

    return GrpcSender(target, name)
