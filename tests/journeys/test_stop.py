"""The kill switch as an operator turns it: the real program, beside gateways that run."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from spangate.proxy.commands import stop

from case import KEY, OTHER, Case, case, key_hash
from program import Ran, spangate
from serving import Program, serving
from upstream import LAST_CHUNK, C, D, F, Misbehaving, chat_answer, chunk, play, sse_head
from valkey_server import valkey

ADMIN = "0123456789abcdef0123"


async def within_a_second(gateway: Case | Program, status: int, said: float) -> None:
    """Calls are answered so from a second later on, at the latest; it is the beginning of a call that counts."""
    began = time.monotonic()
    while (await gateway.ask()).status != status:
        assert began < said + 1
        began = time.monotonic()


async def run(folder: Path, *arguments: str) -> Ran:
    return await asyncio.to_thread(spangate, *arguments, folder=folder)


async def test_a_team_is_stopped_while_a_stream_runs_and_through_a_restart(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    slow = play(sse_head() + chunk(C("a")), go_on, chunk(C("b")) + chunk(F("stop")) + chunk(D) + LAST_CHUNK)
    async with Misbehaving(slow) as up:
        with serving(tmp_path, up.base_url) as program:
            async with program.asked(stream=True) as stream:
                await up.request(0)
                up.script = play(chat_answer("Hello"))
                assert (await program.ask()).status == 200

                ran = await run(tmp_path, "stop", "team:search")
                assert (ran.code, ran.out) == (0, "")
                assert (
                    ran.err
                    == "stopped team:search: new calls get 403 `stopped`, those under way go on; `spangate resume team:search` ends it\n"
                )
                refused = await program.ask()
                assert (refused.status, refused.error["code"], refused.error["type"]) == (403, "stopped", "permission_error")
                assert refused.error["stopped"]["switch"] == "team:search"
                assert refused.header("x-spangate-attempts") == "0"

                go_on.set()
                answer = await stream.answer()
                assert (answer.status, D in answer.body) == (200, True)
            listed = await run(tmp_path, "stop")
            assert [line.split()[0] for line in listed.out.splitlines()] == ["STOPPED", "team:search"]
            explained = await run(tmp_path, "explain", refused.error["request_id"])
            assert "403 refused stopped" in explained.out
            assert "stop.refused  deny  team:search" in explained.out
        sent = len(up.requests)

        with serving(tmp_path, up.base_url) as program:
            assert (await program.ask()).status == 403
            assert (await program.ask("/readyz", "GET")).json()["stopped"] == 1
            ran = await run(tmp_path, "resume", "team:search")
            assert (ran.code, ran.err) == (0, "resumed team:search\n")
            assert (await program.ask()).status == 200
        assert len(up.requests) == sent + 1


@pytest.mark.parametrize(
    ("switch", "m", "others_m", "ok"),
    [
        ("team:other", 200, 403, 200),
        ("key:search/ci", 403, 200, 403),
        ("model:m", 403, 403, 200),
        ("model:*", 403, 403, 403),
        ("provider:up", 403, 403, 200),
        ("provider:script", 200, 200, 403),
    ],
)
async def test_each_kind_and_nobody_else(switch: str, m: int, others_m: int, ok: int, tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert await asyncio.to_thread(stop.stop, it.running.app.config.path, switch, {}) == 0
        asked = [await it.ask(), await it.ask(key=OTHER), await it.ask({"model": "ok"})]
        assert [each.status for each in asked] == [m, others_m, ok]
        assert {each.error["stopped"]["switch"] for each in asked if each.status == 403} == {switch}
        assert len(it.up.requests) == [m, others_m].count(200)
        assert await asyncio.to_thread(stop.resume, it.running.app.config.path, switch, {}) == 0
        assert [(await it.ask()).status, (await it.ask(key=OTHER)).status] == [200, 200]


async def test_it_takes_a_second_at_the_most_without_anybody_asking_the_gateway(tmp_path: Path) -> None:
    """Without usage there is no socket: the gateway sees the file by itself."""
    async with case(tmp_path, play(chat_answer("Hello")), usage={"enabled": False}) as it:
        ran = await run(tmp_path, "stop", "model:m")
        said = time.monotonic()
        assert (ran.code, "no gateway answers at spangate.duckdb.sock" in ran.err) == (0, True)
        await within_a_second(it, 403, said)
        await run(tmp_path, "resume", "model:m")


async def test_a_reload_leaves_it_as_it_is(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        with serving(tmp_path, up.base_url) as program:
            await run(tmp_path, "stop", "key:search/ci")
            await program.reloaded((tmp_path / "spangate.yaml").read_text("utf-8") + "\n")
            assert (await program.ask()).error["code"] == "stopped"
            (tmp_path / "spangate.yaml").write_text("modles: {}", encoding="utf-8")
            assert (await run(tmp_path, "resume", "key:search/ci")).code == 0  # also while the file is bad
            assert (await program.ask()).status == 200


async def test_a_stopped_model_is_no_secret_to_those_alone_who_may_use_it(tmp_path: Path) -> None:
    keys = {team: [{"name": "ci", "hash": key_hash(key)}] for team, key in (("search", KEY), ("other", OTHER))}
    teams = {"search": {"models": ["ok"], "keys": keys["search"]}, "other": {"keys": keys["other"]}}
    async with case(tmp_path, teams=teams) as it:
        unknown = await it.ask({"model": "x"})
        await run(tmp_path, "stop", "model:m")
        forbidden = await it.ask()
        assert (forbidden.status, forbidden.error["code"]) == (404, "model_not_found")
        assert forbidden.error["message"] == unknown.error["message"].replace("'x'", "'m'")
        assert (await it.ask(key=OTHER)).status == 403


async def test_nothing_is_held_or_counted_for_a_call_that_is_stopped(tmp_path: Path) -> None:
    defaults = {"policies": [{"rate_limit": {"requests": "1/min"}}]}
    async with case(tmp_path, play(chat_answer("Hello")), defaults=defaults) as it:
        await run(tmp_path, "stop", "provider:up")
        for _ in range(3):
            refused = await it.ask(key=OTHER)
            assert (refused.status, refused.header("x-ratelimit-limit-requests")) == (403, None)
        await run(tmp_path, "resume", "provider:up")
        assert [(await it.ask(key=OTHER)).status for _ in range(2)] == [200, 429]


async def test_a_gateway_on_the_same_state_stops_too(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with valkey(tmp_path / "valkey") as server:
        state = {"backend": "redis", "url": server.url}
        async with Misbehaving(play(chat_answer("Hello"))) as up, case(folders[1], up, state=state) as there:
            with serving(folders[0], up.base_url, state=state) as here:
                assert (await there.ask()).status == 200
                ran = await run(folders[0], "stop", "team:search")
                said = time.monotonic()
                assert (ran.code, ran.err.count("\n")) == (0, 1)
                assert (await here.ask()).status == 403
                await within_a_second(there, 403, said)
                assert (await run(folders[1], "stop")).out.splitlines()[1].startswith("team:search ")
                assert (await run(folders[1], "resume", "team:search")).code == 0
                await within_a_second(here, 200, time.monotonic())
                server.stop()
                ran = await run(folders[0], "stop", "model:m")
                assert (ran.code, "warning: other gateways can't be told or asked" in ran.err) == (0, True)
                assert (await here.ask()).status == 403


async def test_the_page_of_the_admin(tmp_path: Path) -> None:
    async with case(tmp_path, server={"admin_token": ADMIN}) as it:
        await run(tmp_path, "stop", "team:other")
        page = (await it.ask(path="/admin/stops", method="GET", key=ADMIN)).json()
        assert (page["object"], [row["switch"] for row in page["data"]]) == ("list", ["team:other"])
        assert (await it.ask(path="/admin/stops", method="GET")).status == 401


async def test_a_gateway_does_not_start_without_knowing_what_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text("providers: {s: {kind: scripted}}\nmodels: {m: {targets: [{provider: s}]}}\n", encoding="utf-8")
    (tmp_path / "spangate.duckdb.stops").write_text("stopped: [", encoding="utf-8")
    ran = await run(tmp_path, "serve", "--port", "0")
    assert (ran.code, ran.err) == (2, "spangate: spangate.duckdb.stops:2:1: is not YAML: expected node content while parsing a flow node\n")
