"""`spangate budgets`: as the running gateway knows them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from case import KEY, case, key_hash
from program import spangate
from upstream import Misbehaving, chat_completion, http, play

JSON = [("content-type", "application/json")]


def team(**more: Any) -> dict[str, Any]:
    budget = {"budget": {"name": "b", "limit": 1000, "window": "total", "models": ["m"], **more}}
    return {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": [budget]}}


async def ran(folder: Path, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(spangate, "budgets", *arguments, folder=folder)
    return done.code, done.out, done.err


async def test_a_line_a_budget(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), teams=team()) as it:
        await it.ask({"max_tokens": 50})
        code, out, _ = await ran(tmp_path)
        assert code == 0
        head, line = out.splitlines()
        assert head.split() == ["name", "scope", "window", "unit", "limit", "used", "reserved", "remaining", "resets_at", "forecast"]
        assert line.split() == ["b", "team:search", "total", "weighted_tokens", "1000", "30", "0", "970", "never", "30"]


async def test_without_a_gateway_or_a_budget_it_says_what_to_do(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        assert await ran(tmp_path) == (0, "no budget is configured: docs/budgets.md shows how\n", "")
        code, _, err = await ran(tmp_path, "--test-webhook")
        assert code == 1
        assert "no budget has a webhook" in err
        assert it.running.url
    assert (await ran(tmp_path))[0] == 0
    (tmp_path / "empty").mkdir()
    code, _, err = await ran(tmp_path / "empty")
    assert code == 1
    assert "spangate serve" in err


async def test_without_a_gateway_the_database_knows(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), teams=team()) as it:
        await it.ask({"max_tokens": 50})
    code, out, _ = await ran(tmp_path)
    assert code == 0
    assert out.splitlines()[1].split() == ["b", "team:search", "total", "weighted_tokens", "1000.0", "30.0", "0", "970.0", "never", "30.0"]


async def test_webhooks_are_tried(tmp_path: Path) -> None:
    async with Misbehaving([play(http(204)), play(http(500))]) as hook:
        url = f"{hook.base_url}/hook?token=secret"
        thresholds = {"webhook": url, "secret": "0123456789abcdef"}
        async with case(tmp_path, teams=team(thresholds=thresholds)):
            code, out, err = await ran(tmp_path, "--test-webhook")
            assert (code, out, err) == (0, "b: 127.0.0.1 answers 204\n", "")
            request = await hook.request(0)
            assert json.loads(request.body)["event"] == "budget.test"
            code, out, err = await ran(tmp_path, "--test-webhook")
            assert (code, out) == (1, "b: 127.0.0.1 answers 500\n")
            assert "1 of 1 webhooks did not take it" in err
            assert "secret" not in out + err
