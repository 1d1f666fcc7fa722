"""`ModelFallbackMiddleware`: another model where the first one fails before it has said anything."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from ...call.errors import ProviderFault, UpstreamError
from ..errors import DeadlineExceeded, MiddlewareFault, NoAnswer
from ..hooks import MiddlewareBase
from ..models.base import ChatModelBase
from .given import number, said_by
from .portable import tools_for

Target = ChatModelBase | Callable[[], Any]
FallbackOn = tuple[type[BaseException], ...] | Callable[..., Any]
logger = logging.getLogger(__name__)

TOO_LONG = "context_length_exceeded"
PASSES = (DeadlineExceeded, MiddlewareFault)
"""What no other model can mend."""


class ModelFallbackMiddleware(MiddlewareBase):
    """Tries `models` in turn where the model that was asked fails: `ModelFallbackMiddleware(spare)`.

    A model may be given as a function that makes it, which is called when it is first needed. Default of `fallback_on`: what another
    try may mend (no connection, a time-out, 429, 5xx, an empty answer unless `on_empty` is false), and a context that is too long,
    for models with a larger window. It may be exception types, or a function of the error. A stream falls back until its first content,
    never after. `cooldown`: seconds in which a model that failed is passed over. If all fail, the last error is raised; its notes name
    the others.

    Fallbacks belong in one place, so for a model that asks a gateway this does nothing, and a warning says so, unless `behind_gateway`.
    """

    def __init__(
        self,
        *models: Target,
        fallback_on: FallbackOn | None = None,
        on_empty: bool = True,
        cooldown: float = 0,
        behind_gateway: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Raises:
            ValueError: an option is not what it must be.
        """
        if not models:
            raise ValueError("ModelFallbackMiddleware needs at least one model to fall back to.")
        self._targets: list[Target] = list(models)
        self._fallback_on = fallback_on
        self._on_empty = on_empty
        self._cooldown = number("cooldown", cooldown)
        self._behind_gateway = behind_gateway
        self._clock = clock
        self._told = False
        self._failed_at: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    async def on_model_call(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Callable[..., Any]) -> Any:
        first = input_kwargs["current_model"]
        if getattr(first, "takes_reply_labels", False) and not self._behind_gateway:
            if not self._told:
                self._told = True
                logger.warning(
                    "ModelFallbackMiddleware does nothing for %r, which asks a gateway: behind_gateway=True has it fall back", first
                )
            return await next_handler()
        failures: list[tuple[str, BaseException]] = []
        if not self._cools(first):
            try:
                return await next_handler()
            except Exception as error:
                if not await self._is_to_fall_back(error):
                    raise
                self._note(first, error, failures)
        needed = getattr(first, "context_size", None) if failures and _is_too_long(failures[0][1]) else None
        for index in range(len(self._targets)):
            model = await self._model(index, failures)
            if model is None or self._cools(model) or (needed is not None and (getattr(model, "context_size", None) or 0) <= needed):
                continue
            tools = tools_for(model, input_kwargs["tools"], instead_of=first)
            try:
                return await next_handler(current_model=model, tools=tools)
            except PASSES:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the next model may do better
                self._note(model, error, failures)
        if not failures:  # all of them cool down: better a try than none
            return await next_handler()
        raise _told(failures)

    async def _model(self, index: int, failures: list[tuple[str, BaseException]]) -> ChatModelBase | None:
        target = self._targets[index]
        if not isinstance(target, ChatModelBase) and not hasattr(target, "model"):
            try:
                target = await said_by(target)
            except Exception as error:  # noqa: BLE001 - a model that can't be made is one that fails
                failures.append(("a model that could not be made", error))
                return None
            self._targets[index] = target
        return target  # type: ignore[return-value]

    async def _is_to_fall_back(self, error: Exception) -> bool:
        if isinstance(error, PASSES):
            return False
        chosen = self._fallback_on
        if isinstance(chosen, tuple):
            return isinstance(error, chosen)
        if chosen is not None:
            return bool(await said_by(chosen, error))
        if isinstance(error, NoAnswer):
            return self._on_empty
        if isinstance(error, ProviderFault):
            return error.retryable or _is_too_long(error)
        return isinstance(error, OSError | TimeoutError)

    def _cools(self, model: ChatModelBase) -> bool:
        failed = None
        if self._cooldown:
            with suppress(TypeError):  # a model that nothing can refer to weakly is not remembered
                failed = self._failed_at.get(model)
        return failed is not None and self._clock() - failed < self._cooldown

    def _note(self, model: ChatModelBase, error: BaseException, failures: list[tuple[str, BaseException]]) -> None:
        failures.append((model.model, error))
        if self._cooldown:
            with suppress(TypeError):
                self._failed_at[model] = self._clock()


def _is_too_long(error: BaseException) -> bool:
    return isinstance(error, UpstreamError) and TOO_LONG in (error.own_code, error.kind)


def _told(failures: list[tuple[str, BaseException]]) -> BaseException:
    """The last error, with a note for each that came before it."""
    last = failures[-1][1]
    for name, error in failures[:-1]:
        if error is not last:
            last.add_note(f"before that, {name} failed: {type(error).__name__}: {error}")
    return last
