"""Any story of holds, told to a ledger and to a model of three lines: they agree after each step, and nobody spends what another holds."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spangate.policies.ledger.ledger import Ledger, nano

from ledgers import NAMES, Backend, Tale, claim, fresh, settled

amounts = st.one_of(st.integers(0, 60), st.decimals(0, 60, places=9))
asked = st.dictionaries(st.sampled_from(NAMES), amounts, min_size=1)
steps = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 5), asked),
    st.tuples(st.just("extend"), st.integers(0, 5), asked),
    st.tuples(st.just("settle"), st.integers(0, 5), asked),
    st.tuples(st.just("release"), st.integers(0, 5), st.just({})),
)
a_story = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@a_story
@given(st.lists(steps, max_size=30), st.fixed_dictionaries({name: st.integers(0, 150) for name in NAMES}))
async def test_a_ledger_and_its_model_agree(backend: Backend, story: list[Any], limits: dict[str, int]) -> None:
    tale = Tale(limits)
    async with backend.ledger() as ledger:
        for step, number, wanted in story:
            if await tale.goes_on(ledger, step, number, wanted):
                await tale.agrees(ledger)
        for hold in tale.live.values():
            hold.release()
        await settled(ledger)


@pytest.mark.fault("BUD-01")
@a_story
@given(st.integers(0, 2**32))
async def test_whoever_runs_at_once_stays_within_every_limit(backend: Backend, seed: int) -> None:
    """Calls of random size, that settle at no more than they held, leave, or are cancelled while they ask."""
    dice, run = random.Random(seed), fresh()
    limits = {name: dice.randint(50, 500) for name in ("a", "b", "c")}
    spent = dict.fromkeys(limits, 0)

    async def call(ledger: Ledger) -> None:
        wanted = {name: dice.randint(0, 60) for name in limits if dice.random() < 0.7}
        hold = ledger.hold(fresh())
        try:
            answer = await hold.reserve([claim(f"{name}-{run}", amount, limits[name], "day") for name, amount in wanted.items()])
            if not answer.admitted:
                return
            await asyncio.sleep(0)
            if dice.random() < 0.8:
                actual = {name: dice.randint(0, amount) for name, amount in wanted.items()}
                hold.settle({f"{name}-{run}": nano(amount) for name, amount in actual.items()})
                for name, amount in actual.items():
                    spent[name] += amount
        finally:
            hold.release()

    async with backend.ledger() as ledger:
        tasks = [asyncio.create_task(call(ledger)) for _ in range(40)]
        await asyncio.sleep(0)
        for task in dice.sample(tasks, 5):
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in ended), ended
        assert sum(spent.values()) > 0
        await settled(ledger)
        found = await ledger.read([claim(f"{name}-{run}", 0, limit, "day") for name, limit in limits.items()])
        for each, (name, limit) in zip(found, limits.items(), strict=True):
            assert (each.used, each.reserved) == (nano(spent[name]), 0)
            assert spent[name] <= limit
