"""The shared ledger: what a cancelled call left on a connection is nobody else's answer."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from spangate.policies.ledger.ledger import NANO, Claim
from spangate.policies.ledger.valkey import LAST, ValkeyLedger

from ledgers import claim, fresh, settled
from valkey_server import Valkey

ROUNDS, LANES = 25, 20


@pytest.mark.fault("CAN-12")
async def test_the_next_caller_never_reads_what_a_cancelled_one_left(shared_valkey: Valkey) -> None:
    """Each asks with a limit of its own, which the server repeats: whoever read another's answer would read another limit."""
    ledger = ValkeyLedger(shared_valkey.url)
    run = fresh()

    async def rounds(lane: int) -> None:
        dice = random.Random(lane)
        for number in range(ROUNDS):
            mine, theirs = 10_000 + 2 * (lane * ROUNDS + number), 10_001 + 2 * (lane * ROUNDS + number)
            left = ledger.hold(fresh())
            asking = asyncio.ensure_future(left.reserve([claim(f"{run}-{mine}", 3, mine)]))
            for _ in range(dice.randrange(12)):  # steps of the loop: at any moment between sending and hearing
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            asked = claim(f"{run}-{theirs}", 7, theirs)
            hold = ledger.hold(fresh())
            answer = await hold.reserve([asked])
            assert [(each.reserved, each.used) for each in answer.standings] == [(7 * NANO, 0)]
            [told] = await ledger.read([Claim(asked.counter, 0, LAST)])
            assert (told.limit, told.reserved) == (theirs * NANO, 7 * NANO)
            left.release()
            hold.settle({asked.counter.name: 5 * NANO})

    try:
        await asyncio.gather(*[rounds(lane) for lane in range(LANES)])
        await settled(ledger)
        found = [each for each in await ledger.every("acme", 100_000) if each.counter.name.startswith(run)]
        assert len(found) == ROUNDS * LANES
        assert {(each.used, each.reserved) for each in found} == {(5 * NANO, 0)}
    finally:
        await ledger.close()
