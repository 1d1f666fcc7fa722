"""agent/stores/memory.py: two stores share nothing."""

from __future__ import annotations

from spangate.agent import MemoryStore


async def test_two_stores_share_nothing() -> None:
    one, other = MemoryStore(), MemoryStore()
    await one.put("a", "k", 1)
    assert await other.get("a", "k") is None
