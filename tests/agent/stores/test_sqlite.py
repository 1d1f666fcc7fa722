"""agent/stores/sqlite.py: two on one database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spangate.agent import Conflict, SQLiteStore


def test_a_database_is_a_file() -> None:
    with pytest.raises(ValueError, match="MemoryStore keeps state in memory"):
        SQLiteStore(":memory:")


async def test_two_on_one_database_count_together(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "s.db") for _ in range(2)]

    async def add(store: SQLiteStore) -> None:
        while True:
            record = await store.get("a", "n")
            try:
                await store.put("a", "n", (record.value if record else 0) + 1, expected=record.version if record else 0)
            except Conflict:
                continue
            return

    await asyncio.gather(*(add(stores[number % 2]) for number in range(20)))
    record = await stores[0].get("a", "n")
    assert record is not None
    assert record.value == 20
