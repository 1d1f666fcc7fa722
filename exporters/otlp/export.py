"""Calls' spans and log events on their way out: made and encoded some at a time, on the loop, and sent in a thread, which also encodes
what is left when few calls come.

Sends of at most `batch` spans. A collector that is dead, slow or mute costs telemetry, never a call: what waits is bounded and its
oldest goes first, everything lost is counted by reason, and a line in ten seconds says so.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from random import getrandbits
from typing import Final, NamedTuple

from ...call.seen import Seen
from .. import semconv
from ..alone import alone
from ..gathered import TOGETHER, Gathered
from ..pace import Pace
from ..record import INTERNAL, Resource, Span
from ..traces.spans import logs_of, spans_of
from . import encoding
from .config import Name, OtlpConfig, Target
from .http import Reason, Result
from .outlet import PATIENCE, Counts, Outlet, end, sender_of
from .printed import Printed

WAKE: Final = 160  # calls that are not left until the next round
NEVER: Final = 2**63  # calls: what is printed is not told of on the loop, which a terminal would hold up


class Told(NamedTuple):
    """One call, encoded."""

    spans: list[bytes]
    logs: list[bytes]


class Exporting:
    """The Recorder that sends. `counts` and `waiting` may be read from anywhere."""

    def __init__(self, config: OtlpConfig, resource: Resource) -> None:
        self.config = config
        self.counts = Counts()
        self._encoder = encoding.Encoder(config.limits)
        start = self._encoder.resource(resource), self._encoder.scope(encoding.GATEWAY)
        self.traces = self._outlet("traces", config.traces.target, start)
        self.logs = self._outlet("logs", config.logs.target, start)
        self._printed = Printed()
        self._printing = config.traces.console or config.logs.console
        self._gathered: Gathered[tuple[Seen, bool]] = Gathered(self._tell, together=NEVER if self._printing else TOGETHER)
        self._told: deque[Told] = deque()
        self._enough = min(WAKE, max(config.queue // 2, 1))
        self._pace = Pace()
        self._wake = threading.Event()
        self._asked: deque[threading.Event] = deque()
        self._thread: threading.Thread | None = None
        self._ended = False

    @property
    def waiting(self) -> int:
        """Calls that are not sent yet."""
        return len(self._gathered) + len(self._told)

    def record(self, seen: Seen) -> None:
        sampled = self.config.sampling.keeps(seen)
        if not sampled and not len(seen.notes):
            return
        if self._ended:
            self._lose(seen, sampled, "failed", "closed")
            return
        if self.waiting >= self.config.queue:
            self._push_out()
        self._gathered.add((seen, sampled))
        if self.waiting >= self._enough and not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._begin()

    def flush(self) -> None:
        self.wait()

    def wait(self, timeout: float = PATIENCE) -> bool:
        """Wait until all that was recorded is sent or lost, `timeout` seconds at most; whether it is. Not on a loop."""
        if self._thread is None or not self._thread.is_alive():
            return not self.waiting
        done = threading.Event()
        self._asked.append(done)
        self._wake.set()
        return done.wait(timeout)

    def close(self, timeout: float = PATIENCE) -> bool:
        """Flush, then end the thread and what is under way, within `timeout` seconds altogether. What is left is lost, and counted."""
        flushed = end(self.wait, self._break_off, lambda: self._thread, timeout)
        self._lose_waiting()
        for outlet in self._outlets:
            outlet.give_up()
        self.counts.tell()
        return flushed

    @property
    def _outlets(self) -> list[Outlet]:
        return [outlet for outlet in (self.traces, self.logs) if outlet is not None]

    def _break_off(self) -> None:
        self._ended = True
        for outlet in self._outlets:
            outlet.sender.close()
        self._wake.set()

    def _lose_waiting(self) -> None:
        """What nobody will send. The thread may take from it to the last, if it hangs."""
        while self.waiting:
            self._push_out("failed", "closed")

    def _outlet(self, name: Name, target: Target | None, start: tuple[bytes, bytes]) -> Outlet | None:
        return None if target is None else Outlet(name, sender_of(target, name), start, self.config.batch, self.counts)

    def _push_out(self, reason: Reason = "queue_full", words: str = "") -> None:
        try:
            told = self._told.popleft()
        except IndexError:
            if (oldest := self._gathered.push_out()) is not None:
                self._lose(*oldest, reason, words)
            return
        self.counts.lose("traces", len(told.spans), reason, words)
        self.counts.lose("logs", len(told.logs), reason, words)

    def _lose(self, seen: Seen, sampled: bool, reason: Reason, words: str = "") -> None:
        """A call that won't be told of."""
        if sampled and self.traces is not None:
            self.counts.lose("traces", 1 + len(seen.attempts) * (2 if self.config.http_spans else 1), reason, words)
        if self.logs is not None and (len(seen.notes) or seen.outcome == "failed"):
            self.counts.lose("logs", 1, reason, words)

    # ---- the thread

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="spangate.export", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic() + self.config.delay
        while not self._ended:
            self._wake.wait(max(due - time.monotonic(), 0.0))
            self._wake.clear()
            asked = len(self._asked)
            self._hand_over(all=self._printing or asked > 0 or time.monotonic() >= due)
            if time.monotonic() >= due:
                due = time.monotonic() + self.config.delay
            for _ in range(asked):
                self._asked.popleft().set()

    def _hand_over(self, *, all: bool) -> None:
        """Send what is told of by now, as far as it fills requests; or all that waits."""
        if all:
            self._gathered.catch_up(self._pace.rest)
        while self._told and not self._ended:
            try:
                told = self._told.popleft()
            except IndexError:  # pushed out
                break
            for outlet, messages in zip((self.traces, self.logs), told, strict=True):
                if outlet is not None:
                    outlet.add(messages)
        if all:
            for outlet in self._outlets:
                outlet.send()

    # ---- the loop, or the thread while the loop tells of nothing

    def _tell(self, call: tuple[Seen, bool]) -> None:
        """One call: all of its spans and log events, or none."""
        told = alone(self._encoded, *call)
        if isinstance(told, Told):
            self._told.append(told)
        else:
            self._lose(*call, "invalid", type(told).__name__)

    def _encoded(self, seen: Seen, sampled: bool) -> Told:
        config = self.config
        spans = spans_of(seen, http_spans=config.http_spans) if sampled and config.traces else []
        logs = logs_of(seen, sampled=sampled) if config.logs else []
        if self._printing:
            self._printed.print([*(spans if config.traces.console else ()), *(logs if config.logs.console else ())])
        return Told(list(map(self._encoder.span, spans)), list(map(self._encoder.log, logs)))


def exporting(config: OtlpConfig, resource: Callable[[], Resource] = encoding.detected_resource) -> Exporting | None:
    """The recorder for a configuration; None where neither spans nor log events go anywhere."""
    return Exporting(config, resource()) if config.traces or config.logs else None


def probe_request(resource: Resource) -> bytes:
    """A whole request with one small span, which says that it only wants to arrive."""
    encoder = encoding.Encoder()
    now = time.time_ns()
    span = Span(getrandbits(128) or 1, getrandbits(64) or 1, semconv.SPAN_PROBE, INTERNAL, now, now)
    return encoding.frame(encoder.resource(resource), encoder.scope(encoding.GATEWAY), [encoder.span(span)])


def probe(config: OtlpConfig, resource: Callable[[], Resource] = encoding.detected_resource) -> Result | None:
    """Send one small span now, and say what became of it; None where spans go nowhere. It may take as long as the target's time limit."""
    target = config.traces.target
    if target is None:
        return None
    sender = sender_of(target, "traces")
    try:
        return sender.send(probe_request(resource()))
    finally:
        sender.close()
