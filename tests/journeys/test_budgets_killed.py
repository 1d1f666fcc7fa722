"""Two gateways on one Valkey, of which one is killed while calls run: nobody spends more than there is, then or afterwards, what the dead
one held is counted as used within its lease, and what is left can be spent.

A round is an organisation with a random tree of budgets and fifty calls at once: capped by their callers or by us, streams, providers that
fail, callers who leave. Several rounds run in one life of two gateways.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import pytest

from spangate.call.events import Usage
from spangate.policies.bounds import Bound
from spangate.policies.budget import Budget
from spangate.policies.ledger.ledger import NANO, Counter, Standing
from spangate.policies.ledger.valkey import ValkeyLedger

from case import key_hash
from ledgers import until
from midday import MIDDAY
from program import Process, running
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Play, Request, U, chat_completion, chunk, error, http, play, sse_head, wants_stream
from valkey_server import Valkey, valkey

CALLS = 50
LEASE = 3.0
LATE = 1.0  # seconds after a lease in which somebody asks
SMALL = 20  # tokens of a call that fills up
PRICES = {"m": (300, 1500), "other": (100, 200)}  # billionths of a dollar, a token in and out
ANSWERS = {200, 400, 429, 502}  # 400 and 502: what a provider's fault comes to


@dataclass
class Round:
    """One organisation: its budgets, its calls, and what the provider charged it for, by whose it is."""

    number: int
    random: Random
    charged: list[tuple[dict[str, str], Usage]] = field(default_factory=list)

    @property
    def organisation(self) -> str:
        return f"org-{self.number}"

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [(f"t{self.number}{team}", key) for team in "ab" for key in ("one", "two")]

    def budgets(self) -> list[dict[str, Any]]:
        """Each has room for 60 to 200 small calls."""
        random, found = Random(self.number), []
        for number in range(random.randint(1, 4)):
            unit = random.choice(["weighted_tokens", "weighted_tokens", "usd", "requests"])
            calls, out = random.randint(60, 200), random.choice([1, 4, 0.25])
            limit = {"weighted_tokens": calls * SMALL * out, "usd": calls * SMALL * 1500 / 10**9, "requests": calls // 4}[unit]
            weights = {"weights": {"input": random.choice([0, 0.5, 0.25]), "output": out}} if unit == "weighted_tokens" else {}
            per = random.choice(["organisation", "team", "team", "key", "model", "thread"])
            window = random.choice(["total", "month", "rolling 24h"])
            found.append({"name": f"b{number}", "limit": limit, "unit": unit, "window": window, "timezone": MIDDAY, "per": per, **weights})
        return found

    def bounds(self) -> dict[str, Bound]:
        found = [bound for each in self.budgets() for bound in Budget.model_validate(each).bounds("list")]
        return {bound.counter_name: bound for bound in found}

    def bodies(self) -> Iterator[tuple[str, bool, dict[str, str], dict[str, Any]]]:
        """Of each call: its key, whether its caller leaves, headers, and the body. What the provider has to know is in the message."""
        random = self.random
        for _ in range(CALLS):
            team, key = random.choice(self.keys)
            thread, stream = random.choice(["", "a", "b"]), random.random() < 0.5
            leaves = stream and random.random() < 0.2
            model = random.choice(["m", "m", "other"])
            cap = random.choice([{}, {"max_tokens": 5}, {"max_tokens": 50}, {"max_completion_tokens": 500}])
            said = f"{self.number} {team} {key} {thread or '-'} {'leaves' if leaves else 'stays'} " + "some words " * random.randint(1, 40)
            headers = {"x-spangate-thread": thread} if thread else {}
            body = {
                "model": model,
                "stream": stream,
                "n": random.choice([1, 1, 1, 2]),
                **cap,
                "messages": [{"role": "user", "content": said}],
            }
            yield f"{team}/{key}", leaves, headers, body

    def truth(self, bound: Bound, counter: Counter) -> int:
        """What was charged to a counter, in billionths."""
        total = 0
        for whose, usage in self.charged:
            if whose[bound.per] == counter.scope:
                into, out = PRICES[whose["model"]]
                total += bound.used(usage, lambda asked, answered, *_, into=into, out=out: into * asked + out * answered)
        return total


class Provider:
    """Keeps to every cap, fails now and then, and knows what it charged for. Some answers wait until a gateway is `killed`."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.rounds = {each.number: each for each in rounds}
        self.random = Random(len(rounds))
        self.killed = asyncio.Event()
        self.waiting = 0
        self.asked = 0
        self.filling = False

    def __call__(self, request: Request) -> Play:
        body, random = request.json(), self.random
        number, team, key, thread, leaves, *_ = body["messages"][0]["content"].split(" ")
        self.asked += 1
        cap = min((body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None), default=200)
        output = cap if self.filling else random.randint(0, cap * body.get("n", 1))
        input = 1 if self.filling else random.randint(0, len(json.dumps(body["messages"], separators=(",", ":"))) // 4)
        trouble = 1.0 if self.filling else random.random()
        if trouble < 0.1:
            return play(error(random.choice([500, 400])))
        pieces: list[Any] = []
        if not self.filling and random.random() < 0.1:
            self.waiting += 1
            pieces = [self.killed]
        if trouble < 0.15:
            return play(sse_head() if wants_stream(request) else b"", end="rst")
        if leaves == "stays":
            whose = {"organisation": f"org-{number}", "team": team, "key": f"{team}/{key}", "model": body["model"]}
            self.rounds[int(number)].charged.append((whose | {"thread": f"{team}/{thread}"}, Usage(input, output)))
        if not wants_stream(request):
            return play(*pieces, http(200, [("content-type", "application/json")], chat_completion("w", (input, output))))
        said = [(chunk(C("w ")), 0.002)] * min(output, 6)
        return play(sse_head(), *said[:1], *pieces, *said[1:], chunk(F("stop") + U(input, output) + D) + LAST_CHUNK)


@dataclass
class Gateways:
    """Both, the calls to them, and the counters as they are on the server."""

    rounds: Sequence[Round]
    server: Valkey
    provider: Provider
    urls: Sequence[str]
    processes: Sequence[Process]
    session: aiohttp.ClientSession
    ledger: ValkeyLedger

    async def call(self, url: str, key: str, leaves: bool, headers: dict[str, str], body: dict[str, Any]) -> int:
        """The status; 0: the gateway was gone."""
        try:
            async with self.session.post(f"{url}/chat/completions", json=body, headers=headers | bearer(key)) as answer:
                if leaves and answer.status == 200:
                    await answer.content.readany()
                    answer.close()
                else:
                    await answer.read()
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def played(self) -> dict[int, int]:
        """All calls, a half to each gateway; the first is killed in their middle. How many ended how, at the other one."""
        calls = [(number % 2, each) for one in self.rounds for number, each in enumerate(one.bodies())]
        tasks = [(which, asyncio.create_task(self.call(self.urls[which], *each))) for which, each in calls]

        async def in_the_middle() -> bool:
            enough = self.provider.waiting > 0 and sum(task.done() for _, task in tasks) >= len(tasks) // 3
            return enough and len(self.holders()) == 2  # both, also where one has begun late

        await until(in_the_middle, 30)
        self.processes[0].send(signal.SIGKILL)
        await asyncio.to_thread(self.processes[0].end)
        self.provider.killed.set()
        statuses: dict[int, int] = defaultdict(int)
        for which, task in tasks:
            status = await task
            assert status in ANSWERS or (which == 0 and status == 0), status
            statuses[status] += which
        return statuses

    def held(self) -> dict[str, dict[str, tuple[int, int]]]:
        """By organisation, used and reserved of each counter where anything is held, as they stand on the server. Nothing is settled by
        looking."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for each in self.rounds:
            for key in self.server.everything(f"spangate:{{{each.organisation}}}:c:*"):
                used, reserved = self.server.say("HMGET", key, "u", "r")
                if int(reserved or 0):
                    found.setdefault(each.organisation, {})[key] = int(used or 0), int(reserved)
        return found

    def holders(self) -> set[str]:
        """The gateways that hold anything."""
        return {key.rpartition(":")[2] for key in self.server.everything("spangate:*:holds:*")}

    async def settled(self) -> None:
        """Wait until what the dead one held is counted as used, within its lease. On a busy machine that may be over before the other one
        has settled all of its own; else each counter is looked at before and after."""

        async def idle() -> bool:  # the other one has settled all of its own
            return len(self.holders()) <= 1

        await until(idle, 10)
        holders, before = self.holders(), self.held()
        ends = max((float(end) for each in self.rounds for holder in holders if (end := self.lease(each, holder)) is not None), default=0.0)
        while sum([each.reserved for one in self.rounds for each in await self.ledger.every(one.organisation)]):
            assert self.time() < ends + 1000 * LATE, "the lease is over"
            await asyncio.sleep(0.02)
        for organisation, counters in before.items():
            for key, (used, reserved) in counters.items():
                if " concurrent " in key:
                    assert not self.server.say("EXISTS", key)
                    continue
                assert int(self.server.say("HGET", key, "u")) == used + reserved, (organisation, key)
        assert self.holders() == set()

    def lease(self, one: Round, instance: str) -> Any:
        return self.server.say("ZSCORE", f"spangate:{{{one.organisation}}}:leases", instance)

    def time(self) -> float:
        """The server's, in milliseconds, as leases are."""
        seconds, micros = self.server.say("TIME")
        return int(seconds) * 1000 + int(micros) / 1000

    async def checked(self, one: Round, full: AbstractSet[tuple[str, str]] = frozenset()) -> int:
        """No budget is exceeded, none knows less than was charged, those that are `full` are; how many count anything."""
        bounds, counted = one.bounds(), 0
        for each in await self.ledger.every(one.organisation):
            bound = bounds.get(each.counter.name)
            if bound is None:
                continue
            truth = one.truth(bound, each.counter)
            assert each.reserved == 0, told(one, each)
            assert truth <= each.used <= bound.limit, (told(one, each), truth / NANO)
            if (bound.name, f"{bound.per}:{each.counter.scope}") in full:
                assert each.used >= 0.9 * bound.limit, told(one, each)
            counted += each.used > 0
        return counted

    async def filled(self, one: Round) -> set[tuple[str, str]]:
        """Small calls of each key, one after the other, until the first refusal. Which budgets refused, by name and scope."""
        full = set()
        for team, key in one.keys:
            for _ in range(10_000):
                said = {"role": "user", "content": f"{one.number} {team} {key} - stays"}
                body = {"model": "m", "max_tokens": SMALL, "messages": [said]}
                async with self.session.post(f"{self.urls[1]}/chat/completions", json=body, headers=bearer(f"{team}/{key}")) as answer:
                    ended = await answer.json()
                if answer.status == 429:
                    full.add((ended["error"]["budget"]["name"], ended["error"]["budget"]["scope"]))
                    break
                assert answer.status == 200, ended
                if not any(bound.per != "thread" for bound in one.bounds().values()):
                    break  # none concerns it
            else:
                raise AssertionError("nobody refused")
        return full


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer sg-{key}"}


def told(one: Round, standing: Standing) -> str:
    return f"round {one.number}: {standing.counter.key} {standing.used / NANO} + {standing.reserved / NANO} of {standing.limit / NANO}"


def written(folder: Path, base_url: str, server: Valkey, rounds: Sequence[Round]) -> None:
    teams: dict[str, Any] = {}
    for each in rounds:
        policies = [{"budget": budget} for budget in each.budgets()] + [{"rate_limit": {"concurrent": 1000}}]
        for team, key in each.keys:
            made = teams.setdefault(team, {"organisation": each.organisation, "policies": policies, "keys": []})
            made["keys"].append({"name": key, "hash": key_hash(f"sg-{team}/{key}")})
    text = {
        "providers": {"up": {"kind": "openai", "base_url": base_url, "api_key": "x"}},
        "models": {"*": {"targets": [{"provider": "up"}]}},
        "prices": [{"model": model, "input": into / 1000, "output": out / 1000} for model, (into, out) in PRICES.items()],
        "teams": teams,
        "state": {"backend": "redis", "url": server.url, "lease": f"{LEASE:g}s"},
        "server": {"max_calls": 10_000},
    }
    folder.mkdir()
    (folder / "spangate.yaml").write_text(json.dumps(text))


@asynccontextmanager
async def two_gateways(folder: Path, server: Valkey, rounds: Sequence[Round]) -> AsyncIterator[Gateways]:
    provider = Provider(rounds)
    ledger = ValkeyLedger(server.url)
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with Misbehaving(provider) as up, aiohttp.ClientSession(connector=connector) as session:
            with ExitStack() as stack:
                processes = []
                for name in ("one", "two"):
                    written(folder / name, up.base_url, server, rounds)
                    processes.append(stack.enter_context(running("serve", "--port", "0", folder=folder / name)))
                lines = [await asyncio.to_thread(each.until, "listens on") for each in processes]
                urls = [line.split("listens on ")[1].strip() for line in lines]
                yield Gateways(rounds, server, provider, urls, processes, session, ledger)
                processes[1].send(signal.SIGTERM)
                await asyncio.to_thread(processes[1].end)
    finally:
        await ledger.close()


@contextmanager
def own_valkey() -> Iterator[Valkey]:
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as started:
        yield started


async def lived(folder: Path, numbers: range) -> None:
    """One life of two gateways with these rounds."""
    rounds = [Round(number, Random(number)) for number in numbers]
    with own_valkey() as server:
        async with two_gateways(folder, server, rounds) as both:
            statuses = await both.played()
            assert statuses[200] > 0
            await both.settled()
            assert sum([await both.checked(each) for each in rounds]) >= len(rounds)
            both.provider.filling = True
            full = await asyncio.gather(*(both.filled(each) for each in rounds))

            async def idle() -> bool:
                return not both.holders()

            await until(idle)
            for each, refused in zip(rounds, full, strict=True):
                await both.checked(each, refused)
            assert sum(map(len, full)) >= len(rounds)


@pytest.mark.fault("BUD-01")
async def test_nobody_spends_more_than_there_is_though_a_gateway_is_killed(tmp_path: Path) -> None:
    await lived(tmp_path, range(6))


@pytest.mark.soak
@pytest.mark.timeout(480)
async def test_nobody_spends_more_than_there_is_though_gateways_are_killed_at_length(tmp_path: Path) -> None:
    for first in range(0, 200, 10):
        folder = tmp_path / str(first)
        folder.mkdir()
        await lived(folder, range(first, first + 10))
