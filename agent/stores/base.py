"""What every store does, and the check that a value is JSON and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ..errors import NotJSON

_DEEPEST = 200


class Record(msgspec.Struct, frozen=True):
    """A value as it is kept; `version` counts from 1."""

    value: Any
    version: int


class Store(Protocol):
    """Values by namespace and key. A namespace keeps tenants apart and is never empty."""

    async def get(self, namespace: str, key: str) -> Record | None: ...

    async def put(self, namespace: str, key: str, value: Any, *, expected: int | None = None) -> int:
        """Keep `value`; gives its version. `expected`: the version that it replaces, 0 for a new one.

        Raises:
            Conflict: another version stands there.
            NotJSON: the value can't be written down.
        """
        ...

    async def delete(self, namespace: str, key: str) -> bool: ...

    async def keys(self, namespace: str) -> list[str]: ...


def written(value: Any) -> str:
    """`value` as JSON text.

    Raises:
        NotJSON: it holds what JSON hasn't; the message says where.
    """
    if not _is_plain(value):
        odd = _odd(value, "")
        if odd:
            raise NotJSON(f"State must be JSON; {odd}.")
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        # What is JSON all the same: halves of characters, which a stream may cut an answer into, go escaped.
        return json.dumps(value, separators=(",", ":"), allow_nan=False)


_PLAIN = frozenset({str, int, bool, type(None)})


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether it is surely JSON: most state is, and most of it is texts."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if depth > _DEEPEST:
        return False
    if kind is dict:
        return all(type(key) is str and (type(each) in _PLAIN or _is_plain(each, depth + 1)) for key, each in value.items())
    if kind is list:
        return all(type(each) in _PLAIN or _is_plain(each, depth + 1) for each in value)
    return kind is float and math.isfinite(value)


def _odd(value: Any, path: str, depth: int = 0) -> str:
    """What in it is no JSON, and where; empty if nothing is."""
    at = path or "the value"
    if depth > _DEEPEST:
        return f"{at[:80]} is nested too deep, or holds itself"
    if value is None or isinstance(value, bool | str | int):
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{at} is {value}"
    if isinstance(value, list | tuple):
        return next(filter(None, (_odd(each, f"{path}[{number}]", depth + 1) for number, each in enumerate(value))), "")
    if isinstance(value, Mapping):
        keyed = next((f"{at} has the key {key!r}, which is no text" for key in value if not isinstance(key, str)), "")
        return keyed or next(filter(None, (_odd(each, f"{path}.{key}".lstrip("."), depth + 1) for key, each in value.items())), "")
    return f"{at} is of type {type(value).__name__}"


def named(namespace: str, key: str) -> None:
    """
    Raises:
        ValueError: one of them is empty: whose it is must be said.
    """
    if not namespace.strip() or not key.strip():
        raise ValueError("A store is asked with a namespace and a key, neither of them empty.")
