"""Budgets and rate limits over HTTP: what callers get, what the ledger knows, what rows say."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from case import KEY, OTHER, Case, case, key_hash
from gateway import until
from midday import MIDDAY
from upstream import LAST_CHUNK, C, D, F, Request, U, chat_answer, chat_completion, chunk, error, http, play, sse, sse_head, wants_stream

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
JSON = [("content-type", "application/json")]
ADMIN = "0123456789abcdef0123"


def teams(*policies: dict[str, Any], keys: int = 1) -> dict[str, Any]:
    held = [{"name": name, "hash": key_hash(key)} for name, key in (("ci", KEY), ("two", OTHER))[:keys]]
    return {"teams": {"search": {"keys": held, "policies": list(policies)}}, "server": {"admin_token": ADMIN}}


def budget(limit: Any, **more: Any) -> dict[str, Any]:
    """Of the model that misbehaves: the other one tells whether the gateway still works."""
    return {"budget": {"name": "b", "limit": limit, "window": "total", "models": ["m"], **more}}


async def key_page(it: Case, key: str = KEY) -> dict[str, Any]:
    found: dict[str, Any] = (await it.ask(path="/v1/key", method="GET", key=key)).json()
    return found


async def figures(it: Case, name: str = "b") -> tuple[float, float]:
    [row] = [row for row in (await key_page(it))["budgets"] if row["name"] == name]
    return row["used"], row["reserved"]


@pytest.mark.fault("BUD-01")
async def test_ten_of_fifty_get_what_there_is(tmp_path: Path) -> None:
    def answers(request: Request) -> Any:
        return play((http(200, JSON, chat_completion("x", (0, 100))), 0.3))

    weights = {"input": 0, "output": 1}
    async with case(tmp_path, answers, **teams(budget(1000, weights=weights))) as it:
        asked = await asyncio.gather(*(it.ask({"max_tokens": 100}) for _ in range(50)))
        assert sorted(each.status for each in asked) == [200] * 10 + [429] * 40
        refused = next(each for each in asked if each.status == 429)
        assert (refused.error["code"], refused.error["type"]) == ("budget_exceeded", "insufficient_quota")
        assert refused.error["source"] == "policy"
        assert refused.header("x-should-retry") == "false"
        assert refused.header("retry-after") is None
        assert refused.header("x-spangate-attempts") == "0"
        assert refused.error["budget"]["limit"] == 1000
        assert await figures(it) == (1000, 0)
        assert len(it.up.requests) == 10


@pytest.mark.fault("BUD-03")
async def test_key_and_team_both_hold(tmp_path: Path) -> None:
    weights = {"input": 0, "output": 1}
    rules = (
        budget(100, name="team", window="day", timezone=MIDDAY, weights=weights),
        budget(80, name="key", window="day", timezone=MIDDAY, per="key", weights=weights),
    )
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (0, 20)))), **teams(*rules, keys=2)) as it:
        for _ in range(4):
            assert (await it.ask({"max_tokens": 20})).status == 200
        assert (await it.ask({"max_tokens": 20})).error["budget"]["name"] == "key"
        assert (await it.ask({"max_tokens": 20}, key=OTHER)).status == 200
        told = (await it.ask({"max_tokens": 20}, key=OTHER)).error["budget"]
        assert (told["name"], told["scope"], told["used"]) == ("team", "team:search", 100)


@pytest.mark.fault("BUD-05")
async def test_a_changed_limit_acts_within_a_second(tmp_path: Path) -> None:
    """However many calls come meanwhile: none of them keeps the old limit alive."""
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(budget(60))) as it:
        assert (await it.ask({"max_tokens": 20})).status == 200
        assert (await it.ask({"max_tokens": 40})).status == 429
        path, done = tmp_path / "spangate.yaml", 1
        for limit, status in ((100_000, 200), (50, 429), (100_000, 200)):
            text = json.loads(path.read_text())
            text["teams"]["search"]["policies"][0]["budget"]["limit"] = limit
            path.write_text(json.dumps(text))
            changed, found = time.monotonic(), []
            while not found or found[-1][0] <= changed + 1:  # until one was begun after that
                began = time.monotonic()
                found.append((began, (await it.ask({"max_tokens": 40})).status))
                done += found[-1][1] == 200
                await asyncio.sleep(0.05)  # part of the scenario
            assert {each for at, each in found if at > changed + 1} == {status}
            assert [each for _, each in found] == sorted([each for _, each in found], reverse=status == 200), "and then stays so"
        assert await figures(it) == (30 * done, 0)


@pytest.mark.fault("BUD-06")
@pytest.mark.fault("RL-02")
async def test_nothing_is_held_for_ever(tmp_path: Path) -> None:
    def answers(request: Request) -> Any:
        words = request.json()["messages"][0]["content"]
        if words == "500":
            return play(error(500, "no"))
        if words == "reset":
            return play(end="rst")
        return play(end="hold") if words in ("slow", "leaves") else play(http(200, JSON, chat_completion("x", (10, 20))))

    impatient = {"targets": [{"provider": "up"}], "time_limit": {"first": "100ms", "total": "100ms"}}
    models = {"m": impatient, "patient": {"targets": [{"provider": "up"}]}, "ok": {"targets": [{"provider": "script"}]}}
    rules = teams(budget(100_000), {"rate_limit": {"concurrent": 2}})

    async def asks(it: Case, words: str) -> None:
        body = {"model": "patient" if words == "leaves" else "m", "messages": [{"role": "user", "content": words}], "max_tokens": 100}
        if words == "leaves":
            it.rows += 1
            before = len(it.up.requests)
            async with it.line() as line:
                await line.send(it.request(body))
                await until(lambda: len(it.up.requests) > before)
                line.abort()
            await it.running.settled()
        else:
            assert (await it.ask(body)).status >= 500

    async with case(tmp_path, answers, models=models, **rules) as it:
        for words in ("500", "slow", "leaves", "reset") * 5:
            await asks(it, words)
            await until_free(it)
        assert (await it.ask({"max_tokens": 100})).status == 200
        assert (await figures(it))[1] == 0


async def until_free(it: Case) -> None:
    async with asyncio.timeout(2):
        while (await figures(it))[1] > 0:
            pass  # each look is a request
    [row] = [row for row in (await key_page(it))["limits"] if row["unit"] == "concurrent"]
    assert row["reserved"] == row["used"] == 0


@pytest.mark.fault("BUD-08")
async def test_every_operation_is_metered(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, JSON, b"{}")), **teams(budget(0))) as it:
        for path in PATHS:
            answer = await it.ask({"prompt": "x", "input": "x"}, path=path)
            assert (answer.status, answer.error["code"]) == (429, "budget_exceeded")
        for path in ("/v1/responses", "/v1/audio/speech", "/v1/images/generations", "/v1/batches", "/v1/anything"):
            assert (await it.ask({"input": "x"}, path=path)).status == 404
        assert it.up.requests == []


@pytest.mark.fault("BUD-12")
async def test_no_budget_is_no_limit(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams()) as it:
        answer = await it.ask()
        assert answer.status == 200
        assert [name for name, _ in answer.headers if "limit" in name or "capped" in name] == []
        assert (await key_page(it))["budgets"] == []


@pytest.mark.fault("RL-04")
async def test_a_limit_refuses_as_clients_understand(tmp_path: Path) -> None:
    limit = {"rate_limit": {"requests": "5/min", "when": "model == 'm'"}}
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(limit)) as it:
        for _ in range(5):
            assert (await it.ask()).status == 200
        answer = await it.ask()
        assert answer.status == 429
        assert answer.error["type"] == answer.error["code"] == "rate_limit_exceeded"
        assert 1 <= int(answer.header("retry-after") or 0) <= 60
        assert answer.error["limit"]["name"] == "search.rate_limit.key"
        client = openai.AsyncOpenAI(base_url=it.running.url, api_key=KEY, max_retries=0)
        it.rows += 1
        async with client:
            with pytest.raises(openai.RateLimitError):
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


@pytest.mark.fault("USE-01")
@pytest.mark.fault("USE-02")
@pytest.mark.fault("USE-10")
@pytest.mark.parametrize(
    ("events", "settled"),
    [
        (C("a") + F("stop") + U(13, 20) + D, 33),
        (C("a") + U(13, 1) + C("b") + U(13, 9) + F("stop") + U(13, 20) + D, 33),
        (C("a") + F("stop") + U(13, 20) + U(13, 20) + D, 33),
        (C("a") + F("stop") + U(0, 0) + D, 0),
    ],
)
async def test_streams_settle_at_what_the_provider_says(events: bytes, settled: int, tmp_path: Path) -> None:
    async with case(tmp_path, play(sse(events)), **teams(budget(10_000))) as it:
        assert (await it.ask({"stream": True, "max_tokens": 100})).status == 200
        assert await figures(it) == (settled, 0)


async def test_a_stream_without_usage_is_estimated_near_the_truth(tmp_path: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog and runs away from it. " * 10
    events = b"".join(C(word + " ") for word in text.split()) + F("stop") + D
    truth = 150  # tokens of this text, as OpenAI's vocabularies count it, and the request's few
    async with case(tmp_path, play(sse(events)), **teams(budget(10_000))) as it:
        await it.ask({"stream": True, "max_tokens": 500})
        used, reserved = await figures(it)
        assert reserved == 0
        assert abs(used - truth) <= 0.15 * truth + 10
        [seen] = await it.running.kept.count(1)
        assert seen.notes.named("budget.settled")[0].figures["estimated"] is True


@pytest.mark.parametrize("usage_frame", [False, True])
async def test_a_stream_that_a_budget_ends(usage_frame: bool, tmp_path: Path) -> None:
    pieces = [(chunk(C("word " * 20)), 0.001) for _ in range(200)]
    endless = play(sse_head(), *pieces, chunk(F("stop") + D) + LAST_CHUNK)
    options = {"stream_options": {"include_usage": True}} if usage_frame else {}
    rule = budget(1000, cap_output=False, weights={"input": 0})
    async with case(tmp_path, endless, **teams(rule)) as it:
        answer = await it.ask({"stream": True, **options})
        frames = [line[6:] for line in answer.body.decode().split("\n\n") if line]
        assert frames[-1] == "[DONE]"
        told = [json.loads(frame) for frame in frames[:-1]]
        assert [each["choices"][0]["finish_reason"] for each in told if each["choices"]][-1] == "length"
        assert [each["usage"]["completion_tokens"] > 900 for each in told if not each["choices"]] == [True] * usage_frame
        [seen] = await it.running.kept.count(1)
        assert (seen.outcome, seen.status) == ("cut", 200)
        used, reserved = await figures(it)
        assert reserved == 0
        assert 1000 <= used <= 1000 + 100


async def test_what_a_key_and_the_operator_see(tmp_path: Path) -> None:
    rules = (budget(5000, per="key"), {"rate_limit": {"requests": "10/min", "per": "team"}})
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(*rules, keys=2)) as it:
        await it.ask({"max_tokens": 20})
        mine, theirs = await key_page(it), await key_page(it, OTHER)
        assert [(row["scope"], row["used"], row["remaining"]) for row in mine["budgets"]] == [("key:search/ci", 30, 4970)]
        assert [row["used"] for row in theirs["budgets"]] == [0]
        assert [(row["unit"], row["remaining"]) for row in theirs["limits"]] == [("requests", 9)]
        assert (await it.ask(path="/admin/budgets", method="GET")).status == 401
        listed = (await it.ask(path="/admin/budgets", method="GET", key=ADMIN)).json()["data"]
        assert sorted((row["scope"], row["used"]) for row in listed) == [("key:search/ci", 30), ("key:search/two", 0)]


async def test_rows_bear_the_weights_and_the_ledger(tmp_path: Path) -> None:
    rule = budget("1M", weights={"input": 1, "output": 4})
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(rule)) as it:
        for _ in range(2):
            await it.ask({"max_tokens": 20})
        assert await sql(it, "SELECT weighted_tokens FROM calls") == [[90.0], [90.0]]
        assert await sql(it, "SELECT name, scope, used, calls FROM budgets") == [["b", "team:search", 180.0, 2]]


async def sql(it: Case, query: str) -> Any:
    answer = await it.ask(json.dumps({"sql": query}).encode(), path="/usage/sql")
    assert answer.status == 200
    return answer.json()["rows"]


async def test_answers_without_limits_are_as_they_were(tmp_path: Path) -> None:
    def answers(request: Request) -> Any:
        return play(chat_answer("x", (7, 2), stream=wants_stream(request)))

    async with case(tmp_path, answers, **teams({"access": {"models": ["*"]}})) as it:
        await it.ask()
        sent = it.up.requests[0].json()
        assert sent == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        gateway = it.running.app.endpoints.gateway
        assert gateway.bounds_of("search") == []


@pytest.mark.fault("SSE-15")
async def test_half_an_answer_is_paid_for(tmp_path: Path) -> None:
    pieces = [(chunk(C("word ")), 0.001) for _ in range(40)]
    async with case(tmp_path, play(sse_head(), *pieces, end="rst"), **teams(budget(10_000))) as it:
        answer = await it.ask({"stream": True, "max_tokens": 100})
        assert b"upstream_incomplete" in answer.body
        assert b"[DONE]" not in answer.body
        used, reserved = await figures(it)
        assert reserved == 0
        assert 40 <= used <= 80


@pytest.mark.fault("CAN-01")
@pytest.mark.fault("CAN-02")
async def test_many_who_leave_hold_nothing(tmp_path: Path) -> None:
    pieces = [(chunk(C("word ")), 0.01) for _ in range(60)]
    async with case(tmp_path, play(sse_head(), *pieces, end="hold"), **teams(budget("1M"), {"rate_limit": {"concurrent": 500}})) as it:

        async def leaves() -> None:
            it.rows += 1
            async with it.line() as line:
                await line.send(it.request({"stream": True, "max_tokens": 100}))
                for _ in range(10):
                    await line.reader.readuntil(b"\n\n")
                line.abort()

        await asyncio.gather(*(leaves() for _ in range(100)))
        await it.running.settled()
        await until_free(it)
        used, reserved = await figures(it)
        assert reserved == 0
        assert used >= 100 * 9


@pytest.mark.fault("CLI-01")
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"max_tokens": 10, "max_completion_tokens": 20}, {"max_tokens": 10, "max_completion_tokens": 20}),
        ({"max_tokens": 10}, {"max_tokens": 10}),
        ({"max_completion_tokens": 20}, {"max_completion_tokens": 20}),
        ({"max_tokens": 10, "max_completion_tokens": 900}, {"max_tokens": 10, "max_completion_tokens": 400}),
    ],
)
async def test_the_larger_cap_is_held_and_only_what_does_not_fit_is_lowered(given: Any, sent: Any, tmp_path: Path) -> None:
    rule = budget(400, weights={"input": 0, "output": 1})
    async with case(tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(rule)) as it:
        assert (await it.ask(given)).status == 200
        told = it.up.requests[0].json()
        assert {name: told[name] for name in ("max_tokens", "max_completion_tokens") if name in told} == sent
        [seen] = await it.running.kept.count(1)
        assert seen.notes.named("budget.settled")[0].figures["reserved"] == max(sent.values())


@pytest.mark.fault("CLI-04")
async def test_a_client_does_not_try_again_what_a_budget_refuses(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, JSON, b"{}")), **teams(budget(0))) as it:
        it.rows += 1
        async with openai.AsyncOpenAI(base_url=it.running.url, api_key=KEY, max_retries=5) as client:
            with pytest.raises(openai.RateLimitError) as caught:
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert caught.value.code == "budget_exceeded"
        assert caught.value.type == "insufficient_quota"


@pytest.mark.fault("KEY-17")
async def test_nothing_that_a_caller_says_changes_who_pays(tmp_path: Path) -> None:
    claims = [("x-spangate-team", "other"), ("x-spangate-user", "someone"), ("x-spangate-key", "two"), ("x-spangate-organisation", "x")]
    async with case(
        tmp_path, play(http(200, JSON, chat_completion("x", (10, 20)))), **teams(budget(1000), budget(1000, name="k", per="key"))
    ) as it:
        body = {"max_tokens": 20, "user": "someone", "metadata": {"team": "other"}, "organization": "x"}
        assert (await it.ask(body, headers=claims)).status == 200
        assert await figures(it) == await figures(it, "k") == (30, 0)
