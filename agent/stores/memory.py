"""A store in memory: gone with the process. Values are kept as JSON text, so nobody shares an object with it."""

from __future__ import annotations

import json
from typing import Any

from ..errors import Conflict
from .base import Record, named, written


class MemoryStore:
    """Keeps values in this process."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], tuple[str, int]] = {}

    async def get(self, namespace: str, key: str) -> Record | None:
        named(namespace, key)
        kept = self._values.get((namespace, key))
        return None if kept is None else Record(json.loads(kept[0]), kept[1])

    async def put(self, namespace: str, key: str, value: Any, *, expected: int | None = None) -> int:
        named(namespace, key)
        text = written(value)
        _, version = self._values.get((namespace, key), ("", 0))
        if expected is not None and version != expected:
            raise Conflict(f"{namespace}/{key} is at version {version}, not {expected}.")
        self._values[namespace, key] = (text, version + 1)
        return version + 1

    async def delete(self, namespace: str, key: str) -> bool:
        named(namespace, key)
        return self._values.pop((namespace, key), None) is not None

    async def keys(self, namespace: str) -> list[str]:
        return sorted(key for space, key in self._values if space == namespace)
