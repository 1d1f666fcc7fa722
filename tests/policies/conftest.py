"""Both ledgers, for tests that both must pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ledgers import Backend, InMemory, OnServer
from valkey_server import Valkey, valkey


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[Valkey]:
    """One for all tests that leave it as it was; their counters have names of their own."""
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as server:
        yield server


@pytest.fixture(params=["memory", "valkey"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("shared_valkey"))
