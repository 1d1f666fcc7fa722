"""proxy/switches.py: what is stopped is seen in time, and what can't be read changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spangate.policies.ledger.server import Server
from spangate.proxy import stops_file
from spangate.proxy.mistakes import ConfigMistakes
from spangate.proxy.settings import State
from spangate.proxy.shared_stops import TIMEOUT, SharedStops, shared_by
from spangate.proxy.stops_file import Turn, Turns
from spangate.proxy.switches import EVERY, PATIENCE, Switches

from case import logged
from gateway import until
from valkey_server import valkey


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def at_work(path: Path, shared: SharedStops | None = None, every: float = 0.01) -> AsyncIterator[Switches]:
    switches = Switches(path, shared, every=every)
    await switches.start()
    try:
        yield switches
    finally:
        await switches.aclose()


def on(switches: Switches) -> list[str]:
    return list(switches.now.since)


async def test_without_a_file_nothing_is_ever_stopped() -> None:
    switches = Switches()
    await switches.start()
    await switches.look()
    assert (on(switches), switches.problem) == ([], "")
    await switches.aclose()
    await switches.aclose()


async def test_a_turn_is_seen_and_logged(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    async with logged() as log, at_work(path) as switches:
        assert on(switches) == []
        stops_file.turn(path, "team:search", stopped=True, now=now())
        await until(lambda: on(switches) == ["team:search"])
        stops_file.turn(path, "team:search", stopped=False, now=now())
        await until(lambda: on(switches) == [])
        assert [line for line in log.lines if "team:search" in line] == ["stopped: team:search", "resumed: team:search"]


async def test_it_is_seen_within_a_second_as_gateways_look(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    switches = Switches(path)
    await switches.start()
    stops_file.turn(path, "team:search", stopped=True, now=now())
    await until(lambda: on(switches) == ["team:search"])
    await switches.aclose()
    assert EVERY <= 0.5, "with time to spare for a machine that is busy"


async def test_it_is_known_before_the_first_look_and_at_once_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops_file.turn(path, "model:m", stopped=True, now=now())
    assert on(Switches(path)) == ["model:m"]
    async with at_work(path, every=3600) as switches:
        stops_file.turn(path, "model:n", stopped=True, now=now())
        await switches.look()
        assert on(switches) == ["model:m", "model:n"]


class Odd(SharedStops):
    """Goes on only when it is told to, and then fails."""

    def __init__(self) -> None:
        super().__init__(Server("unix:///nobody"))
        self.begun = False
        self.asked, self.fails = asyncio.Event(), asyncio.Event()

    async def exchange(self, mine: Turns, now: datetime) -> Turns:
        if self.begun:
            self.asked.set()
            await self.fails.wait()
            raise RuntimeError("a mistake of ours")
        self.begun = True
        return mine


async def test_what_hangs_holds_up_no_end(tmp_path: Path) -> None:
    odd = Odd()
    async with asyncio.timeout(PATIENCE + 5), logged() as log, at_work(tmp_path / "stops", odd):
        await odd.asked.wait()
    assert log.lines == []


async def test_where_nobody_looks_any_more_it_says_so(tmp_path: Path) -> None:
    odd = Odd()
    async with logged() as log, at_work(tmp_path / "stops", odd) as switches:
        odd.fails.set()
        await until(lambda: switches.problem == "no longer looked for: restart the gateway")
        assert [line for line in log.lines if "no longer looked for" in line]


def test_a_gateway_does_not_begin_without_knowing(tmp_path: Path) -> None:
    (tmp_path / "stops").write_text("stopped: [")
    with pytest.raises(ConfigMistakes, match="stops:2:1"):
        Switches(tmp_path / "stops")


async def test_what_can_not_be_read_changes_nothing_and_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops_file.turn(path, "model:m", stopped=True, now=now())
    good = path.read_text()
    async with logged() as log, at_work(path, every=3600) as switches:
        path.write_text("stopped: [")
        for _ in range(3):
            await switches.look()
        assert on(switches) == ["model:m"]
        assert switches.problem.startswith("stops:2:1: is not YAML")
        assert len([line for line in log.lines if "is not YAML" in line]) == 1
        path.write_text(good)
        await switches.look()
        assert (on(switches), switches.problem) == (["model:m"], "")


async def test_a_file_that_is_gone_counts_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops_file.turn(path, "model:m", stopped=True, now=now())
    async with at_work(path, every=3600) as switches:
        path.unlink()
        await switches.look()
        stops_file.turn(path, "model:m", stopped=True, now=now())
        await switches.look()
        path.unlink()
        await switches.look()
        assert on(switches) == ["model:m"], "an editor may be writing it anew"
        await switches.look()
        assert on(switches) == []


async def test_many_who_ask_at_once_and_an_end_in_between(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    stops_file.turn(path, "model:m", stopped=True, now=now())
    async with at_work(path) as switches:
        looks = [asyncio.create_task(switches.look()) for _ in range(20)]
        await asyncio.gather(*looks)
        assert on(switches) == ["model:m"]
    await switches.look()
    assert on(switches) == ["model:m"]
    await until(lambda: not any(thread.name.startswith("spangate.switches") for thread in threading.enumerate()))


# ---- several gateways on one state


async def test_what_one_is_told_all_hold_to(tmp_path: Path) -> None:
    with valkey(tmp_path / "valkey") as server:
        paths = [tmp_path / "a", tmp_path / "b"]
        async with at_work(paths[0], server_of(server.url)) as one, at_work(paths[1], server_of(server.url)) as two:
            stops_file.turn(paths[0], "team:search", stopped=True, now=now())
            await until(lambda: on(two) == ["team:search"])
            await until(lambda: "team:search" in stops_file.load(paths[1]))
            stops_file.turn(paths[1], "team:search", stopped=False, now=now())
            await until(lambda: on(one) == on(two) == [])
            await until(lambda: not stops_file.load(paths[0])["team:search"].stopped)


async def test_it_holds_while_the_server_is_away_and_is_told_when_it_is_back(tmp_path: Path) -> None:
    with valkey(tmp_path / "valkey") as server:
        paths = [tmp_path / "a", tmp_path / "b"]
        async with at_work(paths[0], server_of(server.url)) as one, at_work(paths[1], server_of(server.url)) as two:
            stops_file.turn(paths[0], "team:search", stopped=True, now=now())
            await until(lambda: on(two) == ["team:search"])
            server.stop()
            await until(lambda: "other gateways can't be told or asked" in one.problem)
            stops_file.turn(paths[0], "model:m", stopped=True, now=now())
            await until(lambda: on(one) == ["model:m", "team:search"])
            assert on(two) == ["team:search"]
            server.start()  # and has forgotten everything
            await until(lambda: on(two) == ["model:m", "team:search"], 5)
            await until(lambda: one.problem == two.problem == "")


async def test_one_that_was_away_learns_before_it_answers_and_brings_no_old_word_back(tmp_path: Path) -> None:
    with valkey(tmp_path / "valkey") as server:
        paths = [tmp_path / "a", tmp_path / "b"]
        stops_file.turn(paths[1], "team:old", stopped=True, now=datetime(2026, 1, 1, tzinfo=UTC))
        async with at_work(paths[0], server_of(server.url)) as one:
            stops_file.keep(paths[0], {"team:old": Turn(False, now()), "team:new": Turn(True, now())}, now())
            await until(lambda: on(one) == ["team:new"])
            async with at_work(paths[1], server_of(server.url), every=3600) as two:
                assert on(two) == ["team:new"]
                await one.look()
                assert on(one) == ["team:new"]


async def test_a_server_that_hangs_keeps_nobody_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stops"
    with valkey(tmp_path / "valkey") as server:
        shared = shared_by(State.model_validate({"backend": "redis", "url": server.url}))
        async with at_work(path, shared, every=EVERY) as switches:
            server.pause()
            await until(lambda: switches.problem != "")
            stops_file.turn(path, "team:search", stopped=True, now=now())
            await until(lambda: on(switches) == ["team:search"])
            assert EVERY + TIMEOUT <= 0.7, "between two looks at the file"
            server.resume()
            await until(lambda: switches.problem == "")


async def test_what_others_stopped_holds_where_it_can_not_be_written(tmp_path: Path) -> None:
    with valkey(tmp_path / "valkey") as server:
        (tmp_path / "b.lock").mkdir()
        async with at_work(tmp_path / "a", server_of(server.url)), at_work(tmp_path / "b", server_of(server.url)) as two:
            stops_file.turn(tmp_path / "a", "team:search", stopped=True, now=now())
            await until(lambda: on(two) == ["team:search"])
            await until(lambda: "b can't be written, so a restart forgets what others stopped" in two.problem)
            (tmp_path / "b.lock").rmdir()
            await until(lambda: two.problem == "")
            assert stops_file.load(tmp_path / "b")["team:search"].stopped


def server_of(url: str) -> SharedStops:
    return SharedStops(Server(url))
