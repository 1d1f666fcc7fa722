"""agent/stores/file.py: what is on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spangate.agent import FileStore


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_value_is_a_file_that_others_may_read(tmp_path: Path) -> None:
    await FileStore(tmp_path).put("tenant/threads", "ann", {"x": "é"})
    [path] = files(tmp_path)
    assert path.parent == tmp_path / "tenant%2Fthreads"
    assert json.loads(path.read_text("utf-8")) == {"version": 1, "value": {"x": "é"}}
    assert path.stat().st_mode & 0o077 == 0


async def test_another_store_on_the_same_folder_goes_on(tmp_path: Path) -> None:
    await FileStore(tmp_path).put("a", "k", 1)
    assert await FileStore(tmp_path).put("a", "k", 2, expected=1) == 2


async def test_a_name_that_is_too_long_for_a_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long for names of files; SQLiteStore takes them"):
        await FileStore(tmp_path).put("a", "é" * 99, 1)
