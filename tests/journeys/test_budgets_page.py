"""docs/budgets.md: each example does what the page says of it."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from case import KEY, Case, case, key_hash
from midday import MIDDAY
from upstream import Request, chat_completion, http, play

PAGE = Path(__file__).parents[2] / "docs/budgets.md"
EXAMPLES = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)]
TEAM = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}]}}
JSON = [("content-type", "application/json")]


def example(word: str) -> dict[str, Any]:
    [found] = [each for each in EXAMPLES if word in str(each)]
    return found


@asynccontextmanager
async def as_written(folder: Path, word: str, usage: tuple[int, int], **more: Any) -> Any:
    """A gateway with that example, where it is noon. The model that tells whether it still works has no limits."""
    sections = example(word)
    for rules in sections.get("policies", {}).values():
        for rule in rules:
            [(name, settings)] = rule.items()
            settings["when"] = "model != 'ok'"
            if name == "budget":
                settings["timezone"] = MIDDAY
    models = {name: {"targets": [{"provider": "up"}]} for name in ("m", "small")} | {"ok": {"targets": [{"provider": "script"}]}}
    answer = play(http(200, JSON, chat_completion("x", usage)))
    async with case(folder, answer, teams=TEAM, models=models, **sections, **more) as it:
        yield it


async def test_a_month_in_dollars_with_a_daily_cap(tmp_path: Path) -> None:
    prices = [{"model": "*", "input": 1000, "output": 1000}]
    async with as_written(tmp_path, "search-day", (8, 10_000), prices=prices) as it:
        statuses = [(await it.ask({"max_tokens": 10_000})).status for _ in range(6)]
        assert statuses == [200, 200, 200, 200, 200, 429]
        refused = await it.ask({"max_tokens": 10_000})
        assert refused.error["budget"]["name"] == "search-day"
        assert refused.error["budget"]["unit"] == "usd"
        assert refused.header("x-should-retry") == "false"
        async with asked_key(it) as told:
            assert {row["name"]: row["limit"] for row in told["budgets"]} == {"search-month": 500, "search-day": 50}


@asynccontextmanager
async def asked_key(it: Case) -> Any:
    yield (await it.ask(path="/v1/key", method="GET")).json()


async def test_tokens_a_minute_for_each_key(tmp_path: Path) -> None:
    async with as_written(tmp_path, "200k/min", (100_000, 50_000)) as it:
        answer = await it.ask({"max_tokens": 100})
        assert int(answer.header("x-ratelimit-remaining-tokens") or 0) < 200_000
        assert answer.header("x-ratelimit-limit-requests") == "600"
        assert "ratelimit-policy" in dict(answer.headers)
        await it.ask({"max_tokens": 100})
        refused = await it.ask({"max_tokens": 100})
        assert (refused.status, refused.error["code"], refused.error["limit"]["unit"]) == (429, "rate_limit_exceeded", "tokens")
        assert int(refused.header("retry-after") or 0) >= 1


async def test_a_reply_that_comes_to_an_end_and_a_thread_that_goes_on_smaller(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with as_written(tmp_path, "wrap_up", (0, 9_000)) as it:
        headers = [("x-spangate-reply", "r1"), ("x-spangate-thread", "t1")]
        body = {"max_tokens": 9_000, "tools": tools}
        for _ in range(4):
            assert (await it.ask(body, headers=headers)).status == 200
        assert [request.json().get("tool_choice") for request in it.up.requests] == [None, None, "none", "none"]
        assert (await it.ask(body, headers=headers)).error["budget"]["scope"] == "reply:search/r1"
        assert (await it.ask(body, headers=[("x-spangate-reply", "r2")])).status == 200

    async with as_written(tmp_path, "wrap_up", (0, 1_950_000)) as it:
        thread = [("x-spangate-thread", "t2")]
        for _ in range(2):
            assert (await it.ask({"max_tokens": 150_000}, headers=thread)).status == 200
        assert [request.json()["model"] for request in it.up.requests] == ["m", "small"]


def test_what_is_left_of_the_page_can_be_written() -> None:
    assert example("thresholds")["policies"]["told"]
    assert example("backend") == {"state": {"backend": "memory"}}
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("word", ["search-day", "200k/min", "wrap_up", "thresholds", "backend"])
async def test_each_is_a_configuration(word: str, tmp_path: Path) -> None:
    def answers(request: Request) -> Any:
        return play(http(200, JSON, chat_completion("x", (1, 1))))

    sections = example(word)
    models = {name: {"targets": [{"provider": "script"}]} for name in ("m", "small", "ok")}
    prices = [{"model": "*", "input": 1, "output": 1}]
    async with case(tmp_path, answers, teams=TEAM, models=models, prices=prices, **sections) as it:
        assert (await it.ask({"max_tokens": 20})).status == 200
