"""The shared ledger on a real cluster: each home on its node, all of a home's counters in one slot, and a node that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.policies.windows import InFlight

from ledgers import MONTH, claim, figures, fresh, reserved, settled, until, used
from valkey_server import Valkey, cluster

HOMES = [f"org-{number}" for number in range(12)] + ["provider:openai", "provider:claude"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Sequence[Valkey]]:
    with TemporaryDirectory(prefix="valkey-") as folder, cluster(Path(folder)) as servers:
        yield servers


async def test_every_home_has_a_slot_and_homes_are_spread(nodes: Sequence[Valkey]) -> None:
    ledger = ValkeyLedger(nodes[0].url, cluster=True)
    try:
        holds = {}
        for home in HOMES:
            asked = [claim("month", 10, 100, MONTH, home=home), claim("rpm", 1, 60, "rolling 60s", home=home)]
            hold = ledger.hold(fresh())
            assert (await hold.reserve([*asked, claim("calls", 1, 2, InFlight(), home=home)])).admitted
            assert (await hold.extend(asked)).admitted
            holds[home] = hold
        for hold in holds.values():
            hold.settle({"month": hold.held[0].amount // 4})
        await settled(ledger)
        for home in HOMES:
            assert await figures(ledger, claim("month", 0, 100, MONTH, home=home)) == (5, 0)
            assert {each.counter.name for each in await ledger.every(home)} == {"month", "rpm"}
        here = [{key.split("{")[1].split("}")[0] for key in node.everything()} for node in nodes]
        assert all(here)
        assert sum(len(each) for each in here) == len(HOMES), "no home is on two nodes"
    finally:
        await ledger.close()


async def test_parallel_calls_of_many_homes_stay_within_each_ones_limit(nodes: Sequence[Valkey]) -> None:
    name = fresh()
    ledger = ValkeyLedger(nodes[1].url, cluster=True)
    try:
        holds = [(ledger.hold(fresh()), home) for home in HOMES for _ in range(20)]
        answers = await asyncio.gather(*(hold.reserve([claim(name, 10, 100, home=home)]) for hold, home in holds))
        assert sum(answer.admitted for answer in answers) == 10 * len(HOMES)
        for hold, _ in holds:
            hold.settle({})
        await settled(ledger)
        for home in HOMES:
            assert await figures(ledger, claim(name, 0, 100, home=home)) == (100, 0)
    finally:
        await ledger.close()


@pytest.mark.soak
async def test_a_cluster_that_loses_a_node_says_so_and_heals() -> None:
    with TemporaryDirectory(prefix="valkey-") as folder, cluster(Path(folder)) as servers:
        ledger = ValkeyLedger(servers[0].url, cluster=True)
        try:
            for home in HOMES:
                await used(ledger, claim("month", 10, 1000, home=home))
            servers[2].pause()
            failed = 0
            for home in HOMES * 3:
                hold = ledger.hold(fresh())
                try:
                    await hold.reserve([claim("month", 10, 1000, home=home)])
                except StateUnavailable:
                    failed += 1
                hold.release()
            away = failed // 3
            assert 0 < away < len(HOMES)

            async def others_are_written() -> bool:
                return ledger.settling.left <= failed

            await until(others_are_written)
            servers[2].resume()
            await settled(ledger)
            assert ledger.problem == ""
            assert [await figures(ledger, claim("month", 0, 1000, home=home)) for home in HOMES] == [(10, 0)] * len(HOMES)
        finally:
            await ledger.close()


@pytest.mark.soak
async def test_a_cluster_whose_master_dies_goes_on_with_its_replica() -> None:
    with TemporaryDirectory(prefix="valkey-") as folder, cluster(Path(folder), replicas=1) as servers:
        ledger = ValkeyLedger(servers[0].url, cluster=True)
        try:
            for home in HOMES:
                await used(ledger, claim("month", 10, 1000, home=home))
            held = {home: await reserved(ledger, claim("month", 10, 1000, home=home)) for home in HOMES}
            servers[2].say("WAIT", 1, 5000)
            servers[2].stop()

            async def all_answer() -> bool:
                try:
                    return [(await figures(ledger, claim("month", 0, 1000, home=home)))[0] for home in HOMES] == [10] * len(HOMES)
                except StateUnavailable:
                    return False

            await until(all_answer, 20)
            for hold in held.values():
                hold.settle({"month": hold.held[0].amount // 2})
            await settled(ledger)
            assert [await figures(ledger, claim("month", 0, 1000, home=home)) for home in HOMES] == [(15, 0)] * len(HOMES)
            assert ledger.problem == ""
        finally:
            await ledger.close()
