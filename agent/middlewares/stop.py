"""`Stop`: ends a reply before its next model call. `StepResult` is Laravel's word for what a step may return instead of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from ..hooks import MiddlewareBase
from ..models.response import ChatResponse, ModelStream
from ..steps import PendingStep
from .given import said_by

Condition = bool | Callable[[PendingStep], Any]


class StepResult:
    """What a middleware may return from `on_model_call` instead of an answer."""

    @staticmethod
    def stop(reason: str = "cancelled") -> ChatResponse:
        """End the reply before this step: no model is asked; completed steps stay."""
        return ModelStream.stop(reason)


class Stop(MiddlewareBase):
    """Ends the reply before a model call: `Stop.when(lambda step: step.usage.input_tokens >= 50_000)`.

    The condition is given the step that is about to begin (`number`, `usage`, `steps`, `is_final`); its usage is that of the completed
    steps. It cuts no call that runs. The middlewares behind it in the list do not run for a step that it stops.
    """

    def __init__(self, condition: Condition, *, expected: bool = True) -> None:
        """
        Raises:
            ValueError: the condition is neither a bool nor a function.
        """
        if not isinstance(condition, bool) and not callable(condition):
            raise ValueError(f"a condition is a bool or a function of the step, not {condition!r}")
        self._condition = condition
        self._expected = expected

    @classmethod
    def when(cls, condition: Condition) -> Self:
        """Stop where the condition is true."""
        return cls(condition)

    @classmethod
    def unless(cls, condition: Condition) -> Self:
        """Stop where the condition is false."""
        return cls(condition, expected=False)

    async def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        if agent.purpose == "main" and await self._holds(agent.step) is self._expected:
            return StepResult.stop()
        return await next_handler()

    async def _holds(self, step: PendingStep) -> bool:
        if isinstance(self._condition, bool):
            return self._condition
        return bool(await said_by(self._condition, step))
