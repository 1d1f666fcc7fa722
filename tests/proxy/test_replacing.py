"""proxy/replacing.py: a reader sees the old or the new, a writer loses nothing."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from spangate.proxy.replacing import alone_with, replace_whole


def test_it_is_replaced_with_its_mode_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_whole(path, "one")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("one", 0o600)
    replace_whole(path, "zwö", mode=0o644)
    assert (path.read_text("utf-8"), stat.S_IMODE(path.stat().st_mode)) == ("zwö", 0o644)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_through_a_link_not_over_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    replace_whole(link, "one")
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "one"


def test_what_can_not_be_replaced_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_whole(tmp_path / "folder", "one")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")

    def add() -> None:
        for _ in range(20):
            with alone_with(path):
                replace_whole(path, str(int(path.read_text()) + 1))

    threads = [threading.Thread(target=add) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "100"
