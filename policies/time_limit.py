"""time_limit: how long a provider may take to be reached, to begin, to go on and to end.

One watchdog timer a call, armed only while the call waits for its inside (an `asyncio.timeout` around each pull would cost more
than the pull). When it fires it cancels the task that waits; that cancellation is ours, so it becomes UpstreamTimeout here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..call.amounts import Duration
from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.errors import UpstreamTimeout
from ..call.events import Event

_WORDS = {
    "first": "The provider sent no content within {} seconds.",
    "silence": "The provider fell silent for {} seconds.",
    "total": "The answer took longer than {} seconds.",
}


class TimeLimit(BaseModel):
    """How long a provider may take."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    stage: ClassVar[int] = 80

    connect: Duration = 5.0
    """Until there is a connection: name look-up, TCP and TLS."""
    first: Duration = 120.0
    """Of a stream: until its first content."""
    silence: Duration = 60.0
    """Of a stream: between two pieces of it."""
    total: Duration = 600.0
    """Until the whole answer is here."""

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        watch = Watchdog(loop, total=self.total, first=self.first if call.head.stream else self.total)
        call = call.within(connect=self.connect, deadline=watch.deadline)
        try:
            async with pulling(next(call)) as events:
                watch.waiting()
                async for event in events:
                    watch.busy()
                    yield event
                    watch.patience = self.silence if call.head.stream else self.total
                    watch.waiting()
                watch.busy()
        except asyncio.CancelledError:
            if not watch.claim():
                raise
            call.notes.add("time_limit.reached", limit=watch.limit, seconds=watch.seconds)
            raise UpstreamTimeout(_WORDS[watch.limit].format(f"{watch.seconds:g}"), limit=watch.limit) from None
        finally:
            watch.stop()


class Watchdog:
    """Cancels the waiting task once it has waited longer than `patience`, or past the deadline.

    The timer isn't moved at each piece: it fires when the earliest limit could be due, looks at the clock, and sets itself anew.
    """

    __slots__ = ("_loop", "_since", "_task", "_timer", "_total", "deadline", "fired", "limit", "patience")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, total: float, first: float) -> None:
        now = loop.time()
        self._loop = loop
        self._task = asyncio.current_task()
        self._total = total
        self._since = 0.0
        self.deadline = now + total
        self.patience = first
        self.limit = "first"
        self.fired = False
        self._timer = loop.call_at(min(now + first, self.deadline), self._look)

    @property
    def seconds(self) -> float:
        """The limit that was reached."""
        return self._total if self.limit == "total" else self.patience

    def waiting(self) -> None:
        """From now on the inside is awaited."""
        self._since = self._loop.time()

    def busy(self) -> None:
        """The inside gave something; the outside has its turn, for as long as it likes."""
        if self._since:
            self._since = 0.0
        self.limit = "silence"

    def stop(self) -> None:
        self._timer.cancel()

    def claim(self) -> bool:
        """Whether the cancellation that arrived is ours and nobody else's."""
        if not self.fired or self._task is None:
            return False
        return self._task.uncancel() == 0

    def _look(self) -> None:
        now = self._loop.time()
        if self._since and now >= self.deadline:
            self.limit = "total"
            self._fire()
        elif self._since and now >= self._since + self.patience:
            self._fire()
        else:
            due = min((self._since or now) + self.patience, max(self.deadline, now + 0.001))
            self._timer = self._loop.call_at(max(due, now + 0.001), self._look)

    def _fire(self) -> None:
        self.fired = True
        if self._task is not None:
            self._task.cancel()
