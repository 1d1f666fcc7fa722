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


def harmless(function: F) -> F:
    """What can't be told is not told; the call goes on."""

    def isolated(*args: Any) -> None:
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - telemetry never fails a call
            logger.warning(LACKS, type(error).__name__)

    return isolated  # type: ignore[return-value]


def attempted(instead: T, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What the function gives, or `instead`."""
    try:
        return function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whoever calls can do without
        logger.warning("telemetry lacks what could not be made: %s", type(error).__name__)
        return instead


async def quietly(waiting: Awaitable[Any], words: str = LACKS, *more: Any) -> tuple[Any, bool]:
    """What it gives, and whether it did. `words`: what the log says if not; `more` stands in them before the kind of the failure."""
    try:
        return await waiting, True
    except Exception as error:  # noqa: BLE001 - whoever calls can do without
        failure: BaseException = error
    except CancelledError as error:
        if is_cancelled():
            raise
        failure = error
    logger.warning(words, *more, type(failure).__name__)
    return None, False
