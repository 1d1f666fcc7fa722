"""Before and after, for those who don't need an onion: what `before_reply`, `after_reply`, `before_model` and `after_model` mean.

Each becomes a layer of its middleware, so `before_…` runs in the order of the list and `after_…` in the reverse.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from .errors import MiddlewareFault
from .events import ReplyEndEvent
from .hooks import implements
from .settings import Jump


async def _around_reply(
    middleware: Any, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]
) -> AsyncGenerator[Any, None]:
    await _said(middleware, "before_reply", agent)
    async with aclosing(next_handler()) as events:
        async for event in events:
            if isinstance(event, ReplyEndEvent) and await _said(middleware, "after_reply", agent, event) is Jump.MODEL:
                continue
            yield event


async def _around_model(
    middleware: Any, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]
) -> AsyncGenerator[Any, None]:
    jump = await _said(middleware, "before_model", agent)
    if jump is not None:
        agent.jump = jump
        return
    before = len(agent.steps)
    async with aclosing(next_handler()) as events:
        async for event in events:
            yield event
    if len(agent.steps) > before:
        jump = await _said(middleware, "after_model", agent, agent.answer)
        if jump is not None:
            agent.jump = jump


async def _said(middleware: Any, name: str, agent: Any, *more: Any) -> Jump | None:
    """What the method wants; a dict goes into its state.

    Raises:
        MiddlewareFault: it returned something else.
    """
    if not implements(middleware, name):
        return None
    wants = getattr(middleware, name)(agent, *more)
    if inspect.isawaitable(wants):
        wants = await wants
    if isinstance(wants, dict):
        agent.state.of(middleware).update(wants)
    elif isinstance(wants, Jump | str) and wants in set(Jump):
        return Jump(wants)
    elif wants is not None:
        raise MiddlewareFault(type(middleware).__name__, name, f"returned {wants!r:.80}; it must return None, a dict or a Jump")
    return None


LAYERS: dict[str, Callable[..., Any]] = {"on_reply": _around_reply, "on_reasoning": _around_model}
