"""Standing in line for room: in order, with patience, and without a trace when somebody leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spangate.policies.ledger.ledger import Answer, Claim, Ledger
from spangate.policies.ledger.waiting import Waiting
from spangate.policies.windows import InFlight

from ledgers import Backend, claim, figures, fresh, refusers, reserved, settled, until, used

PATIENCE = 5.0


class Caller:
    """Somebody who asks, and may have to wait."""

    def __init__(self, ledger: Ledger, waiting: Waiting, claims: Sequence[Claim], patience: float = PATIENCE) -> None:
        self.hold: Any = ledger.hold(fresh())
        waits = {each.counter.name: patience for each in claims}
        self.task: asyncio.Task[Answer] = asyncio.create_task(waiting.reserve(self.hold, claims, waits))

    async def admitted(self) -> bool:
        return (await self.task).admitted

    async def leaves(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.hold.release()


async def until_standing(waiting: Waiting, count: int) -> None:
    async def stand() -> bool:
        return waiting.standing == count

    await until(stand)


async def test_who_fits_does_not_wait(backend: Backend) -> None:
    asked = claim(fresh(), 1, 2, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = ledger.hold(fresh())
        assert (await waiting.reserve(hold, [asked], {asked.counter.name: PATIENCE})).admitted
        assert waiting.standing == 0
        assert ledger.watch is None
        hold.release()
        await settled(ledger)


@pytest.mark.fault("RL-02")
async def test_first_come_first_served(backend: Backend) -> None:
    asked = claim(fresh(), 1, 1, InFlight())
    async with backend.ledger() as ledger:
        waiting, served = Waiting(ledger), []
        hold = await reserved(ledger, asked)
        callers = []
        for number in range(5):
            callers.append(Caller(ledger, waiting, [asked]))
            await until_standing(waiting, number + 1)
        for caller in callers:
            hold.release()
            assert await caller.admitted()
            served.append(sum(each.task.done() for each in callers))
            hold = caller.hold
        assert served == [1, 2, 3, 4, 5]
        hold.release()
        await settled(ledger)
        assert (waiting.standing, ledger.watch) == (0, None)
        assert await figures(ledger, asked) == (0, 0)


async def test_who_leaves_gives_the_place_to_the_next(backend: Backend) -> None:
    asked = claim(fresh(), 1, 1, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = await reserved(ledger, asked)
        first, second, third = (Caller(ledger, waiting, [asked]) for _ in range(3))
        await until_standing(waiting, 3)
        await first.leaves()
        await third.leaves()
        assert waiting.standing == 1
        hold.release()
        assert await second.admitted()
        second.hold.release()
        await settled(ledger)
        assert await figures(ledger, asked) == (0, 0)


async def a_small_one_behind_a_large(ledger: Ledger, waiting: Waiting, name: str) -> tuple[Any, Caller, Caller]:
    """What keeps the large one waiting, then the two; the small one would fit."""
    hold = await reserved(ledger, claim(name, 6, 10, InFlight()))
    large = Caller(ledger, waiting, [claim(name, 8, 10, InFlight())])
    await until_standing(waiting, 1)
    small = Caller(ledger, waiting, [claim(name, 2, 10, InFlight())])
    await until_standing(waiting, 2)
    return hold, large, small


async def test_nobody_overtakes_though_they_would_fit(backend: Backend) -> None:
    name = fresh()
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold, large, small = await a_small_one_behind_a_large(ledger, waiting, name)
        impatient = Caller(ledger, waiting, [claim(name, 2, 10, InFlight())], patience=0)
        answer = await impatient.task
        assert refusers(answer) == [name], "and whoever has no patience is told so"
        hold.release()
        assert await large.admitted()
        assert await small.admitted()
        large.hold.release()
        small.hold.release()
        await settled(ledger)


async def test_who_fits_is_let_in_when_the_one_before_gives_up(backend: Backend) -> None:
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold, large, small = await a_small_one_behind_a_large(ledger, waiting, fresh())
        await large.leaves()
        async with asyncio.timeout(PATIENCE / 2):
            assert await small.admitted()
        hold.release()
        small.hold.release()
        await settled(ledger)


async def test_a_line_is_no_matter_of_those_who_claim_something_else(backend: Backend) -> None:
    key, team = claim(fresh(), 1, 1, InFlight()), claim(fresh(), 1, 100, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = await reserved(ledger, key, team)
        stuck = Caller(ledger, waiting, [key, team])
        await until_standing(waiting, 1)
        other = Caller(ledger, waiting, [team])
        assert await other.admitted()
        await stuck.leaves()
        hold.release()
        other.hold.release()
        await settled(ledger)


async def test_patience_ends(backend: Backend) -> None:
    asked = claim(fresh(), 1, 1, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = await reserved(ledger, asked)
        began = time.monotonic()
        callers = [Caller(ledger, waiting, [asked], patience=0.2) for _ in range(3)]
        for caller in callers:
            answer = await caller.task
            assert refusers(answer) == [asked.counter.name]
        assert 0.19 < time.monotonic() - began < 1
        assert waiting.standing == 0
        hold.release()
        await settled(ledger)


async def test_who_waits_for_one_thing_is_refused_for_another_at_once(backend: Backend) -> None:
    rate, budget = claim(fresh(), 1, 1, InFlight()), claim(fresh(), 10, 5)
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        answer = await waiting.reserve(ledger.hold(fresh()), [rate, budget], {rate.counter.name: PATIENCE})
        assert refusers(answer) == [budget.counter.name]
        assert waiting.standing == 0


async def test_a_line_has_an_end(backend: Backend) -> None:
    asked = claim(fresh(), 1, 1, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger, longest=2)
        hold = await reserved(ledger, asked)
        standing = [Caller(ledger, waiting, [asked]) for _ in range(2)]
        await until_standing(waiting, 2)
        assert refusers(await Caller(ledger, waiting, [asked]).task) == [asked.counter.name]
        for caller in standing:
            await caller.leaves()
        hold.release()
        await settled(ledger)


async def test_a_rolling_window_is_waited_for(backend: Backend) -> None:
    asked = claim(fresh(), 60, 100, "rolling 1s")
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        await used(ledger, asked)
        caller = Caller(ledger, waiting, [asked])
        await until_standing(waiting, 1)
        await backend.later(1.1)
        assert await caller.admitted()
        caller.hold.release()
        await settled(ledger)


async def test_what_settles_lower_lets_the_next_in(backend: Backend) -> None:
    asked = claim(fresh(), 60, 100, "rolling 60s")
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = await reserved(ledger, asked)
        caller = Caller(ledger, waiting, [asked])
        await until_standing(waiting, 1)
        hold.settle({asked.counter.name: asked.amount // 2})
        assert await caller.admitted()
        caller.hold.release()
        await settled(ledger)


async def test_room_that_another_gateway_leaves_is_found(backend: Backend) -> None:
    asked = claim(fresh(), 1, 1, InFlight())
    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        hold = await reserved(ledger, asked)
        caller = Caller(ledger, waiting, [asked])
        await until_standing(waiting, 1)
        ledger.watch = None  # as if this gateway knew nothing of it
        hold.release()
        assert await caller.admitted()
        caller.hold.release()
        await settled(ledger)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    st.lists(st.tuples(st.sets(st.integers(0, 2), min_size=1), st.integers(0, 3), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 2),
)
async def test_everybody_is_served_or_gone_and_nothing_stays(backend: Backend, crowd: list[tuple[set[int], int, bool]], limit: int) -> None:
    """A crowd at three counters, of whom some leave: nobody waits for ever, and more than the limit are never in flight."""
    claims = [claim(fresh(), 1, limit, InFlight()) for _ in range(3)]
    flying = [0, 0, 0]

    async def visit(ledger: Ledger, waiting: Waiting, wanted: set[int], turns: int) -> None:
        hold = ledger.hold(fresh())
        try:
            mine = [claims[number] for number in wanted]
            assert (await waiting.reserve(hold, mine, {each.counter.name: PATIENCE for each in mine})).admitted
            for number in wanted:
                flying[number] += 1
                assert flying[number] <= limit
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                for number in wanted:
                    flying[number] -= 1
        finally:
            hold.release()

    async with backend.ledger() as ledger:
        waiting = Waiting(ledger)
        visits = [(asyncio.create_task(visit(ledger, waiting, wanted, turns)), leaves) for wanted, turns, leaves in crowd]
        await asyncio.sleep(0)
        for task, leaves in visits:
            if leaves and not task.done():
                task.cancel()
        results = await asyncio.gather(*(task for task, _ in visits), return_exceptions=True)
        assert all(result is None or isinstance(result, asyncio.CancelledError) for result in results), results
        await settled(ledger)
        assert waiting.standing == 0
        assert [await figures(ledger, each) for each in claims] == [(0, 0)] * 3
