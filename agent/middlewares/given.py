"""Functions that users give as options: coroutine functions are awaited, plain ones run in a thread, so that none holds up the loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..tools.threads import in_thread


async def said_by(function: Callable[..., Any], *offered: Any) -> Any:
    """What the function says, given as many of the arguments as it asks for; what has a default is its own."""
    arguments = offered[: _takes(function)]
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    said = await in_thread(function, *arguments)
    return await said if inspect.isawaitable(said) else said


def _takes(function: Callable[..., Any]) -> int | None:
    """How many positional arguments; None: as many as one likes, or nobody knows."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters)


def number(name: str, value: Any, *, least: float = 0, above: bool = False) -> float:
    """The value of an option that is a number.

    Raises:
        ValueError: it is none, or too small.
    """
    right = isinstance(value, int | float) and not isinstance(value, bool) and (value > least if above else value >= least)
    if not right or value == float("inf"):
        raise ValueError(f"{name} must be a number {'above' if above else 'of at least'} {least:g}, not {value!r}")
    return float(value)
