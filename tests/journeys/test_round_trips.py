"""What a call asks a Valkey for before it goes out: one round trip for all its budgets and limits, also where its cap is lowered; one more
only where its provider has limits of its own, or its target costs more than was held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from case import KEY, case, key_hash
from ledgers import until
from upstream import Play, Request, chat_answer, play, wants_stream
from valkey_server import Valkey, valkey


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    log = ("--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000")  # we ask it often ourselves, until all is settled
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder), *log) as started:
        yield started


def steps(server: Valkey) -> list[str]:
    """What the ledger's script was asked since the log was emptied, without signs of life."""
    words = [entry[3] for entry in server.say("SLOWLOG", "GET", 100_000)]
    asked = [each[4] for each in words if each[0].lower() == "evalsha"]
    return [each for each in reversed(asked) if each not in ("ping", "beat")]


def budget(name: str, limit: Any, **more: Any) -> dict[str, Any]:
    return {"budget": {"name": name, "limit": limit, "window": "total", "models": ["m", "dear"], **more}}


PRICE = {"model": "*", "input": 2, "output": 2}
LIMITS = {"rate_limit": {"requests": "1000/min", "tokens": "1M/min", "concurrent": 100}}
THREE = [budget("a", 1000), budget("b", 5000, per="key", window="rolling 24h"), budget("c", 1, unit="usd"), LIMITS]
PROVIDERS = {"rate_limit": {"requests": "1000/min", "per": "provider"}}


@dataclass
class Trips:
    """`body`: what is asked. `capped`: the header; `before`: the steps until the provider is asked."""

    policies: list[dict[str, Any]]
    body: dict[str, Any] = field(default_factory=dict)
    capped: str | None = None
    before: tuple[str, ...] = ("reserve",)


CASES = {
    "a cap that fits": Trips(THREE, {"max_tokens": 20}),
    "no cap": Trips([budget("a", "1M"), LIMITS], {}, "16384"),
    "a cap that is lowered": Trips(THREE, {"max_tokens": 10_000}, "986"),
    "of a stream": Trips(THREE, {"max_tokens": 10_000, "stream": True}, "986"),
    "of two choices": Trips([budget("a", 1000)], {"max_tokens": 10_000, "n": 2}, "493"),
    "by dollars": Trips([budget("a", 0.0015, unit="usd"), LIMITS], {"max_tokens": 10_000}, "736"),
    "where little is left": Trips([budget("a", 1000), budget("b", 40)], {"max_tokens": 10_000}, "26"),
    "nobody has any": Trips([LIMITS], {"max_tokens": 10}),
    "limits of a provider": Trips([*THREE, PROVIDERS], {"max_tokens": 20}, None, ("reserve", "reserve")),
    "a cap that is lowered, and limits of a provider": Trips([*THREE, PROVIDERS], {"max_tokens": 10_000}, "986", ("reserve", "reserve")),
}


@pytest.mark.parametrize("name", CASES)
async def test_round_trips(name: str, server: Valkey, tmp_path: Path) -> None:
    trips, seen = CASES[name], []
    server.say("FLUSHALL")

    def answers(request: Request) -> Play:
        seen.append(steps(server))
        return play(chat_answer("x", (10, 20), stream=wants_stream(request)))

    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": trips.policies}}
    sections = {"teams": teams, "prices": [PRICE], "state": {"backend": "redis", "url": server.url}}
    async with case(tmp_path, answers, **sections) as it:
        server.say("SLOWLOG", "RESET")
        answer = await it.ask(trips.body)
        assert answer.status == 200
        assert (answer.header("x-spangate-capped") or "").partition("?")[0] == (trips.capped or "")
        assert seen == [list(trips.before)]
        assert await settled(server) == [*trips.before, *(["settle"] * len(trips.before))]


async def settled(server: Valkey) -> list[str]:
    """All steps, once nothing is held."""

    async def so() -> bool:
        return not server.everything("*holds*")

    await until(so)
    return steps(server)


async def test_a_refusal_takes_one(server: Valkey, tmp_path: Path) -> None:
    server.say("FLUSHALL")
    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": [*THREE, budget("d", 5)]}}
    async with case(tmp_path, play(), teams=teams, state={"backend": "redis", "url": server.url}, prices=[PRICE]) as it:
        server.say("SLOWLOG", "RESET")
        assert (await it.ask({"max_tokens": 10_000})).error["budget"]["name"] == "d"
        assert steps(server) == ["reserve"]
