"""`mode: shadow`: a policy that decides and records, and enforces nothing.

It sees the call and the answer as they are, and works on copies: what it makes of the request goes nowhere, what it makes of the answer
is dropped, what it refuses is a note, and so is a defect of it. A policy that only looks at the request costs what it costs otherwise; one
that reads the answer runs in a task of its own, whose cancellations and time limits end nothing else, and is fed each event after that has
gone out, so that the answer waits for no decision but those before it begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any

from msgspec.structs import replace

from ..call.call import Call
from ..call.chain import Next, Policy, pulling
from ..call.errors import SpangateError
from ..call.events import Event
from ..call.notes import Note, Notes, Told

log = logging.getLogger("spangate.policies")

MODE = "shadow"
PARTING = 1.0  # seconds in which a policy may end whose caller has left; then it is left to itself


class _Notes(Notes, kw_only=True):
    """Notes of a policy in shadow: they go to the call's own, and say so. What it would have done is its verdict; nothing is."""

    real: Notes

    def tell(self, name: str, figures: dict[str, Any]) -> None:
        figures.pop("action", None)
        self._notes.append(Note(name, figures))
        self.real.add(name, **figures, mode=MODE)

    def append(self, note: Told) -> None:
        self.tell(note.name, dict(note.figures))

    @property
    def refusal(self) -> bool:
        return any(note.name.endswith((".refused", ".denied", ".blocked")) or note.figures.get("verdict") == "deny" for note in self)


class Shadow:
    """A policy without effect. `kind`: what the configuration calls it. `parting`: seconds in which it may end when its caller has left."""

    __slots__ = ("_kind", "_parting", "_policy", "needs", "stage")

    def __init__(self, kind: str, policy: Policy, *, parting: float = PARTING) -> None:
        self._parting = parting
        self._kind = kind
        self._policy = policy
        self.stage: int = getattr(policy, "stage", 50)
        self.needs: Iterable[str] = getattr(policy, "needs", ())

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        notes = _Notes(real=call.notes)
        copied = replace(call, seen=replace(call.seen, notes=notes, attempts=list(call.seen.attempts)))
        answer = _Answer()
        try:
            judged = self._policy(copied, answer.given)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - what it does must not fail the call; nobody else cancels here
            self._note(notes, error)
            return next(call)
        if judged is answer:
            return next(call)
        return self._beside(call, next, _Watched(judged, answer), notes)

    async def _beside(self, call: Call, next: Next, watched: _Watched, notes: _Notes) -> AsyncIterator[Event]:
        try:
            await self._tell(watched, notes)
            async with pulling(next(call)) as events:
                async for event in events:
                    yield event
                    await self._tell(watched, notes, event)
            watched.answer.over = StopAsyncIteration()
            await self._tell(watched, notes)
        except SpangateError as error:
            watched.answer.over = error
            await self._tell(watched, notes)
            raise
        finally:
            await watched.aclose(self._parting)
            self._ask(watched, notes)

    async def _tell(self, watched: _Watched, notes: _Notes, event: Event | None = None) -> None:
        if not watched.ended:
            await watched.go_on(event)
            self._ask(watched, notes)

    def _ask(self, watched: _Watched, notes: _Notes) -> None:
        """What the policy has failed of is told once, unless it is the answer's own failure."""
        error = watched.failure()
        if error is not None and error is not watched.answer.over:
            self._note(notes, error)

    def _note(self, notes: _Notes, error: BaseException) -> None:
        """A defect; or a refusal that the policy has not told of itself."""
        if not isinstance(error, SpangateError):
            log.error("%s in shadow failed: %s", self._kind, type(error).__name__, exc_info=error)
            notes.add(f"{self._kind}.failed", verdict="warn", error=type(error).__name__)
        elif not notes.refusal:
            notes.add(f"{self._kind}.refused", code=error.code)


class _Answer:
    """The inside as a policy in shadow sees it: the events that were told so far, and then a wait for more. `waited_for`: the policy has
    come as far as it can."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.over: BaseException | None = None
        self.waited_for = asyncio.Event()
        self.more = asyncio.Event()

    def given(self, _: Call) -> AsyncIterator[Event]:
        return self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self.events:
            if self.over is not None:
                raise self.over
            self.more.clear()
            self.waited_for.set()
            await self.more.wait()
        return self.events.popleft()


class _Watched:
    """A policy's generator in a task of its own: as far as it comes with what `answer` holds. What it yields is dropped."""

    __slots__ = ("_asked", "_events", "_task", "answer")

    def __init__(self, events: AsyncIterator[Event], answer: _Answer) -> None:
        self._events = events
        self._task: asyncio.Task[None] | None = None
        self._asked = False
        self.answer = answer

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def go_on(self, event: Event | None) -> None:
        """Until it wants an event that hasn't come, or has ended."""
        answer = self.answer
        if event is not None:
            answer.events.append(event)
        answer.waited_for.clear()
        answer.more.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="spangate.shadow")
            self._task.add_done_callback(self._over)
        await answer.waited_for.wait()

    def failure(self) -> BaseException | None:
        """What it has failed of, the first time that this is asked."""
        task = self._task
        if task is None or not task.done() or self._asked:
            return None
        self._asked = True
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def _run(self) -> None:
        async with pulling(self._events) as events:
            async for _ in events:
                pass

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # else asyncio complains of one that nobody has asked for
        self.answer.waited_for.set()

    async def aclose(self, parting: float) -> None:
        """The answer goes no further: the policy ends where it waits, as one whose caller has left."""
        if self._task is None or self._task.done():
            return
        self._asked = True
        self.answer.over = asyncio.CancelledError()
        self._task.cancel()
        await asyncio.wait([self._task], timeout=parting)
