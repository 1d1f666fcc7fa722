"""proxy/shared_stops.py: the hash by which gateways tell each other what is stopped, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spangate.policies.ledger.ledger import StateUnavailable
from spangate.proxy.settings import State
from spangate.proxy.shared_stops import KEY, SharedStops, shared_by
from spangate.proxy.stops_file import REMEMBERED, Turn

from valkey_server import Valkey, cluster, valkey

NOW = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=1)
ON, OFF = Turn(True, NOW), Turn(False, NOW)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    with valkey(tmp_path / "valkey") as running:
        yield running


@asynccontextmanager
async def shared(url: str, *, clustered: bool = False) -> AsyncIterator[SharedStops]:
    found = shared_by(State.model_validate({"backend": "redis", "url": url, "cluster": clustered}))
    assert found is not None
    try:
        yield found
    finally:
        await found.close()


def test_in_memory_each_gateway_is_alone() -> None:
    assert shared_by(State()) is None


async def test_the_newest_word_is_everybodys(server: Valkey) -> None:
    async with shared(server.url) as one, shared(server.url) as two:
        assert await one.exchange({}, NOW) == {}
        assert await one.exchange({"team:a": ON, "model:m": Turn(True, EARLIER)}, NOW) == {"team:a": ON, "model:m": Turn(True, EARLIER)}
        assert await two.exchange({"model:m": OFF}, NOW) == {"team:a": ON, "model:m": OFF}
        assert await one.exchange({"model:m": Turn(True, EARLIER)}, NOW) == {"team:a": ON, "model:m": OFF}
        assert server.say("HGET", KEY, "team:a") == "stopped 2026-11-30T12:00:00.123456+00:00"


async def test_what_nobody_need_know_any_more_is_taken_away(server: Valkey) -> None:
    async with shared(server.url) as one:
        await one.exchange({"team:a": OFF, "team:b": ON}, NOW)
        await one.exchange({}, NOW + REMEMBERED)
        assert server.say("HKEYS", KEY) == ["team:b"]


async def test_what_somebody_else_wrote_there_is_passed_over(server: Valkey) -> None:
    for field, value in {"team:a": "paused 2026-11-30", "x": "stopped 2026-11-30", "team:b": "stopped never", "team:c": ""}.items():
        server.say("HSET", KEY, field, value)
    server.say("HSET", KEY, b"\xff\xfe", b"\xff")  # which is no text at all
    server.say("HSET", KEY, "team:d", "stopped 2026-11-30")
    async with shared(server.url) as one:
        assert list(await one.exchange({}, NOW)) == ["team:d"]


@pytest.mark.soak
async def test_a_cluster_too(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        async with shared(nodes[0].url, clustered=True) as one, shared(nodes[1].url, clustered=True) as two:
            await one.exchange({"team:a": ON}, NOW)
            assert await two.exchange({}, NOW) == {"team:a": ON}


async def test_a_server_that_is_away(server: Valkey) -> None:
    async with shared(server.url) as one:
        server.stop()
        with pytest.raises(StateUnavailable):
            await one.exchange({"team:a": ON}, NOW)
