"""proxy/pages.py: what the gateway answers itself."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spangate.call.errors import Refused
from spangate.proxy import stops_file
from spangate.proxy.error_pages import PAGES
from spangate.proxy.pages import Health, metrics, readyz

from case import KEY, OTHER, case, key_hash
from exchange import Paper
from upstream import http, play

TEAMS: dict[str, Any] = {
    "search": {"organisation": "acme", "models": ["m", "gpt-*"], "keys": [{"name": "ci", "hash": key_hash(KEY), "expires": "2999-12-31"}]},
    "other": {"keys": [{"name": "ci", "hash": key_hash(OTHER)}]},
}
MAY_ASK = TEAMS | {"search": TEAMS["search"] | {"models": ["m", "gpt-*", "ok"]}}
MODELS: dict[str, Any] = {
    "m": {"targets": [{"provider": "up"}]},
    "ok": {"targets": [{"provider": "script"}]},
    "gpt-*": {"targets": [{"provider": "up"}]},
}


@pytest.mark.parametrize(("address", "named"), [("127.0.0.1", True), ("192.0.2.7", False)])
async def test_a_key_on_the_server_that_is_not_ours_is_named_on_this_machine_alone(address: str, named: bool, tmp_path: Path) -> None:
    key = "spangate:{acme}:c:b|search/ann|total"
    async with case(tmp_path) as it:
        paper = Paper(path="/readyz", method="GET")
        paper.client_address = address
        await readyz(paper, it.running.app.endpoints.gateway, Health(foreign={key: "string"}))
    told = json.loads(paper.body)
    assert (paper.status, told["status"]) == (200, "ready"), "other gateways can't have it either"
    assert "1 of the shared counters" in told["state"]
    assert ("search/ann" in told["state"]) == named
    assert (key in told["state"] and "delete it" in told["state"]) or "the log" in told["state"]


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({"budget": {"name": "b", "limit": 1000}}, 503),
        ({"budget": {"name": "b", "limit": 1000, "on_state_error": "allow"}}, 200),
        ({"rate_limit": {"requests": "5/min", "on_state_error": "refuse"}}, 200),  # which begins anew in a crash anyway
    ],
)
async def test_what_budgets_count_can_not_be_kept(rule: dict[str, Any], status: int, tmp_path: Path) -> None:
    async with case(tmp_path, policies={"list": [rule]}, defaults={"policies": ["list"]}) as it:
        gateway = it.running.app.endpoints.gateway
        books = gateway.books
        gateway.books = replace(books, trouble=lambda: "no space left")
        paper = Paper(path="/readyz", method="GET")
        await readyz(paper, gateway, Health())
        gateway.books = books
    told = json.loads(paper.body)
    assert (paper.status, told["status"]) == (status, "state_unavailable" if status == 503 else "ready")
    assert told["state"] == "what budgets count can't be kept through a crash; `usage` says why"


async def test_models_of_a_key_and_of_its_providers_list(tmp_path: Path) -> None:
    listed = play(http(200, (), b'{"object":"list","data":[{"id":"gpt-5"},{"id":"gpt-5-mini"},{"id":"o9"},{"id":7},{}]}'))
    async with case(tmp_path, listed, models=MODELS, teams=MAY_ASK) as it:
        answer = await it.ask(path="/v1/models", method="GET")
        data = answer.json()["data"]
        assert [(model["id"], model["owned_by"]) for model in data] == [
            ("m", "up"),
            ("ok", "script"),
            ("gpt-5", "up"),
            ("gpt-5-mini", "up"),
        ]
        assert {tuple(model) for model in data} == {("id", "object", "created", "owned_by")}
        await it.ask(path="/v1/models", method="GET")
        assert len(it.up.requests) == 1  # a list is believed for a while
        assert (it.up.requests[0].method, it.up.requests[0].path) == ("GET", "/v1/models")


@pytest.mark.parametrize(
    ("asked", "name", "owner"),
    [
        ("m", "m", "up"),
        ("gpt-5", "gpt-5", "up"),
        ("gpt-x/y", "gpt-x/y", "up"),
        ("gpt-x%2Fy", "gpt-x/y", "up"),
        ("gpt-%C3%A9?fields=id", "gpt-é", "up"),
    ],
)
async def test_a_model_by_its_name(tmp_path: Path, asked: str, name: str, owner: str) -> None:
    listed = play(http(200, (), json.dumps({"data": [{"id": "gpt-5"}, {"id": "gpt-x/y"}, {"id": "gpt-é"}, {"id": "o9"}]}).encode()))
    async with case(tmp_path, listed, models=MODELS, teams=MAY_ASK) as it:
        answer = await it.ask(path=f"/v1/models/{asked}", method="GET")
        assert (answer.status, answer.json()) == (200, {"id": name, "object": "model", "created": 0, "owned_by": owner})
        assert len(it.up.requests) == (name != "m")  # for a name of the file nobody need be asked
        head = await it.ask(path=f"/v1/models/{asked}", method="HEAD")
        assert (head.status, head.body) == (200, b"")


@pytest.mark.parametrize("name", ["hidden", "none", "gpt-none", "gpt-*", "*", "a/b", "x" * 600])
async def test_a_model_that_is_not_there_and_one_that_is_not_allowed_are_told_alike(tmp_path: Path, name: str) -> None:
    models = MODELS | {"hidden": {"targets": [{"provider": "script"}]}}
    async with case(tmp_path, play(http(200, (), b'{"data":[{"id":"gpt-5"}]}')), models=models, teams=MAY_ASK) as it:
        answer = await it.ask(path=f"/v1/models/{name}", method="GET")
        assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "model_not_found", "model")
        if not name.startswith("gpt-") and len(name) < 512:
            called = await it.ask({"model": name})
            assert called.error["message"] == answer.error["message"]
        assert (await it.ask(path=f"/v1/models/{name}", method="GET", key="sg-wrong")).error["code"] == "invalid_api_key"
        gone = await it.ask(path=f"/v1/models/{name}", method="DELETE")
        assert (gone.status, gone.header("allow")) == (405, "GET, HEAD")


async def test_a_provider_that_lists_nothing_adds_nothing(tmp_path: Path) -> None:
    for script in (play(http(500, (), b"")), play(http(200, (), b"<html>")), play(end="rst"), play(http(200, (), b'{"data": "x"}'))):
        async with case(tmp_path, script, models=MODELS) as it:
            answer = await it.ask(path="/v1/models", method="GET")
            assert [model["id"] for model in answer.json()["data"]] == ["m", "ok"]


async def test_a_key_tells_its_holder_what_it_may(tmp_path: Path) -> None:
    teams = TEAMS | {"search": TEAMS["search"] | {"models": ["m", "ok"]}}
    async with case(tmp_path, play(http(200, (), b"{}")), models=MODELS, teams=teams) as it:
        told = (await it.ask(path="/v1/key", method="GET")).json()
        assert told == {
            "object": "key",
            "organisation": "acme",
            "team": "search",
            "name": "ci",
            "expires": "2999-12-31T00:00:00+00:00",
            "models": ["m", "ok"],
            "limits": [],
            "budgets": [],
        }
        other = (await it.ask(path="/v1/key", method="GET", key=OTHER)).json()
        assert (other["team"], other["expires"]) == ("other", None)


async def test_an_open_gateways_key_is_nobodys(tmp_path: Path) -> None:
    async with case(tmp_path, key=None, teams={}) as it:
        told = (await it.ask(path="/v1/key", method="GET")).json()
        assert (told["team"], told["name"], told["models"]) == (None, None, ["m", "ok"])


async def test_health_and_readiness(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        assert (await it.ask(path="/healthz", method="GET", key="")).json() == {"status": "alive"}
        async with asyncio.timeout(5):
            while (ready := await it.ask(path="/readyz", method="GET", key="")).status != 200:
                assert ready.json()["status"] == "replaying"
        assert ready.json()["status"] == "ready"
        assert ready.json()["config_version"] == it.running.app.config.version
        it.running.app.endpoints.reload_error = "spangate.yaml:3:1: models: unknown key"
        assert (await it.ask(path="/readyz", method="GET", key="")).json()["config_reload_failed"].endswith("unknown key")
        it.running.app.endpoints.waiting = ["telemetry"]
        assert (await it.ask(path="/readyz", method="GET", key="")).json()["waits_for_restart"] == ["telemetry"]


async def test_readiness_says_how_many_switches_are_on_and_not_whose(tmp_path: Path) -> None:
    path = tmp_path / "spangate.duckdb.stops"
    async with case(tmp_path) as it:
        stops_file.turn(path, "team:other", stopped=True, now=datetime.now(UTC))
        listed = await it.ask(path="/admin/stops", method="GET", key="")
        assert (listed.status, listed.error["code"]) == (404, "not_found")
        await it.running.app.switches.look()
        ready = await it.ask(path="/readyz", method="GET", key="")
        assert (ready.json()["stopped"], b"other" in ready.body) == (1, False)
        path.write_text("stopped: [", encoding="utf-8")
        await it.running.app.switches.look()
        ready = await it.ask(path="/readyz", method="GET", key="")
        assert ready.json()["switches"].startswith("spangate.duckdb.stops:2:1: is not YAML")
        assert str(tmp_path) not in ready.body.decode()


async def test_it_is_ready_once_what_was_left_is_in_the_database(tmp_path: Path) -> None:
    async with case(tmp_path, usage={"path": "usage.duckdb"}) as it:
        async with asyncio.timeout(3):
            while (ready := await it.ask(path="/readyz", method="GET", key="")).status != 200:
                assert ready.json()["status"] == "replaying"
        assert set(ready.json()) == {"status", "config_version"}


async def test_a_database_that_can_not_be_had_is_told_and_its_folder_is_not(tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb").write_bytes(b"nothing of the kind" * 1000)
    async with case(tmp_path, usage={"path": "usage.duckdb"}) as it:
        await it.works()
        async with asyncio.timeout(3):
            while "usage" not in (told := (await it.ask(path="/readyz", method="GET", key=""))).json():
                pass
        assert (told.status, told.json()["status"]) == (200, "ready")  # calls go on, and their rows are not lost
        assert told.json()["usage"].startswith("usage rows wait in usage.duckdb.spool: ")
        assert str(tmp_path) not in told.json()["usage"]
        it.log.unhandled.clear()  # the log has told of it, as it must


async def test_telemetry_that_was_lost_is_counted(tmp_path: Path) -> None:
    async with case(tmp_path, telemetry={}) as it:
        assert "telemetry_dropped" not in (await it.ask(path="/readyz", method="GET", key="")).json()
        measuring = it.running.app.setting.measuring
        assert measuring is not None
        measuring.pushed_out = 3
        assert (await it.ask(path="/readyz", method="GET", key="")).json()["telemetry_dropped"] == {"metrics.queue_full": 3}


async def test_metrics_are_there_where_there_is_telemetry(tmp_path: Path) -> None:
    async with case(tmp_path, telemetry={}) as it:
        await it.works()
        answer = await it.ask(path="/metrics", method="GET", key="")
        assert answer.status == 200
        assert str(answer.header("content-type")).startswith("text/plain; version=0.0.4")
        [line] = [line for line in answer.body.decode().splitlines() if line.startswith("spangate_requests_total{")]
        assert 'spangate_route_name="ok",spangate_outcome="completed"' in line
        assert line.endswith("} 1")
    async with case(tmp_path) as it:
        assert (await it.ask(path="/metrics", method="GET")).error["code"] == "not_found"


async def test_metrics_from_another_machine_need_the_admin_token(tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    async with case(tmp_path, telemetry={}, server={"admin_token": token}) as it:
        measuring = it.running.app.setting.measuring
        assert measuring is not None
        for shown in ("", "wrong"):
            with pytest.raises(Refused, match="admin token"):
                await metrics(measuring, from_afar(shown), it.running.app.endpoints.gateway)
        answered = from_afar(token)
        await metrics(measuring, answered, it.running.app.endpoints.gateway)
        assert answered.status == 200


def from_afar(token: str) -> Paper:
    paper = Paper(path="/metrics", method="GET", Authorization=f"Bearer {token}")
    paper.client_address = "192.0.2.7"
    return paper


@pytest.mark.parametrize("path", ["/v1/models", "/v1/key", "/healthz", "/readyz"])
async def test_every_page_carries_its_request_id_and_trace(tmp_path: Path, path: str) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with case(tmp_path) as it:
        answer = await it.ask(path=path, method="GET", headers=[("traceparent", f"00-{trace}-00f067aa0ba902b7-01")])
        assert answer.header("content-type") == "application/json"
        assert str(answer.header("x-request-id")).startswith("req_")
        assert answer.header("x-spangate-trace-id") == trace


async def test_every_code_has_its_page(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        for code, page in PAGES.items():
            answer = await it.ask(path=f"/docs/errors/{code}", method="GET", key="")
            assert (answer.status, answer.body.decode()) == (200, page.markdown())
            assert f"(/docs/errors/{code})" in (await it.ask(path="/docs/errors/", method="GET", key="")).body.decode()
