"""agent/stores/base.py: every store keeps the same promises; one table, each store in turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spangate.agent import Agent, Conflict, FileStore, MemoryStore, NotJSON, ScriptedModel, SQLiteStore, Store
from spangate.agent.stores.base import written

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "file": lambda folder: FileStore(folder / "state"),
    "sqlite": lambda folder: SQLiteStore(folder / "state.db"),
}

pytestmark = pytest.mark.parametrize("name", STORES)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_keeps_versions_and_forgets(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    assert await store.get("a", "k") is None
    assert await store.put("a", "k", {"x": [1, None, "é"]}) == 1
    assert await store.put("a", "k", 2) == 2
    record = await store.get("a", "k")
    assert record is not None
    assert (record.value, record.version) == (2, 2)
    await store.put("a", "j", 1)
    assert await store.keys("a") == ["j", "k"]
    assert await store.delete("a", "k")
    assert not await store.delete("a", "k")
    assert await store.keys("a") == ["j"]


async def test_replaces_only_what_is_expected(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    assert await store.put("a", "k", 1, expected=0) == 1
    for wrong in (0, 2):
        with pytest.raises(Conflict):
            await store.put("a", "k", 2, expected=wrong)
    assert await store.put("a", "k", 2, expected=1) == 2
    with pytest.raises(Conflict):
        await store.put("a", "new", 1, expected=3)


async def test_of_many_writers_at_once_one_wins(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    done = await asyncio.gather(*(store.put("a", "k", n, expected=0) for n in range(10)), return_exceptions=True)
    assert [each for each in done if not isinstance(each, Conflict)] == [1]


async def test_keeps_namespaces_apart_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    odd = ["../x", "a/b", ".", "..", "a\x00b"[:1] + "é", "~", "CON"]
    for number, each in enumerate(odd):
        await store.put(each, each, number)
    assert [(record.value if (record := await store.get(each, each)) else None) for each in odd] == list(range(len(odd)))
    assert await store.keys("a/b") == ["a/b"]
    assert name != "file" or {len(path.relative_to(tmp_path / "state").parts) for path in files(tmp_path)} == {2}
    for wrong in ("", " "):
        with pytest.raises(ValueError, match="neither of them empty"):
            await store.get(wrong, "k")
        with pytest.raises(ValueError, match="neither of them empty"):
            await store.put("a", wrong, 1)


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), {"x": {1, 2}}, b"x"], ids=str)
async def test_takes_json_and_nothing_else(value: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(NotJSON, match="State must be JSON"):
        await STORES[name](tmp_path).put("a", "k", value)


@pytest.mark.parametrize("value", ["half \ud83d a face", {"\ud83d": [2**70, -0.5, True, None, "é", (1, 2)]}], ids=["text", "all kinds"])
async def test_gives_back_what_it_took(value: Any, name: str, tmp_path: Path) -> None:
    """A stream may cut an answer in the middle of a character."""
    store = STORES[name](tmp_path)
    await store.put("a", "k", value)
    record = await store.get("a", "k")
    assert record is not None
    assert record.value == json.loads(json.dumps(value))


async def test_many_replies_of_one_thread_at_once_are_all_kept(name: str, tmp_path: Path) -> None:
    agent = Agent("a", None, ScriptedModel(), store=STORES[name](tmp_path))
    await asyncio.gather(*(agent(f"words {number}", thread="t") for number in range(50)))
    said = [msg.text for msg in await agent.history("t") if msg.role == "user"]
    assert sorted(said) == sorted(f"words {number}" for number in range(50))


async def test_nobody_shares_an_object_with_it(name: str, tmp_path: Path) -> None:
    store = STORES[name](tmp_path)
    value = {"x": [1]}
    await store.put("a", "k", value)
    value["x"].append(2)
    record = await store.get("a", "k")
    assert record is not None
    assert record.value == {"x": [1]}


def test_what_holds_itself_is_refused(name: str) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotJSON, match="nested too deep"):
        written(loop)
