"""A Valkey that is stopped, silent, slow, restarted, or fails over to another: each rule does to the letter what its `on_state_error`
says, `/readyz` and the metric tell of it, and within five seconds after it is there again all is as it was, without a restart.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from redis.crc import key_slot

from spangate.policies.ledger.server import lease_key

from between import Between
from case import KEY, Answer, Case, case, key_hash
from ledgers import until
from upstream import LAST_CHUNK, C, D, F, U, chat_completion, chunk, http, play, sse_head
from valkey_server import Valkey, cluster, pair, valkey

HEALED = 5.0  # seconds
USED = 30  # tokens of a call
RULES: dict[str, list[dict[str, Any]]] = {
    "search": [{"budget": {"name": "b", "limit": "1M", "window": "total", "models": ["m"]}}],
    "lenient": [{"budget": {"name": "b", "limit": 40, "window": "total", "on_state_error": "allow"}}],
    "local": [{"rate_limit": {"requests": "3/h"}}],
    "strict": [{"rate_limit": {"requests": "100/h", "on_state_error": "refuse"}}],
    "free": [{"rate_limit": {"requests": "1/h", "on_state_error": "allow"}}],
    "provider": [{"rate_limit": {"requests": "3/h", "per": "provider"}}],
    "both": [{"rate_limit": {"requests": "3/h"}}, {"budget": {"name": "b", "limit": "1M", "window": "total", "on_state_error": "allow"}}],
    "neither": [{"rate_limit": {"requests": "3/h"}}, {"budget": {"name": "b", "limit": "1M", "window": "total"}}],
}
KEYS = {team: KEY if team == "search" else f"sg-of-{team}" for team in RULES}
WELL = {team: [200] for team in RULES}
AWAY = {
    "search": [503] * 5,
    "lenient": [200] * 5,  # though it has used up what it had
    "local": [200, 200, 200, 429, 429],
    "strict": [503] * 5,
    "free": [200] * 5,
    "provider": [200, 200, 200, 429, 429],
    "both": [200, 200, 200, 429, 429],
    "neither": [503] * 5,
}


class Scene(Case):
    """A gateway whose counters are on a Valkey."""

    answered: dict[str, int]

    async def call(self, team: str) -> Answer:
        answer = await self.ask({"max_tokens": 20}, key=KEYS[team])
        self.answered[team] += answer.status == 200
        return answer

    async def called(self, expected: dict[str, list[int]]) -> None:
        """Each team calls so often, one after the other, all teams at once."""

        async def calls(team: str, statuses: Sequence[int]) -> None:
            for status in statuses:
                answer = await self.call(team)
                assert answer.status == status, (team, answer.body)
                if status == 503:
                    assert (answer.error["code"], answer.error["type"]) == ("state_unavailable", "server_error")
                    assert answer.header("retry-after") == "1"
                if status == 429:
                    assert answer.error["code"] == "rate_limit_exceeded"

        await asyncio.gather(*(calls(*each) for each in expected.items()))

    async def told(self) -> tuple[int, bool, float]:
        """What `/readyz` says: its status, and whether it names the counters; and the metric."""
        ready = await self.ask(path="/readyz", method="GET")
        page = (await self.ask(path="/metrics", method="GET")).body.decode()
        [value] = re.findall(r"^spangate_state_unavailable(?:\{.*\})? (\S+)", page, re.MULTILINE)
        return ready.status, "shared counters" in ready.json().get("state", ""), float(value)

    async def tells(self, *expected: Any, patience: float = HEALED) -> None:
        async def so() -> bool:
            return await self.told() == expected

        await until(so, patience)

    async def heals(self, began: float) -> None:
        """Calls that need the counters are answered again."""

        async def well() -> bool:
            return (await self.call("search")).status == 200

        await until(well, HEALED)
        await self.tells(200, False, 0.0, patience=HEALED - (time.monotonic() - began))

    async def budget(self, team: str) -> tuple[float, float]:
        answer = await self.ask(path="/v1/key", method="GET", key=KEYS[team])
        [row] = answer.json()["budgets"] if answer.status == 200 else [{"used": -1, "reserved": -1}]
        return row["used"], row["reserved"]

    async def counted(self, team: str) -> None:
        """All that it was answered is counted once, and nothing is held."""

        async def so() -> bool:
            return await self.budget(team) == (self.answered[team] * USED, 0)

        await until(so)

    def forgotten(self) -> None:
        self.answered = dict.fromkeys(RULES, 0)


@asynccontextmanager
async def scene(folder: Path, url: str, rules: dict[str, list[dict[str, Any]]] = RULES, **sections: Any) -> AsyncIterator[Scene]:
    teams = {team: {"keys": [{"name": "ci", "hash": key_hash(KEYS[team])}], "policies": each} for team, each in rules.items()}
    answers = play(http(200, [("content-type", "application/json")], chat_completion("x", (10, 20))))
    state = {"backend": "redis", "url": url, **sections.pop("state", {})}
    async with case(folder, answers, teams=teams, state=state, telemetry={}, **sections) as it:
        found = Scene(it.running, it.up, it.log, it.key)
        found.forgotten()
        yield found
        it.rows += found.rows


@dataclass
class Servers:
    """Who has the counters, who could, and the way there."""

    first: Valkey
    second: Valkey
    way: Between


def change_roles(servers: Servers) -> None:
    servers.second.promote()
    servers.first.say("REPLICAOF", "127.0.0.1", servers.second.port)


def lead_to_the_second(servers: Servers) -> None:
    servers.way.where = servers.second.where


def promote_the_second(servers: Servers) -> None:
    servers.second.promote()
    lead_to_the_second(servers)


@dataclass
class Fault:
    breaks: Callable[[Servers], None]
    mends: Callable[[Servers], None]
    forgets: bool = False


FAULTS = {
    "stopped": Fault(lambda on: on.first.stop(), lambda on: on.first.start(), forgets=True),
    "silent": Fault(lambda on: on.first.pause(), lambda on: on.first.resume()),
    "slow": Fault(lambda on: setattr(on.way, "delay", 0.6), lambda on: setattr(on.way, "delay", 0.0)),
    "dead, with a replica": Fault(lambda on: on.first.stop(), promote_the_second),
    "mute, with a replica": Fault(lambda on: on.first.pause(), promote_the_second),
    "a replica itself by now": Fault(change_roles, lead_to_the_second),
}


@contextmanager
def two() -> Iterator[tuple[Valkey, Valkey]]:
    with TemporaryDirectory(prefix="valkey-") as folder, pair(Path(folder)) as servers:
        yield servers


@pytest.mark.fault("RL-01")
@pytest.mark.parametrize("name", FAULTS)
async def test_each_rule_does_what_it_says_while_the_counters_are_away(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    with two() as (first, second):
        async with Between(first.where) as way, scene(tmp_path, way.url) as it:
            servers = Servers(first, second, way)
            await it.called(WELL)
            await asyncio.gather(*(it.call("search") for _ in range(64)))  # as many connections as there may be
            assert [(await it.call(team)).status for team in ("lenient", "free")] == [429, 429]
            await it.tells(200, False, 0.0)
            for team in ("search", "lenient", "both"):
                await it.counted(team)
            assert await asyncio.to_thread(first.say, "WAIT", 1, 5000) == 1
            fault.breaks(servers)
            if fault.forgets:
                it.forgotten()
            await it.called(AWAY)
            await it.tells(503, True, 1.0)
            await it.called({team: statuses[-1:] for team, statuses in AWAY.items()})
            began = time.monotonic()
            await asyncio.to_thread(fault.mends, servers)
            await it.heals(began)
            assert {each.status for each in await asyncio.gather(*(it.call("search") for _ in range(64)))} == {200}, "on no old connection"
            for team in ("search", "lenient", "both"):
                await it.counted(team)
            assert (await it.call("lenient")).error["code"] == "budget_exceeded", "what it used meanwhile is known"


@pytest.fixture
def server() -> Iterator[Valkey]:
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as started:
        yield started


@pytest.mark.parametrize("how", ["stopped", "silent"])
async def test_it_is_told_though_nobody_calls(how: str, server: Valkey, tmp_path: Path) -> None:
    async with scene(tmp_path, server.url) as it:
        await it.tells(200, False, 0.0)
        (server.stop if how == "stopped" else server.pause)()
        await it.tells(503, True, 1.0)
        await asyncio.to_thread(server.start if how == "stopped" else server.resume)
        await it.tells(200, False, 0.0)
        assert it.up.requests == []


async def test_it_is_told_from_the_start(server: Valkey, tmp_path: Path) -> None:
    server.stop()
    async with scene(tmp_path, server.url) as it:
        await it.tells(503, True, 1.0)
        await it.called(AWAY)
        began = time.monotonic()
        await asyncio.to_thread(server.start)
        await it.heals(began)


async def test_who_refuses_nobody_stays_ready_and_says_so(server: Valkey, tmp_path: Path) -> None:
    rules = {team: RULES[team] for team in ("local", "lenient")}
    async with scene(tmp_path, server.url, {"search": RULES["free"], **rules}) as it:
        server.stop()
        await it.tells(200, True, 1.0)
        await it.called({team: AWAY[team] for team in rules})
        await asyncio.to_thread(server.start)
        await it.tells(200, False, 0.0)


async def test_a_restart_between_two_calls_is_hardly_seen(server: Valkey, tmp_path: Path) -> None:
    async with scene(tmp_path, server.url) as it:
        await it.called(WELL)
        for team in ("search", "lenient"):
            await it.counted(team)
        server.stop()
        began = time.monotonic()
        await asyncio.to_thread(server.start)
        it.forgotten()
        await it.called({team: [200] for team in RULES})
        assert time.monotonic() - began < HEALED
        for team in ("search", "lenient"):
            await it.counted(team)


async def test_a_counter_of_another_type_is_named_and_keeps_out_those_alone_who_need_it(server: Valkey, tmp_path: Path) -> None:
    async with scene(tmp_path, server.url) as it:
        await it.called(WELL)
        await it.counted("search")
        [key] = server.everything("*:c:b*|search|*")
        server.say("SET", key, "theirs")
        await it.called({"search": [503] * 5, "strict": [200], "neither": [200]})
        await it.tells(200, True, 1.0)
        ready = await it.ask(path="/readyz", method="GET")
        assert key in ready.json()["state"], "on this machine it is named"
        assert "delete it" in ready.json()["state"]
        assert re.search(
            r"^spangate_state_lost_total(?:\{.*\})? 0", (await it.ask(path="/metrics", method="GET")).body.decode(), re.MULTILINE
        )
        server.say("DEL", key)
        it.answered["search"] = 0
        await it.heals(time.monotonic())
        await it.counted("search")


async def test_a_key_of_another_type_that_all_counters_need_is_as_bad_as_no_server(server: Valkey, tmp_path: Path) -> None:
    async with scene(tmp_path, server.url) as it:
        await it.called(WELL)
        await it.counted("search")
        server.say("SET", "spangate:{default}:leases", "theirs")
        assert (await it.call("search")).status == 503
        await it.tells(503, True, 1.0)
        server.say("DEL", "spangate:{default}:leases")
        await it.heals(time.monotonic())


@pytest.mark.parametrize("how", ["stopped", "silent"])
async def test_calls_under_way_end_well_and_are_counted_once(how: str, server: Valkey, tmp_path: Path) -> None:
    async with scene(tmp_path, server.url) as it:
        gate = asyncio.Event()
        whole = http(200, [("content-type", "application/json")], chat_completion("x", (10, 20)))
        it.up.script = play(gate, whole)
        under_way = [asyncio.create_task(it.call(team)) for team in ("search", "lenient", "both")]
        await it.up.request(2)
        it.up.script = play(whole)
        assert (await it.budget("search"))[1] > 0
        (server.stop if how == "stopped" else server.pause)()
        await it.tells(503, True, 1.0)
        gate.set()
        assert [(await each).status for each in under_way] == [200] * 3
        await asyncio.to_thread(server.start if how == "stopped" else server.resume)
        for team in ("search", "lenient", "both"):
            await it.counted(team)


async def test_what_more_a_stream_needs_is_refused_or_allowed(server: Valkey, tmp_path: Path) -> None:
    """A stream without a cap gets its tokens in slices: one that can't be had ends it, where its budget refuses."""
    rule = {"name": "b", "limit": "1M", "window": "total", "cap_output": False, "weights": {"input": 0}}
    rules = {"search": [{"budget": rule | {"models": ["m"]}}], "lenient": [{"budget": rule | {"on_state_error": "allow"}}]}
    async with scene(tmp_path, server.url, rules) as it:
        gate = asyncio.Event()
        long = chunk(C("word " * 4000))
        it.up.script = play(sse_head(), chunk(C("w")), gate, long, long, chunk(F("stop") + U(10, 20) + D) + LAST_CHUNK)
        under_way = {team: asyncio.create_task(it.ask({"stream": True}, key=KEYS[team])) for team in rules}
        await it.up.request(1)
        server.stop()
        await it.tells(503, True, 1.0)
        gate.set()
        ends = {team: (await task).body.decode() for team, task in under_way.items()}
        assert '"length"' in ends["search"]
        assert '"stop"' in ends["lenient"]
        assert all(end.endswith("data: [DONE]\n\n") for end in ends.values())
        await asyncio.to_thread(server.start)
        await it.tells(200, False, 0.0)
        it.answered["lenient"] = 20 / USED  # type: ignore[assignment]
        await it.counted("lenient")


@pytest.mark.soak
async def test_a_cluster_that_fails_over(tmp_path: Path) -> None:
    """The node that has this organisation's counters dies, and its replica takes over."""
    with TemporaryDirectory(prefix="valkey-") as folder, cluster(Path(folder), replicas=1) as nodes:
        share = 16384 // 3 + 1
        organisation = next(name for name in map("org-{}".format, range(100)) if key_slot(lease_key(name).encode()) >= 2 * share)
        sections = {"organisation": organisation, "state": {"cluster": True}}
        async with scene(tmp_path, nodes[0].url, {team: RULES[team] for team in RULES if team != "provider"}, **sections) as it:
            rules = {team: statuses for team, statuses in AWAY.items() if team != "provider"}
            await it.called({team: [200] for team in rules})
            for team in ("search", "lenient", "both"):
                await it.counted(team)
            assert await asyncio.to_thread(nodes[2].say, "WAIT", 1, 5000) == 1
            nodes[2].stop()
            await it.called({team: statuses[:1] for team, statuses in rules.items()})
            await it.tells(503, True, 1.0)

            async def taken_over() -> bool:
                return (await asyncio.to_thread(nodes[3].say, "ROLE"))[0] == "master"

            await until(taken_over, 30)
            await it.heals(time.monotonic())
            for team in ("search", "lenient", "both"):
                await it.counted(team)
