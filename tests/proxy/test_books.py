"""proxy/books.py: what outlives a reload, and what is known after a restart."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from spangate.call.clock import SYSTEM
from spangate.policies.ledger.memory import MemoryLedger
from spangate.policies.ledger.valkey import ValkeyLedger
from spangate.proxy.books import foreign, ledger_of, lost, posting, shared
from spangate.proxy.settings import State
from spangate.proxy.upstream import Upstream

from case import KEY, Case, case, key_hash
from gateway import until
from midday import MIDDAY
from upstream import Misbehaving, Request, chat_completion, http, play
from valkey_server import valkey

JSON = [("content-type", "application/json")]


def teams(*policies: dict[str, Any]) -> dict[str, Any]:
    return {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": list(policies)}}


BUDGETS = [
    {"budget": {"name": "month", "models": ["m"], "limit": "1M", "window": "month", "timezone": MIDDAY}},
    {"budget": {"name": "rolling", "models": ["m"], "limit": "1M", "window": "rolling 24h", "per": "key"}},
    {"budget": {"name": "total", "models": ["m"], "limit": "1M", "window": "total", "per": "tag:project"}},
    {"budget": {"name": "dollars", "models": ["m"], "limit": 5, "unit": "usd", "window": "week", "timezone": MIDDAY}},
    {"budget": {"name": "calls", "models": ["m"], "limit": 50, "unit": "requests", "window": "day", "timezone": MIDDAY}},
    {"budget": {"name": "shadow", "models": ["m"], "limit": 50, "window": "day", "timezone": MIDDAY, "mode": "shadow"}},
    {"budget": {"name": "provider", "models": ["m"], "limit": "1M", "window": "day", "timezone": MIDDAY, "per": "provider"}},
]


async def counted(it: Case) -> dict[str, int]:
    ledger = it.running.app.books.ledger
    found = [each for home in ("default", "provider:up") for each in await ledger.every(home)]
    return {each.counter.key: each.used for each in found}


async def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    prices = [{"model": "*", "input": "0.123456789", "output": 3}]
    answer = play(http(200, JSON, chat_completion("x", (10, 7))))
    tags = [("x-spangate-tags", "project=apollo%3A1")]
    async with case(tmp_path, answer, teams=teams(*BUDGETS), prices=prices) as it:
        for _ in range(3):
            assert (await it.ask({"max_tokens": 20}, headers=tags)).status == 200
        before = await counted(it)
    assert len(before) == len(BUDGETS)
    async with case(tmp_path, answer, teams=teams(*BUDGETS), prices=prices) as it:
        assert await counted(it) == before


@pytest.mark.parametrize("window", ["day", "rolling 24h", "total"])
async def test_a_restart_does_not_tell_again_what_was_told(window: str, tmp_path: Path) -> None:
    def answers(request: Request) -> Any:
        return play(http(200, JSON, b"{}" if request.path == "/hook" else chat_completion("x", (0, 30))))

    async with Misbehaving(answers) as up:
        thresholds = {"webhook": f"{up.base_url.removesuffix('/v1')}/hook", "secret": "0123456789abcdef"}
        more = {"window": window, "timezone": MIDDAY, "thresholds": thresholds, "cap_output": False}
        rule = {"budget": {"name": "b", "models": ["m"], "limit": 100, **more}}
        for told in ([0.5], [0.8], [1.0], []):
            before = len(hooked(up))
            async with case(tmp_path, up, teams=teams(rule)) as it:
                for _ in range(2 if told == [0.5] else 1):
                    await it.ask()
            assert [event["threshold"] for event in hooked(up)[before:]] == told


def hooked(up: Misbehaving) -> list[dict[str, Any]]:
    return [request.json() for request in up.requests if request.path == "/hook"]


async def test_a_reload_that_brings_the_first_budget_knows_what_was_used(tmp_path: Path) -> None:
    answer = play(http(200, JSON, chat_completion("x", (10, 20))))
    async with case(tmp_path, answer, teams=teams(BUDGETS[0])) as it:
        await it.ask({"max_tokens": 20})
    async with case(tmp_path, answer, teams=teams()) as it:
        path = tmp_path / "spangate.yaml"
        text = path.read_text()
        assert it.running.app._restoring is None
        path.write_text(
            text.replace('"policies": []', f'"policies": [{{"budget": {str(BUDGETS[0]["budget"]).replace(chr(39), chr(34))}}}]')
        )
        await until(lambda: it.running.app._restoring is not None and it.running.app._restoring.done(), 5)
        assert list((await counted(it)).values()) == [30 * 10**9]


def test_which_ledger() -> None:
    assert isinstance(ledger_of(State(), SYSTEM), MemoryLedger)


async def test_what_is_known_of_a_ledger_on_a_server_alone(tmp_path: Path) -> None:
    alone = MemoryLedger()
    assert (shared(alone), foreign(alone), lost(alone)) == (None, {}, 0)
    ledger = ValkeyLedger(f"unix://{tmp_path}/nobody")
    ledger.settling.lost = 2
    assert (shared(ledger), foreign(ledger), lost(ledger)) == (ledger, {}, 2)
    await ledger.close()


async def test_a_server_that_is_away_refuses_says_so_and_heals(tmp_path: Path) -> None:
    answer = play(http(200, JSON, chat_completion("x", (10, 20))))
    rules = teams({"budget": {"name": "b", "limit": "1M", "window": "day", "models": ["m"]}}, {"rate_limit": {"requests": "100/min"}})
    with TemporaryDirectory(prefix="valkey-") as folder, valkey(Path(folder)) as server:
        async with case(tmp_path, answer, teams=rules, state={"backend": "redis", "url": server.url}) as it:
            assert isinstance(it.running.app.books.ledger, ValkeyLedger)
            assert (await it.ask({"max_tokens": 20})).status == 200
            server.stop()
            for _ in range(4):
                refused = await it.ask({"max_tokens": 20})
                assert (refused.status, refused.error["code"]) == (503, "state_unavailable")
                assert refused.header("retry-after") == "1"
            ready = await it.ask(path="/readyz", method="GET")
            assert ready.status == 503
            assert ready.json()["status"] == "state_unavailable"
            assert "shared counters" in ready.json()["state"]
            assert (await it.ask({"model": "ok"})).status == 200  # its limit counts here alone
            server.start()
            await until(lambda: not it.running.app.books.ledger.problem, 5)
            assert (await it.ask({"max_tokens": 20})).status == 200
            assert (await it.ask(path="/readyz", method="GET")).json()["status"] != "state_unavailable"


@pytest.mark.parametrize(("then", "status"), [("refuse", 503), ("allow", 200)])
async def test_where_the_spool_can_not_be_written_each_budget_does_what_it_says(then: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb.spool").write_text("a file where a folder should be")
    rule = {"budget": {"name": "b", "limit": "1M", "models": ["m"], "on_state_error": then}}
    answer = play(http(200, JSON, chat_completion("x", (10, 20))))
    async with case(tmp_path, answer, teams=teams(rule), usage={"path": "usage.duckdb"}) as it:
        assert (await it.ask({"model": "ok"})).status == 200
        assert (await it.ask({"max_tokens": 20})).status == status
        it.log.unhandled.clear()  # the log says all the time that rows are lost


@pytest.mark.parametrize(("end", "status"), [("keep", 204), ("keep", 500)])
async def test_a_webhook_is_posted_to(end: Any, status: int) -> None:
    client = Upstream()
    async with Misbehaving(play(http(status), end=end)) as up:
        post = posting(client)
        assert await post(f"{up.base_url.removesuffix('/v1')}/hook?x=1", {"x-spangate-signature": "t=1"}, b'{"a":1}') == status
        request = await up.request(0)
        assert (request.method, request.path, request.body) == ("POST", "/hook?x=1", b'{"a":1}')
        assert request.header(b"x-spangate-signature") == b"t=1"
    with pytest.raises(OSError, match="upstream_unreachable"):
        await post(f"{up.base_url}/hook", {}, b"{}")
    await client.aclose()
