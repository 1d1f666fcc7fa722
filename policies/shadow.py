"""`mode: shadow`: a policy that decides and records, and enforces nothing.

It sees the call and the answer as they are, and works on copies: what it makes of the request goes nowhere, what it makes of the answer
is dropped, what it refuses is a note. A policy that only looks at the request costs what it costs otherwise; one that reads the answer is
fed each event after that has gone out, in the same task, so that the answer waits for no decision but those before it begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any

from msgspec.structs import replace

from ..call.call import Call
from ..call.chain import Next, Policy, pulling
from ..call.errors import SpangateError
from ..call.events import Event
from ..call.notes import Note, Notes

MODE = "shadow"
_WANTED = object()  # what a policy's coroutine gives us when it waits for the answer to go on


class _Notes(Notes, kw_only=True):
    """Notes of a policy in shadow: they go to the call's own, and say so. What it would have done is its verdict; nothing is."""

    real: Notes

    def add(self, name: str, /, **figures: Any) -> None:
        figures.pop("action", None)
        self._notes.append(Note(name, figures))
        self.real.add(name, **figures, mode=MODE)

    @property
    def refusal(self) -> bool:
        return any(note.name.endswith((".refused", ".denied", ".blocked")) or note.figures.get("verdict") == "deny" for note in self)


class Shadow:
    """A policy without effect. `kind`: what the configuration calls it."""

    __slots__ = ("_kind", "_policy", "needs", "stage")

    def __init__(self, kind: str, policy: Policy) -> None:
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
        except SpangateError as error:
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
            await watched.aclose()

    async def _tell(self, watched: _Watched, notes: _Notes, event: Event | None = None) -> None:
        if watched.ended:
            return
        if event is not None:
            watched.answer.events.append(event)
        try:
            await watched.go_on()
        except SpangateError as error:
            if error is not watched.answer.over:
                self._note(notes, error)

    def _note(self, notes: _Notes, error: SpangateError) -> None:
        """A refusal that the policy has not told of itself."""
        if not notes.refusal:
            notes.add(f"{self._kind}.refused", code=error.code)


class _Answer:
    """The inside as a policy in shadow sees it: the events that were told so far, and then a wait for more."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.over: Exception | None = None

    def given(self, _: Call) -> AsyncIterator[Event]:
        return self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self.events:
            if self.over is not None:
                raise self.over
            await _Wait()
        return self.events.popleft()


class _Wait:
    def __await__(self) -> Generator[Any, None, None]:
        yield _WANTED


class _Watched:
    """A policy's generator, driven by hand: as far as it comes with what `answer` holds. What it yields is dropped."""

    __slots__ = ("_events", "_step", "answer", "ended")

    def __init__(self, events: AsyncIterator[Event], answer: _Answer) -> None:
        self._events = events
        self._step: Generator[Any, None, Any] | None = None
        self.answer = answer
        self.ended = False

    async def go_on(self) -> None:
        """Until it wants an event that hasn't come. Raises what the policy raises, which ends it."""
        try:
            while True:
                if self._step is None:
                    self._step = self._events.__anext__().__await__()
                if await _Driven(self._step):
                    return
                self._step = None
        except StopAsyncIteration:
            self.ended = True
        except BaseException:
            self.ended = True
            raise

    async def aclose(self) -> None:
        """The answer goes no further: the policy ends where it waits, as one whose caller has left."""
        if self.ended or self._step is None:
            return
        self.ended = True
        try:
            await _Driven(self._step, asyncio.CancelledError())
        except (StopAsyncIteration, SpangateError):
            return
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise


class _Driven:
    """One step of a coroutine: True where it waits for the answer, False where it has yielded. What else it waits for, we wait for too.
    `thrown`: with what it goes on."""

    __slots__ = ("_step", "_thrown")

    def __init__(self, step: Generator[Any, None, Any], thrown: BaseException | None = None) -> None:
        self._step = step
        self._thrown = thrown

    def __await__(self) -> Generator[Any, None, bool]:
        thrown = self._thrown
        try:
            while True:
                asked = self._step.send(None) if thrown is None else self._step.throw(thrown)
                if asked is _WANTED:
                    return True
                thrown = None
                try:
                    yield asked
                except (asyncio.CancelledError, GeneratorExit) as error:  # it is the step that waits
                    thrown = error
        except StopIteration:
            return False
