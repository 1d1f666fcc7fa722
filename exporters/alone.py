"""The one place of this room where anything may fail: an exporter that raises, a call that can't be told, a sender that breaks must cost
no more than themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def alone(do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """What `do` returns, or what it raised."""
    try:
        return do(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - this is what it is for
        return error
