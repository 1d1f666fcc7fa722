"""`spangate doctor` from outside: with a whole way that is well, and with each part of it broken."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from spangate.exporters.usage.settings import Usage
from spangate.proxy.commands.doctor import Ground, configuration, ground_of
from spangate.proxy.commands.failure import Failure
from spangate.proxy.server import Address

from case import KEY, PROVIDER_KEY, settings
from otlp_sink import Sink
from program import Ran, left_in, on_a_terminal, running, spangate
from serving import serving
from upstream import Misbehaving, error, http, play, refusing_port

MODELS = http(200, body=json.dumps({"object": "list", "data": [{"id": "m-big"}, {"id": "m"}]}).encode())
SECRETS = (PROVIDER_KEY, KEY, "CANARY")


def write(folder: Path, base_url: str, **sections: Any) -> None:
    server = {"port": refusing_port()}
    (folder / "spangate.yaml").write_text(settings(base_url, **{"server": server} | sections))


async def doctor(folder: Path, *arguments: str, **environ: str) -> tuple[Ran, dict[str, tuple[str, str]]]:
    """What it says, and its findings by name."""
    ran = await asyncio.to_thread(spangate, "doctor", *arguments, folder=folder, **environ)
    assert [secret for secret in SECRETS if secret in ran.out + ran.err] == []
    lines = re.findall(r"^(ok|off|warning|problem) +(\S+(?: \S+)?)  +(.*)$", ran.out, re.MULTILINE)
    return ran, {name: (level, words) for level, name, words in lines}


async def test_the_whole_way_is_well_and_nothing_is_left(tmp_path: Path) -> None:
    async with Misbehaving(play(MODELS)) as up:
        with Sink() as sink:
            write(tmp_path, up.base_url, telemetry={"otlp": {"endpoint": sink.endpoint}})
            before = left_in(tmp_path)
            ran, told = await doctor(tmp_path)
            assert (ran.code, ran.err) == (0, ""), ran.out
            assert [span.name for span in sink.spans] == ["spangate doctor"]
        assert [request.path for request in up.requests] == ["/v1/models"]
    assert {level for level, _ in told.values()} == {"ok"}
    assert {"configuration", "keys", "models", "traces", "database", "spool", "disk", "port", "clock"} < set(told)
    assert left_in(tmp_path) == before
    assert re.search(r"\n\n\d+ ok, in \d\.\d s\n$", ran.out)


async def test_each_thing_that_is_broken_is_told_with_how_to_mend_it(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    async with Misbehaving(play(error(401, f"no {PROVIDER_KEY}"))) as up:
        dead, taken = f"http://127.0.0.1:{refusing_port()}", {"port": up.port}
        write(tmp_path, up.base_url, server=taken, usage={"path": "in the way/usage.duckdb"}, telemetry={"otlp": {"endpoint": dead}})
        ran, told = await doctor(tmp_path, "--timeout", "2")
    assert ran.code == 1
    problems = {name for name, (level, _) in told.items() if level == "problem"}
    assert {"provider up", "traces", "database", "spool", "port"} == problems
    assert "refuses its api_key (401): put one there that it takes" in told["provider up"][1]


async def test_all_checks_run_at_once_and_end_in_time(tmp_path: Path) -> None:
    async with Misbehaving(play(end="hold")) as up:
        with Sink(mode="mute") as sink:
            write(tmp_path, up.base_url, server={"port": up.port}, telemetry={"otlp": {"endpoint": sink.endpoint}})
            began = time.monotonic()
            ran, told = await doctor(tmp_path, "--timeout", "1.5")
            assert time.monotonic() - began < 8, "one patience, and the start of a program on a busy machine"
    assert ran.code == 1
    assert "gives no answer within 1.5 s" in told["provider up"][1]
    assert "gives no answer within 1.5 s" in told["traces"][1]
    assert "not by a gateway" in told["port"][1]


async def test_beside_a_gateway_that_runs(tmp_path: Path) -> None:
    async with Misbehaving(play(MODELS)) as up:
        with Sink(mode="refusing") as sink, serving(tmp_path, up.base_url, telemetry={"otlp": {"endpoint": sink.endpoint}}) as program:
            await program.ask("/v1/chat/completions")
            await asyncio.to_thread(sink.wait, lambda: any(each.path == "/v1/traces" for each in sink.requests))
            async with asyncio.timeout(5):
                while "telemetry_dropped" not in (await program.ask("/readyz", "GET")).json():
                    pass
            ran, told = await doctor(tmp_path)
            program.process.send(signal.SIGTERM)
            await program.end()
    assert ran.code == 1  # the collector refuses the doctor's span too
    assert told["gateway"][0] == "ok"
    assert "written by the gateway that runs" in told["database"][1]
    assert re.search(r"items? of traces since it started \(rejected\)", told["lost"][1]), told


async def test_mistakes_are_told_as_check_tells_them_and_the_gateway_is_looked_at(tmp_path: Path) -> None:
    async with Misbehaving(play(MODELS)) as up:
        with serving(tmp_path, up.base_url) as program:
            text = (tmp_path / "spangate.yaml").read_text().replace('"models"', '"modles"', 1)
            (tmp_path / "spangate.yaml").write_text(text)
            checked = await asyncio.to_thread(spangate, "check", folder=tmp_path)
            ran, told = await doctor(tmp_path)
            program.process.send(signal.SIGTERM)
            await program.end()
    assert (checked.code, ran.code) == (2, 2)
    assert ran.err == ""
    assert told["configuration"] == ("problem", checked.err.rstrip("\n"))
    assert ran.out.count(checked.err) == 1
    assert told["gateway"][0] == "ok"


async def test_programs_get_json(tmp_path: Path) -> None:
    async with Misbehaving(play(error(503))) as up:
        write(tmp_path, up.base_url)
        ran, _ = await doctor(tmp_path, "--json")
    told = json.loads(ran.out)
    assert (ran.code, ran.err, told["ok"]) == (1, "", False)
    [found] = [each for each in told["checks"] if each["level"] == "problem"]
    assert (found["check"], "503" in found["told"], found["mend"]) == ("provider up", True, "it is in trouble: try again later")


async def test_a_terminal_sees_what_is_waited_for(tmp_path: Path) -> None:
    async with Misbehaving(play((MODELS, 0.5))) as up:
        write(tmp_path, up.base_url)
        ran = await asyncio.to_thread(on_a_terminal, "doctor", folder=tmp_path)
    assert ran.code == 0
    assert "asking " in ran.out
    assert "\x1b[32mok" in ran.out


async def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    async with Misbehaving(play(end="hold")) as up:
        write(tmp_path, up.base_url)
        with running("doctor", folder=tmp_path) as program:
            await up.request(0)
            program.send(signal.SIGINT)
            ended = await asyncio.to_thread(program.end)
    assert (ended.code, ended.err) == (130, "")


async def test_without_a_file_and_without_a_key(tmp_path: Path) -> None:
    ran, _ = await doctor(tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("spangate: there is neither a spangate.yaml here nor OPENAI_API_KEY")


async def test_without_a_file_a_key_is_tried_through_the_proxy_that_there_is(tmp_path: Path) -> None:
    proxy = f"http://127.0.0.1:{refusing_port()}"
    ran, told = await doctor(tmp_path, OPENAI_API_KEY=PROVIDER_KEY, HTTPS_PROXY=proxy)
    assert ran.code == 1
    assert told["configuration"][1].startswith("OPENAI_API_KEY alone")
    assert "through the proxy of the environment" in told["provider openai"][1]


def ground(folder: Path, text: str) -> Ground:
    (folder / "spangate.yaml").write_text(text)
    return ground_of(folder / "spangate.yaml", {})


SCRIPT = "providers: {up: {kind: scripted}}\nmodels: {fast: {targets: [{provider: up}]}}\n"


def test_keys_that_have_expired(tmp_path: Path) -> None:
    key = f"{{name: ci, hash: 'sha256:{'0' * 64}', expires: 2020-01-01}}"
    told = configuration(ground(tmp_path, f"{SCRIPT}teams: {{search: {{keys: [{key}]}}}}"), {})
    assert [(each.check, each.level) for each in told] == [("configuration", "ok"), ("keys", "warning"), ("keys", "problem")]
    assert told[0].words.endswith("(1 team, 1 model, 0 policy lists, 0 keys)")
    assert told[1].words.startswith("search/ci has expired: spangate keys new search")
    assert told[2].words.startswith("every key has expired, so nobody could call: spangate keys new search")


def test_nobody_has_a_key(tmp_path: Path) -> None:
    told = configuration(ground(tmp_path, SCRIPT + "teams: {search: {}}"), {})
    assert told[-1].words == f"no team has a key, so nobody could call: spangate keys new search -c {tmp_path / 'spangate.yaml'}"


def test_a_gateway_that_anybody_could_reach(tmp_path: Path) -> None:
    told = configuration(ground(tmp_path, SCRIPT + "server: {host: 0.0.0.0}"), {})
    assert (told[-1].check, told[-1].level) == ("callers", "problem")


def test_a_bundle_of_certificates_that_is_not_there(tmp_path: Path) -> None:
    told = configuration(ground(tmp_path, SCRIPT), {"SSL_CERT_FILE": os.fspath(tmp_path / "none.pem")})
    assert (told[-1].check, told[-1].level) == ("certificates", "problem")


def test_a_broken_file_still_says_where_its_gateway_is(tmp_path: Path) -> None:
    found = ground(tmp_path, SCRIPT + "server: {port: 9999}\nusage: {path: rows.duckdb}\nteams: 7\n")
    assert (found.config, found.address, found.usage) == (None, Address("127.0.0.1", 9999), Usage(path="rows.duckdb"))
    assert found.socket == tmp_path / "rows.duckdb.sock"


def test_no_file_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failure, match="neither"):
        ground_of(None, {})
