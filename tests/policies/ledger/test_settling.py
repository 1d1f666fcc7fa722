"""Ends that wait for their server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spangate.policies.ledger.server import Server
from spangate.policies.ledger.settling import SURE, End, Settling

from ledgers import Hands, claim, counter, figures, fresh, reserved
from valkey_server import Valkey, valkey


def end(home: str = "acme") -> End:
    return End(home, b"", [counter("month")])


async def test_ends_that_are_too_many_are_dropped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(f"unix://{tmp_path}/nobody")
    settling = Settling(server, "a", 1, lambda _: None, most=3)
    for _ in range(5):
        settling.holding("acme")
        settling.put(end())
    assert (settling.left, settling.lost) == (3, 2)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["1 calls by now"], "told once in a while"
    assert await settling.drain(0.1) == 3
    await settling.close()
    await server.close()


async def test_what_was_tried_long_ago_is_counted_only_where_it_is_held(tmp_path: Path) -> None:
    hands = Hands()
    server = Server(f"unix://{tmp_path}/nobody", clock=hands.clock)
    settling = Settling(server, "a", 1, lambda _: None, clock=hands.clock)
    tried = end()
    assert settling._step(tried, hands.mono)[1][2] == 0
    assert await settling._written([tried]) == [tried]
    assert settling._step(tried, hands.mono + SURE - 1)[1][2] == 0
    assert settling._step(tried, hands.mono + SURE + 1)[1][2] == 1
    await server.close()


async def test_a_late_end_counts_nothing_that_is_not_there(tmp_path: Path) -> None:
    from spangate.policies.ledger.valkey import ValkeyLedger

    asked = claim("month", 10, 100, "month")
    with valkey(tmp_path) as server:
        ledger = ValkeyLedger(server.url)
        try:
            for forgotten, used in [(False, 10), (True, 10)]:
                hold = await reserved(ledger, asked)
                if forgotten:
                    server.say("DEL", *server.everything("*holds*"))
                put = ledger.settling.put
                ledger.settling.put = lambda each, put=put: (setattr(each, "tried", -1000.0), put(each))[1]  # type: ignore[method-assign,misc]
                hold.settle({})
                ledger.settling.put = put  # type: ignore[method-assign]
                assert await ledger.drain(5) == 0
                assert (await figures(ledger, asked))[0] == used
                assert ledger.lost == forgotten, "what nobody counts is counted as lost"
        finally:
            await ledger.close()


async def test_many_ends_are_written_in_few_goes(shared_valkey: Valkey) -> None:
    from spangate.policies.ledger.valkey import ValkeyLedger

    ledger = ValkeyLedger(shared_valkey.url)
    asked = claim(fresh(), 1, 1000)
    try:
        holds = await asyncio.gather(*(reserved(ledger, asked) for _ in range(100)))
        goes: list[int] = []
        send, ledger.settling._server.run_all = ledger.settling._server.run_all, lambda steps: (goes.append(len(steps)), send(steps))[1]  # type: ignore[method-assign]
        for hold in holds:
            hold.settle({})
        assert await ledger.drain(5) == 0
        assert goes == [64, 36]
        assert await figures(ledger, asked) == (100, 0)
    finally:
        await ledger.close()
