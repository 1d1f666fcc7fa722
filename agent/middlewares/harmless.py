"""Where something may fail and nobody else shall: what only watches a call, and what a call can do without. The failure is logged by its
kind; its words may hold what nobody should read.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..errors import is_cancelled

logger = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")
LACKS = "a span lacks what could not be written: %s"
MISSES = "telemetry lacks what could not be made: %s"


def harmless(function: F) -> F:
    """What can't be told is not told; the call goes on."""

    def isolated(*args: Any) -> None:
        _given(LACKS, None, function, *args)

    return isolated  # type: ignore[return-value]


def attempted(instead: T, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What the function gives, or `instead`."""
    return _given(MISSES, instead, function, *args, **kwargs)


def _given(words: str, instead: T, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - telemetry never fails a call
        logger.warning(words, type(error).__name__)
        return instead


async def quietly(waiting: Awaitable[Any], words: str = LACKS, *more: Any) -> tuple[Any, bool]:
    """What it gives, and whether it did. `words`: what the log says if not; `more` stands in them before the kind of the failure."""
    try:
        return await waiting, True
    except (Exception, CancelledError) as error:  # whoever calls can do without
        if isinstance(error, CancelledError) and is_cancelled():
            raise
        logger.warning(words, *more, type(error).__name__)
        return None, False
