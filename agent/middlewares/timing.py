"""`TimingMiddleware`: how long each model call took, to its first content and to its end, however it ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ..hooks import MiddlewareBase
from ..models.response import ChatResponse
from .given import said_by
from .harmless import quietly
from .watched import watched

logger = logging.getLogger(__name__)
Outcome = Literal["ok", "error", "cancelled"]


class Timed(msgspec.Struct, frozen=True):
    """One model call. `first` is the time to its first content, None if none came; `model` the one that answered, if one did."""

    agent: str
    model: str
    purpose: str
    seconds: float
    first: float | None
    outcome: Outcome
    error: str = ""


class TimingMiddleware(MiddlewareBase):
    """Gives each model call's time to `sink`: a function that takes a `Timed`, or `"log"`. A sink that fails is logged, and fails no call.
    `clock` must never go back."""

    def __init__(self, sink: Literal["log"] | Callable[[Timed], Any] = "log", *, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Raises:
            ValueError: the sink is no function, nor `"log"`.
        """
        if sink != "log" and not callable(sink):
            raise ValueError(f"sink must be 'log' or a function that takes a Timed, not {sink!r}")
        self._sink = log if sink == "log" else sink
        self._clock = clock

    async def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        watch = _Watch(agent, input_kwargs["current_model"].model, self._sink, self._clock)
        return await watched(agent, next_handler, watch)


async def log(timed: Timed) -> None:
    first = "" if timed.first is None else f", first content after {timed.first:.2f} s"
    logger.info("%s → %s: %.2f s%s (%s)", timed.agent, timed.model, timed.seconds, first, timed.error or timed.outcome)


class _Watch:
    def __init__(self, agent: Any, model: str, sink: Callable[[Timed], Any], clock: Callable[[], float]) -> None:
        self._agent, self._model, self._sink, self._clock = agent, model, sink, clock
        self._began = clock()
        self._first: float | None = None

    def piece(self, piece: ChatResponse) -> None:
        self._model = piece.model or self._model
        if self._first is None and piece.says_something:
            self._first = self._since()

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        failed = error is not None and not isinstance(error, asyncio.CancelledError)
        outcome: Outcome = "error" if failed else "ok" if whole is not None and not whole.stop else "cancelled"
        said = type(error).__name__ if failed else ""
        timed = Timed(self._agent.name, self._model, self._agent.purpose, self._since(), self._first, outcome, said)
        await quietly(said_by(self._sink, timed), "the sink of TimingMiddleware failed: %s")

    def _since(self) -> float:
        # Whatever clock was given: no call takes less than nothing.
        return max(0.0, self._clock() - self._began)
