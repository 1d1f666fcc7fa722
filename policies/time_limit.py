"""time_limit: how long a provider may take to be reached, to begin, to go on and to end.

One watchdog timer a call, which counts only while the call waits for its inside (an `asyncio.timeout` around each pull would cost
more than the pull). When it fires it cancels the task that waits, with the fault as the reason; that cancellation is ours, so it
becomes the fault here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..call.amounts import Duration
from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.errors import UpstreamTimeout
from ..call.events import Event

Limit = Annotated[Duration, Field(gt=0)]
LATE = 0.1  # seconds between two looks at a call that is past its deadline while its caller takes its time

_WORDS = {
    "first": "The provider sent no content within {:g} seconds.",
    "silence": "The provider fell silent for {:g} seconds.",
    "total": "The answer took longer than {:g} seconds.",
}


class TimeLimit(BaseModel):
    """How long a provider may take."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    stage: ClassVar[int] = 80

    connect: Limit = 5.0
    """Until there is a connection: name look-up, TCP and TLS."""
    first: Limit = 120.0
    """Of a stream: until its first content."""
    silence: Limit = 60.0
    """Of a stream: between two pieces of it."""
    total: Limit = 600.0
    """Until the whole answer is here."""

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        stream = call.head.stream
        loop = asyncio.get_running_loop()
        clock, task = loop.time, asyncio.current_task
        watch = Watchdog(
            total=self.total,
            first=self.first if stream else self.total,
            silence=self.silence if stream else self.total,
        )
        call = call.within(connect=self.connect, deadline=watch.deadline, begun=watch.begun)
        try:
            async with pulling(next(call)) as events:
                watch.since = clock()  # the watchdog knows the task that it was made in
                async for event in events:
                    watch.since = 0.0
                    if watch.limit == "first":
                        watch.go_on()
                    yield event
                    watch.since, watch.task = clock(), task(loop)  # an agent's answer may be read by another
                watch.since = 0.0
        except asyncio.CancelledError:
            fault = watch.claim()
            if fault is None:
                raise
            call.notes.add("time_limit.reached", limit=fault.limit, seconds=getattr(self, fault.limit))
            raise fault from None
        finally:
            watch.stop()


class Watchdog:
    """Cancels the waiting task once it has waited longer than it may, or past the deadline.

    The timer isn't moved at each piece: it fires when the earliest limit could be due, looks at the clock, and sets itself anew.
    `since` is when the inside began to be awaited, by `task`; 0 while the outside has its turn, which may take as long as it likes.
    """

    __slots__ = ("_fault", "_loop", "_patience", "_silence", "_timer", "_total", "begun", "deadline", "limit", "since", "task")

    def __init__(self, *, total: float, first: float, silence: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.current_task()
        self._total = total
        self._silence = silence
        self.limit = "first"
        self._patience = first
        self.since = 0.0
        self._fault: UpstreamTimeout | None = None
        now = self._loop.time()
        self.deadline = now + total
        self.begun = now + min(first, total)
        self._timer = self._loop.call_at(self.begun, self._look)

    def go_on(self) -> None:
        """The answer has begun: from now on silence is what is watched for."""
        sooner = self._silence < self._patience
        self.limit, self._patience = "silence", self._silence
        if sooner:
            self._timer.cancel()
            self._timer = self._armed(self._loop.time())

    def stop(self) -> None:
        self._timer.cancel()

    def claim(self) -> UpstreamTimeout | None:
        """The fault, if the cancellation that arrived is ours and nobody else's."""
        ours = self._fault is not None and self.task is not None and self.task.uncancel() == 0
        return self._fault if ours else None

    def _armed(self, now: float) -> asyncio.TimerHandle:
        due = (self.since or now) + self._patience
        due = min(due, self.deadline if now < self.deadline else now + LATE)
        return self._loop.call_at(max(due, now + 0.001), self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self.since and now >= self.deadline:
            self._fire("total", self._total)
        elif self.since and now >= self.since + self._patience:
            self._fire(self.limit, self._patience)
        else:
            self._timer = self._armed(now)

    def _fire(self, limit: str, seconds: float) -> None:
        self._fault = UpstreamTimeout(_WORDS[limit].format(seconds), limit=limit)
        if self.task is not None:
            self.task.cancel(self._fault)
