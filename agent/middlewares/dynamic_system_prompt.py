"""`DynamicSystemPromptMiddleware`: what only the moment knows, put into the system prompt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, get_args

from ..hooks import MiddlewareBase
from ..messages.msg import UserMsg
from .given import number, said_by
from .harmless import quietly

Position = Literal["append", "prepend", "replace", "last_message"]
POSITIONS = get_args(Position)


class DynamicSystemPromptMiddleware(MiddlewareBase):
    """Adds what `context_fn` says, under `heading`. It may be a coroutine function, and may take the agent; None adds nothing, but with
    `replace` leaves no system prompt at all.

    It is asked once a round, however often the prompt is put together, and not more often than every `cache_ttl` seconds in one reply.
    Text that changes makes a provider's prompt cache useless; `position="last_message"` puts it behind the messages instead. Where
    `context_fn` fails the reply fails, unless `on_error="skip"`: then the prompt stays as it was, for that round.
    """

    def __init__(
        self,
        context_fn: Callable[..., Any],
        position: Position = "append",
        heading: str = "## Current Context",
        *,
        cache_ttl: float = 0,
        on_error: Literal["raise", "skip"] = "raise",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        if not callable(context_fn):
            raise ValueError(f"context_fn must be a function, not {context_fn!r}")
        if position not in POSITIONS:
            raise ValueError(f"position must be one of {', '.join(POSITIONS)}, not {position!r}")
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        self._context_fn = context_fn
        self._skips = on_error == "skip"
        self._position = position
        self._heading = heading
        self._ttl = number("cache_ttl", cache_ttl)
        self._clock = clock

    async def on_system_prompt(self, agent: Any, current_prompt: str | None) -> str | None:
        if self._position == "last_message":
            return current_prompt
        said = await self._said(agent)
        if self._position == "replace" and not agent.state.of(self)["failed"]:
            return said
        if said is None:
            return current_prompt
        parts = (current_prompt, self._headed(said)) if self._position == "append" else (self._headed(said), current_prompt)
        return "\n\n".join(part for part in parts if part)

    def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        if self._position != "last_message" or agent.purpose != "main":
            return next_handler()
        return self._behind(agent, input_kwargs["messages"], next_handler)

    async def _behind(self, agent: Any, messages: list[Any], next_handler: Callable[..., Any]) -> Any:
        said = await self._said(agent)
        return await (next_handler() if said is None else next_handler(messages=[*messages, UserMsg(self._headed(said))]))

    def _headed(self, said: str) -> str:
        return f"{self._heading}\n{said}" if self._heading else said

    async def _said(self, agent: Any) -> str | None:
        kept, now = agent.state.of(self), self._clock()
        this_round = [agent.state.cur_iter, len(agent.steps)]
        fresh = self._ttl > 0 and now - kept.get("at", now) < self._ttl
        if "said" not in kept or not (kept["round"] == this_round or fresh):
            said, failed = await self._asked(agent)
            kept.update(said=None if said is None else str(said), failed=failed, round=this_round, at=now)
        text: str | None = kept["said"]
        return text

    async def _asked(self, agent: Any) -> tuple[Any, bool]:
        """What the function says now, and whether it failed."""
        asked = said_by(self._context_fn, agent)
        if not self._skips:
            return await asked, False
        said, done = await quietly(asked, "%s: the system prompt stays as it was (%s)", agent.name)
        return said, not done
