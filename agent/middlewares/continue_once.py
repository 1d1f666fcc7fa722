"""`ContinueOnceMiddleware`: one more round when a reply is about to end, with a word to the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from typing import Any

from ..events import ReplyEndEvent
from ..hooks import MiddlewareBase
from ..settings import ReplyFinishedReason
from .given import number, said_by

HINT = "Before you finish, go over the result once more and correct what is wrong or missing."
REASONS = frozenset({ReplyFinishedReason.COMPLETED, ReplyFinishedReason.EXCEED_MAX_ITERS})


class ContinueOnceMiddleware(MiddlewareBase):
    """Keeps back the end of a reply that ends for one of `reasons`, at most `max_continues` times, and gives the model `hint`.

    `predicate(agent, event)` may say that this reply needs it not.
    """

    def __init__(
        self,
        hint: str = HINT,
        *,
        max_continues: int = 1,
        reasons: Collection[ReplyFinishedReason | str] = REASONS,
        predicate: Callable[..., Any] | None = None,
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        whole = number("max_continues", max_continues)
        if whole != int(whole):
            raise ValueError(f"max_continues must be a whole number, not {max_continues!r}")
        if strange := sorted({str(each) for each in reasons} - {str(each) for each in ReplyFinishedReason}):
            raise ValueError(f"{strange[0]!r} is no reason to end; reasons are {', '.join(sorted(REASONS))}")
        self._reasons = frozenset(ReplyFinishedReason(each) for each in reasons)
        odd = self._reasons - REASONS
        if odd:
            raise ValueError(f"a reply that ended as {min(odd)} can't go on; reasons are {', '.join(sorted(REASONS))}")
        self._hint = hint
        self._most = int(whole)
        self._predicate = predicate

    async def on_reply(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> AsyncGenerator[Any, None]:
        async with aclosing(next_handler()) as events:
            async for event in events:
                if isinstance(event, ReplyEndEvent) and await self._goes_on(agent, event):
                    agent.state.of(self)["continued"] = agent.state.of(self).get("continued", 0) + 1
                    # Where the rounds are used up, one is freed.
                    agent.state.cur_iter = min(agent.state.cur_iter, agent.react_config.max_iters - 1)
                    agent.hint(self._hint, source="continue_once")
                    continue
                yield event

    async def _goes_on(self, agent: Any, event: ReplyEndEvent) -> bool:
        if event.finished_reason not in self._reasons or agent.state.of(self).get("continued", 0) >= self._most:
            return False
        return self._predicate is None or bool(await said_by(self._predicate, agent, event))
