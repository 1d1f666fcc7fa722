"""Admission under concurrency: whatever budgets there are and however calls end, nobody spends more than there is.

Each round is a tree of budgets and many calls at once: capped by their callers or by us, streams, failures in the middle, a retry,
callers who leave. The provider keeps to the cap, or in some rounds doesn't.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from spangate.call.call import Call, Caller, Labels
from spangate.call.chain import Next, pulling
from spangate.call.errors import ProviderFault, Refused
from spangate.call.events import Delta, Event
from spangate.call.rules import Rule
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Ledger

from admitting import Gate, call
from ledgers import Backend, InMemory, OnServer
from midday import MIDDAY
from valkey_server import Valkey, valkey

CALLS = 50
CALLERS = [Caller("acme", team, key) for team in ("search", "legal") for key in ("one", "two")]


class Again:
    """Tries a second time what failed before it had begun."""

    stage = 75

    async def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        begun = False
        try:
            async with pulling(next(call)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ProviderFault:
            if begun:
                raise
        async with pulling(next(call)) as events:
            async for event in events:
                yield event


@dataclass
class Round:
    """One tree of budgets, and what the provider does. `keeps`: it never says more than it was asked for."""

    random: Random
    keeps: bool = True
    caps: bool = True
    truths: dict[str, int] = field(default_factory=dict)

    def rules(self) -> list[Budget]:
        random = self.random
        found = []
        for number in range(random.randint(1, 4)):
            unit = random.choice(["weighted_tokens", "weighted_tokens", "usd", "requests"])
            limit: Any = {"usd": random.choice([0.001, 0.01]), "requests": random.randint(5, 60)}.get(unit, random.randint(2000, 40_000))
            weights = {"input": random.choice([0, 1, 0.5]), "output": random.choice([1, 4, 0.25]), "cached": 0.1}
            found.append(
                Budget.model_validate(
                    {
                        "name": f"b{number}",
                        "limit": limit,
                        "unit": unit,
                        "window": random.choice(["total", "month", "rolling 24h"]),
                        "timezone": MIDDAY,
                        "per": random.choice(["organisation", "team", "team", "key", "model", "thread"]),
                        "cap_output": self.caps,
                        "weights": weights if unit == "weighted_tokens" else {},
                    }
                )
            )
        return found

    def asked(self, number: int) -> Call:
        random = self.random
        return call(
            "some words " * random.randint(1, 40),
            stream=random.random() < 0.5,
            n=random.choice([1, 1, 1, 2]),
            max_tokens=random.choice([None, 5, 50, 500]),
            caller=random.choice(CALLERS),
            labels=Labels(thread=random.choice(["", "a", "b"])),
            model=random.choice(["m", "m", "other"]),
            user=str(number),
        )

    def answer(self, asked: Call) -> Rule:
        """By what the call may use at the most, as the provider sees it."""
        random = self.random
        cap = (asked.head.output_cap if asked.head.output_cap is not None else 400 if self.caps else 9000) * asked.head.n
        output = random.randint(0, cap if self.keeps else 2 * cap)
        input = random.randint(0, asked.body.size("messages") // 4)
        words = min(output // (2 * asked.head.n), 30)
        answer = {"text": "w " * words or "w", "chunks": 3, "every": 0.0005}
        said: dict[str, Any] = {"answer": answer, "usage": {"input": input, "output": output}}
        trouble = random.random()
        if trouble < 0.1:
            said = {"fault": {"status": random.choice([500, 429, 400])}}
        elif trouble < 0.2:
            said["fault"] = random.choice(["truncate", "empty", "error_in_200"])
        return Rule.model_validate(said)


PRICES = {"m": (3, 15), "other": (1, 2)}


def price(target: Any) -> Any:
    into, out = PRICES[target.model]
    return lambda asked, answered, *_: 100 * (into * asked + out * answered)


async def one(gate: Gate, asked: Call, random: Random) -> None:
    """One caller: reads to the end, leaves in the middle, or is cut off at any moment."""
    leaves = random.random()

    async def reads() -> None:
        deltas = 0
        async with pulling(gate.next(asked)) as events:
            async for event in events:
                deltas += isinstance(event, Delta)
                if leaves < 0.15 and deltas == 2:
                    return

    task = asyncio.create_task(reads())
    if 0.15 <= leaves < 0.25:
        await asyncio.sleep(random.random() * 0.004)
        task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and not isinstance(task.exception(), Refused | ProviderFault | None):
        raise task.exception()  # type: ignore[misc]


async def counters(ledger: Ledger) -> dict[Any, tuple[int, int, int]]:
    assert await ledger.drain(10) == 0
    return {each.counter: (each.limit, each.used, each.reserved) for each in await ledger.every("acme")}


def overshoots(calls: list[Call]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = defaultdict(int)
    for asked in calls:
        for note in asked.notes.named("budget.settled"):
            found[note.figures["name"], note.figures["scope"]] += round(note.figures.get("overshoot", 0) * NANO)
    return found


async def played(gates: list[Gate], setting: Round) -> list[Call]:
    random = setting.random
    calls = [setting.asked(number) for number in range(CALLS)]
    await asyncio.gather(*(one(random.choice(gates), asked, random) for asked in calls))
    return calls


async def filled(gate: Gate, caller: Caller) -> None:
    """Small calls one after the other until the first refusal: what refused is used up, or nearly."""
    small = Rule.model_validate({"usage": {"input": 1, "output": 20}})
    gate.provider.script.rules = [small]
    for _ in range(20_000):
        asked = call("x", max_tokens=20, caller=caller)
        try:
            await gate.hear(asked)
        except Refused as refused:
            told = refused.facts["budget"]
            assert told["used"] >= 0.9 * told["limit"], told
            return
        if not asked.notes.named("budget.settled"):
            return  # no budget concerns it
    raise AssertionError("nobody refused")


def make(setting: Round, ledger: Ledger, rules: list[Budget]) -> Gate:
    return Gate(*rules, script=[setting.answer], inside=[Again()], ledger=ledger, pricing=price)


async def holds(backend: Backend, rounds: int, gateways: int = 1) -> int:
    """How many counters had counted something, each no more than its limit."""
    counted = 0
    for seed in range(rounds):
        setting = Round(Random(seed))
        rules = setting.rules()
        async with AsyncExitStack() as stack:
            ledgers = [await stack.enter_async_context(backend.ledger()) for _ in range(gateways)]
            gates = [make(setting, ledger, rules) for ledger in ledgers]
            await played(gates, setting)
            for ledger in ledgers:
                assert await ledger.drain(10) == 0
            for counter, (limit, used, reserved) in (await counters(ledgers[0])).items():
                assert reserved == 0, (seed, counter)
                assert used <= limit, (seed, counter, used / NANO, limit / NANO)
                counted += used > 0
            await filled(gates[0], Random(seed).choice(CALLERS))
    return counted


async def test_nobody_spends_more_than_there_is() -> None:
    assert await holds(InMemory(), 20) >= 20


@pytest.mark.soak
async def test_nobody_spends_more_than_there_is_at_length() -> None:
    assert await holds(InMemory(), 200) >= 200


@pytest.mark.parametrize(("keeps", "caps"), [(False, True), (True, False)])
async def test_what_goes_beyond_is_told_to_the_token(keeps: bool, caps: bool) -> None:
    seen = 0
    for seed in range(20):
        setting = Round(Random(seed), keeps=keeps, caps=caps)
        rules = setting.rules()
        async with InMemory().ledger() as ledger:
            gate = make(setting, ledger, rules)
            calls = await played([gate], setting)
            told = overshoots(calls)
            for bound in gate.bounds:
                for counter, (limit, used, reserved) in (await counters(ledger)).items():
                    if counter.name != bound.counter_name:
                        continue
                    beyond = max(0, used - limit)
                    assert reserved == 0
                    assert told[bound.name, f"{bound.per}:{counter.scope}"] == pytest.approx(beyond, abs=1000), (seed, counter)
                    seen += beyond > 0
    assert seen > 0


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as running:
        yield running


@pytest.mark.parametrize("max_tokens", [10**9, 10**18, 2**63])
async def test_what_nobody_can_mean_is_capped_like_anything_else(max_tokens: int, server: Valkey) -> None:
    rule = Budget.model_validate({"name": "b", "limit": 1000, "window": "total", "weights": {"output": 1_000_000, "input": 0}})
    server.say("FLUSHALL")
    for backend in (InMemory(), OnServer(server)):
        async with backend.ledger() as ledger:
            gate = Gate(rule, ledger=ledger)
            with pytest.raises(Refused) as caught:
                await gate.ask(max_tokens=max_tokens, n=1000)
            assert caught.value.code == "budget_exceeded"
            assert await gate.figures("b") == (0, 0)


async def test_two_gateways_on_one_server_share_what_there_is(server: Valkey) -> None:
    counted = 0
    for seed in range(4):
        server.say("FLUSHALL")
        setting = Round(Random(1000 + seed))
        backend = OnServer(server)
        rules = setting.rules()
        async with backend.ledger() as one_, backend.ledger() as two:
            gates = [make(setting, one_, rules), make(setting, two, rules)]
            await played(gates, setting)
            assert await one_.drain(10) == await two.drain(10) == 0
            for counter, (limit, used, reserved) in (await counters(one_)).items():
                assert reserved == 0, (seed, counter)
                assert used <= limit, (seed, counter)
                counted += used > 0
    assert counted >= 4
