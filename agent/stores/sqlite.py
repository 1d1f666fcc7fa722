"""A store in an SQLite database, which several processes may share."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..errors import Conflict
from .base import Record, named, written

if TYPE_CHECKING:
    import sqlite3

_TABLE = """CREATE TABLE IF NOT EXISTS state (
    namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (namespace, key)
) WITHOUT ROWID"""


class SQLiteStore:
    """Keeps values in the database at `path`. Its work is done in threads, one statement at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        if self.path == ":memory:":
            raise ValueError("Each statement opens the database anew, so it must be a file; MemoryStore keeps state in memory.")
        self._lock = threading.Lock()
        self._made = False

    async def get(self, namespace: str, key: str) -> Record | None:
        named(namespace, key)
        rows = await asyncio.to_thread(self._run, "SELECT value, version FROM state WHERE namespace = ? AND key = ?", namespace, key)
        return Record(json.loads(rows[0][0]), rows[0][1]) if rows else None

    async def put(self, namespace: str, key: str, value: Any, *, expected: int | None = None) -> int:
        named(namespace, key)
        return await asyncio.to_thread(self._put, namespace, key, written(value), expected)

    async def delete(self, namespace: str, key: str) -> bool:
        named(namespace, key)
        statement = "DELETE FROM state WHERE namespace = ? AND key = ? RETURNING 1"
        return bool(await asyncio.to_thread(self._run, statement, namespace, key))

    async def keys(self, namespace: str) -> list[str]:
        rows = await asyncio.to_thread(self._run, "SELECT key FROM state WHERE namespace = ? ORDER BY key", namespace)
        return [row[0] for row in rows]

    def _put(self, namespace: str, key: str, text: str, expected: int | None) -> int:
        statement = (
            "INSERT INTO state VALUES (?1, ?2, ?3, 1) ON CONFLICT DO UPDATE SET value = ?3, version = version + 1"
            " WHERE ?4 IS NULL OR version = ?4 RETURNING version"
        )
        if expected:
            statement = (
                "UPDATE state SET value = ?3, version = version + 1 WHERE namespace = ?1 AND key = ?2 AND version = ?4 RETURNING version"
            )
        rows = self._run(statement, namespace, key, text, expected)
        if not rows:
            raise Conflict(f"{namespace}/{key} is not at version {expected} any more.")
        return int(rows[0][0])

    def _run(self, statement: str, *values: Any) -> list[Any]:
        with self._lock, closing(self._opened()) as database:
            rows = database.execute(statement, values).fetchall()
            database.commit()
            return rows

    def _opened(self) -> sqlite3.Connection:
        import sqlite3

        database = sqlite3.connect(self.path, timeout=10)
        if not self._made:
            database.execute(_TABLE)
            database.commit()
            self._made = True
        return database
