"""A reply as its caller sees it: events to iterate over, a message at the end, and ways to stop it.

It is the outermost place of a reply: it numbers the events, sets the deadline, turns an interrupt into an end, and gives the state back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import msgspec

from ..call.errors import SpangateError
from .errors import DeadlineExceeded, MiddlewareFault
from .events import AgentEvent, ReplyEndEvent
from .hooks import events_through
from .messages.msg import Msg
from .reply import Reply
from .settings import ErrorInfo, ReplyFinishedReason
from .state import Thread
from .view import ReplyView


class Interrupted(Exception):
    """The reason that a reply's own cancellation carries."""


class ReplyStream(AsyncIterator[AgentEvent]):
    """The events of one reply. Whoever may leave early does so under `async with`, so that everything is closed and kept at once.

    `message` is the reply's message, once it has ended. `reply_id` and `thread_id` say which it is.
    """

    def __init__(
        self,
        view: ReplyView,
        inputs: Any,
        structured_schema: Any,
        *,
        thread: Thread | None,
        seconds: float | None,
        running: WeakSet[Any],
    ) -> None:
        self.view = view
        self.message: Msg | None = None
        self._thread = thread
        self._seconds = seconds
        self._running = running
        self._reply = Reply(view, self._claim)
        view.interrupt = self.interrupt
        self._given = {"inputs": inputs, "structured_schema": structured_schema}
        self._events: Any = None
        self._out: deque[AgentEvent] = deque()
        self._seq = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._halt: BaseException | None = None
        self._cancelled = False
        self._timer: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._ended = False
        self._saving: asyncio.Task[None] | None = None

    @property
    def reply_id(self) -> str:
        return self.view.reply_id

    @property
    def thread_id(self) -> str:
        return self.view.thread_id

    # its end from outside

    def interrupt(self) -> None:
        """End the reply: calls that run get a result that says so, and the reply ends as interrupted."""
        self._stop(Interrupted("The reply was interrupted."))

    def _stop(self, reason: BaseException) -> None:
        if self._ended or self._halt is not None:
            return
        if self._loop is not None and _running_loop() is not self._loop:  # called from another thread
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._stop, reason)
            return
        self._halt = self._reply.halted = reason
        # The task that pulls is cancelled only while it waits inside: its own time outside is not ours to take.
        if self._task is not None and self._task is not asyncio.current_task():
            self._cancelled = True
            self._task.cancel(str(reason))

    def _late(self) -> None:
        self._stop(DeadlineExceeded(f"The reply took longer than {self._seconds:g} seconds."))

    def _claim(self) -> BaseException | None:
        """The reason, if the cancellation that arrived is this reply's and nobody else's."""
        if not self._cancelled or self._task is None:
            return None
        self._cancelled = False
        return self._halt if self._task.uncancel() == 0 else None

    # pulling

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        while True:
            if self._out:
                self._seq += 1
                return msgspec.structs.replace(self._out.popleft(), seq=self._seq)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._ended:
                raise StopAsyncIteration
            await self._pull()

    async def _pull(self) -> None:
        if self._task is not None:
            raise RuntimeError("This stream is being read by another task; a reply has one reader.")
        self._task = asyncio.current_task()
        try:
            if self._events is None:
                await self._begin()
            item = await anext(self._events, None)
            while item is not None:
                if isinstance(item, Msg):
                    self.message = item
                else:
                    self._out.append(item)
                    if not isinstance(item, ReplyEndEvent):
                        return
                    self._reply.delivered = True
                item = await anext(self._events, None)
            self._whole()
        except asyncio.CancelledError:
            halted = self._claim()
            await self._close()
            if halted is None:
                raise
            self._end_as(halted)
        except Exception as error:  # noqa: BLE001 - it is raised, once its end was told
            self.view.hooks.blame(error)
            await self._close()
            self._fail(error)
        except GeneratorExit:
            raise
        except BaseException:  # somebody's control flow: it is no end of a reply, but it leaves nothing open
            await self._close()
            raise
        else:
            await self._close()
        finally:
            if self._cancelled:  # a layer caught it, and went on
                self._claim()
            self._task = None

    async def _begin(self) -> None:
        self._running.add(self)
        self._loop = loop = asyncio.get_running_loop()
        if self._seconds is not None:
            self.view.deadline = loop.time() + self._seconds
            self._timer = loop.call_at(self.view.deadline, self._late)
        await self.view.toolkit.ready()
        if self._thread is not None:
            await self._thread.begin(self.view.state)
        self._events = events_through(self.view.hooks, "on_reply", self.view, self._given, self._reply.run)

    def _whole(self) -> None:
        """All layers have ended: check that the reply has.

        Raises:
            MiddlewareFault: a layer kept its end.
        """
        if self._halt is not None and not self._reply.delivered:
            # An interrupt and a deadline are the user's word; no layer keeps them back.
            late = isinstance(self._halt, DeadlineExceeded)
            self._out.append(self._end(ReplyFinishedReason.ERROR if late else ReplyFinishedReason.INTERRUPTED, None))
        elif not self._reply.delivered:
            names = " or ".join(type(each).__name__ for each, _ in self.view.hooks.stacks["on_reply"])
            raise MiddlewareFault(names, "on_reply", "ended the reply without its ReplyEndEvent; pass it on, or let the inside go on")
        self.message = self.message or self._reply.message()
        if isinstance(self._halt, DeadlineExceeded):
            self._halt.message_so_far = self.message
            self._failure = self._halt

    def _end_as(self, halted: BaseException) -> None:
        """The reply was stopped while one of its layers was at work on its own."""
        if isinstance(halted, DeadlineExceeded):
            self._fail(halted)
            return
        self._out.append(self._end(ReplyFinishedReason.INTERRUPTED, None))
        self.message = self._reply.message()
        self.message.finished_reason = ReplyFinishedReason.INTERRUPTED

    def _fail(self, error: BaseException) -> None:
        code = error.code if isinstance(error, SpangateError) else ""
        shown = error.message if isinstance(error, SpangateError) else type(error).__name__
        if not self._reply.delivered:
            self._out.append(self._end(ReplyFinishedReason.ERROR, ErrorInfo(shown, type(error).__name__, code)))
        self._failure = error

    def _end(self, reason: ReplyFinishedReason, error: ErrorInfo | None) -> ReplyEndEvent:
        return ReplyEndEvent(reply_id=self.reply_id, session_id=self.thread_id, finished_reason=reason, error=error)

    # closing

    async def _close(self) -> None:
        """Close what is open, the innermost first, and keep the state; once."""
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._events is not None:
                await self._events.aclose()
        finally:
            self.view.state.settle()
            self._running.discard(self)
            if self._thread is not None and self._events is not None:
                # In a task of its own: whoever cancels the caller does not cancel the keeping.
                self._saving = asyncio.create_task(self._thread.end(self.view.state))
                await asyncio.shield(self._saving)

    async def aclose(self) -> None:
        """Leave the reply: what runs is stopped, the context stays valid and is kept."""
        self._out.clear()
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def result(self) -> Msg:
        """The reply's message; reads the events to their end.

        Raises:
            DeadlineExceeded: it took longer than it may.
        """
        async with self:
            async for _ in self:
                pass
        assert self.message is not None
        return self.message


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
