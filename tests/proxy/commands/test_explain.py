"""`spangate explain`: what its rows tell of one call."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spangate.call.events import Usage
from spangate.exporters.usage.settings import Price

from accounts import Accounts, accounts, ended
from program import Ran, on_a_terminal, spangate

PRICES = [Price.model_validate({"model": "m-big", "input": 1, "output": 4})]
YAML = "usage: {path: usage.duckdb, retention: 30000d}\nprices: [{model: m-big, input: 1, output: 4}]\n"


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Accounts]:
    (folder / "spangate.yaml").write_text(YAML)
    async with accounts(folder, prices=PRICES) as usage:
        yield usage


def explain(folder: Path, id: str) -> Ran:
    return spangate("explain", id, folder=folder)


async def test_a_call_with_all_that_there_is(tmp_path: Path) -> None:
    async with kept(tmp_path) as usage:
        seen = ended(user="alice\x1b[2J", tags={"env": "prod"}, client_request_id="theirs-7", usage=Usage(1203, 88, cached=1000))
        seen.notes.add("budget.reserved", used=17, scope="team:search")
        usage.record(seen)
    ran = explain(tmp_path, seen.id)
    assert (ran.code, ran.err) == (0, "")
    assert explain(tmp_path, seen.trace_hex).out == explain(tmp_path, "theirs-7").out == ran.out
    lines = [line.strip("│├└─ ") for line in ran.out.splitlines()]
    assert lines[0] == f"{seen.id}  200 completed"
    told = dict(line.split(None, 1) for line in lines[1:] if line != "decisions")
    assert told["caller"] == "search/ci  of default  user alice?[2J  client_request_id theirs-7  env prod"
    assert told["trace"] == seen.trace_hex
    assert told["used"] == "1,203+88 tokens (1,000 cached) as provider says, $0.001555 (override)"
    assert told["attempt"].startswith("1 → up m-big")
    assert told["attempt"].endswith("200 success")
    assert told["budget.reserved"] == '{"used":17,"scope":"team:search"}'
    assert "\x1b" not in ran.out


async def test_a_call_that_was_refused(tmp_path: Path) -> None:
    async with kept(tmp_path) as usage:
        seen = ended()
        seen.attempts.clear()
        seen.usage, seen.status, seen.outcome, seen.error_code, seen.team, seen.key = None, 401, "refused", "invalid_api_key", "", ""
        usage.record(seen)
    out = explain(tmp_path, seen.id).out
    assert f"{seen.id}  401 refused invalid_api_key" in out
    assert "no team's key" in out
    assert "no request was sent to a provider" in out


async def test_a_terminal(tmp_path: Path) -> None:
    async with kept(tmp_path) as usage:
        usage.record(seen := ended())
    ran = on_a_terminal("explain", seen.id, folder=tmp_path)
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) < 200


async def test_the_beginning_of_an_id_is_enough(tmp_path: Path) -> None:
    async with kept(tmp_path) as usage:
        for name in ("theirs-10", "theirs-11", "other-1"):
            usage.record(seen := ended(client_request_id=name))
    whole = explain(tmp_path, seen.id)
    for id in (f"{seen.id[:-4]}…", seen.id[:-4], f"{seen.id[:-4]}...", "other-"):
        assert explain(tmp_path, id).out == whole.out
    assert explain(tmp_path, seen.trace_hex[:20]).out == explain(tmp_path, seen.trace_hex).out != whole.out
    ran = explain(tmp_path, "theirs")
    assert (ran.code, ran.out) == (1, "")
    assert re.fullmatch(
        r"spangate: several calls begin with theirs: req_\w+ \(200 fast\), req_\w+ \(200 fast\): give more of the id\n", ran.err
    )
    assert "no call has the id" in explain(tmp_path, "other").err, "too few to be one by more than chance"


async def test_no_such_call(tmp_path: Path) -> None:
    async with kept(tmp_path):
        pass
    for id in ("req_nothing", "", "' OR '1'='1", "\x1b[2J"):
        ran = explain(tmp_path, id)
        assert (ran.code, ran.out) == (1, "")
        assert "no call has the id" in ran.err
        assert "\x1b" not in ran.err
