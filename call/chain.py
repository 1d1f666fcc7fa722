"""The onion: policies folded around an answerer, built once a route.

    Next   = (Call) -> AsyncIterator[Event]
    Policy = (Call, Next) -> AsyncIterator[Event]

Each link hands out its policy's own generator, so a layer costs what its own body costs. The rules that make this safe (whoever
iterates `next(call)` does so under `aclosing`; no lock, timeout or context is held across a `yield`; nothing in a `finally`
awaits I/O) stand in CONTRIBUTING.md and are held by tests/house/test_onion.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import AsyncGeneratorType
from typing import Any, Protocol

from .call import Call
from .events import Event

_PACKAGE = f"{__name__.partition('.')[0]}."

Next = Callable[[Call], AsyncIterator[Event]]


class Policy(Protocol):
    """One layer. An async generator, or a plain function that returns `next(call)` and must not await.

    A refusal may be raised at the call or at the first pull: callers treat both alike. Its class may say where it stands (`stage`) and
    what it can't do without (`needs`, such as `{"targets"}`: it chooses among them).
    """

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]: ...


def chain(policies: Sequence[Policy], answer: Next) -> Next:
    """`policies` around `answer`, the first outermost. A plain fold from the inside."""
    following = answer
    for policy in reversed(policies):
        following = partial(policy, next=following)
    return following


def in_order(policies: Sequence[Policy]) -> list[Policy]:
    """By stage, stably: within one stage the list order is nesting order, outermost first."""
    return sorted(policies, key=lambda policy: getattr(policy, "stage", 50))


class pulling:  # noqa: N801 - reads like contextlib.aclosing
    """`async with pulling(next(call)) as events`: whoever may stop early closes its inside first, in the same task.

    It is `aclosing`, with one coroutine less a layer, and for a plain iterator too, such as a third party's layer may return.
    """

    __slots__ = ("_events",)

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events

    async def __aenter__(self) -> AsyncIterator[Event]:
        return self._events

    def __aexit__(self, *_: object) -> Awaitable[None]:
        close: Callable[[], Awaitable[None]] = getattr(self._events, "aclose", _nothing)
        return close()


async def _nothing() -> None:
    return None


def is_layer(generator: AsyncGenerator[Any, Any]) -> bool:
    """It stands in a chain, or is a part of one: it takes a call, or is code of ours."""
    if not isinstance(generator, AsyncGeneratorType):
        return False
    code, frame = generator.ag_code, generator.ag_frame
    ours = frame is not None and str(frame.f_globals.get("__name__")).startswith(_PACKAGE)
    return ours or "call" in code.co_varnames[: code.co_argcount]


@contextmanager
def watching_dropped(
    report: Callable[[str], None], *, of: Callable[[AsyncGenerator[Any, Any]], bool] | None = None, listed: bool = True
) -> Iterator[None]:
    """Tell `report` the name of every async generator that is dropped unfinished: a layer that forgot its `aclosing`. `of` says which
    ones are meant; a process may hold other people's.

    Its cleanup would run later and in another task. Tests raise on a report, production counts them. Entered inside the
    running loop, whose own finalizer goes on doing its work. Without `listed` the loop stops keeping a list of every generator
    that runs, which costs as much as a layer does and serves only to close them when the loop itself ends.
    """
    before = sys.get_asyncgen_hooks()
    loops_own = getattr(before.firstiter, "__self__", None) is asyncio.get_running_loop()

    def finalize(generator: AsyncGenerator[Any, Any]) -> None:
        if before.finalizer is not None:
            before.finalizer(generator)
        if of is None or of(generator):
            report(generator.__qualname__)  # type: ignore[attr-defined]

    sys.set_asyncgen_hooks(firstiter=None if loops_own and not listed else before.firstiter, finalizer=finalize)
    try:
        yield
    finally:
        sys.set_asyncgen_hooks(*before)
