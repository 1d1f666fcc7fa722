"""A store in a folder: one JSON file a value, replaced as a whole. For one process; several share SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ..errors import Conflict
from .base import Record, named, written

LONGEST_NAME = 250  # file systems take 255 bytes


class FileStore:
    """Keeps values under `folder`, which is made if it isn't there, readable by its owner alone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._lock = threading.Lock()

    async def get(self, namespace: str, key: str) -> Record | None:
        return await asyncio.to_thread(self._get, namespace, key)

    async def put(self, namespace: str, key: str, value: Any, *, expected: int | None = None) -> int:
        text = written(value)
        return await asyncio.to_thread(self._put, namespace, key, text, expected)

    async def delete(self, namespace: str, key: str) -> bool:
        return await asyncio.to_thread(self._delete, namespace, key)

    async def keys(self, namespace: str) -> list[str]:
        return await asyncio.to_thread(self._keys, namespace)

    def _path(self, namespace: str, key: str) -> Path:
        named(namespace, key)
        # Quoted whole, dots too, so that no name climbs out of the folder or hides in it.
        folder, name = _safe(namespace), f"{_safe(key)}.json"
        if max(len(folder), len(name)) > LONGEST_NAME:
            raise ValueError(f"{namespace[:40]!r} and {key[:40]!r} are too long for names of files; SQLiteStore takes them.")
        return self.folder / folder / name

    def _get(self, namespace: str, key: str) -> Record | None:
        try:
            kept = json.loads(self._path(namespace, key).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return Record(kept["value"], kept["version"])

    def _put(self, namespace: str, key: str, text: str, expected: int | None) -> int:
        path = self._path(namespace, key)
        with self._lock:
            before = self._get(namespace, key)
            version = before.version if before else 0
            if expected is not None and version != expected:
                raise Conflict(f"{namespace}/{key} is at version {version}, not {expected}.")
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "w", encoding="utf-8") as new:
                new.write(f'{{"version":{version + 1},"value":{text}}}')
            os.replace(name, path)
            return version + 1

    def _delete(self, namespace: str, key: str) -> bool:
        try:
            self._path(namespace, key).unlink()
        except FileNotFoundError:
            return False
        return True

    def _keys(self, namespace: str) -> list[str]:
        return sorted(unquote(path.stem) for path in (self.folder / _safe(namespace)).glob("[!.]*.json"))


def _safe(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")
