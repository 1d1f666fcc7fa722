"""A database that is open, for tests that write to one and ask it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spangate.exporters.usage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "usage.duckdb")
    made.open()
    yield made
    made.close()
