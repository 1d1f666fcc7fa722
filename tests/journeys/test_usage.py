"""What a provider says it used, or doesn't say, or lies about; and what stands in the row of the call."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spangate.exporters.record import Fanout
from spangate.exporters.usage.settings import Price

from accounts import Accounts, accounts
from case import KEY, Case, Line, case
from upstream import LAST_CHUNK, C, D, F, Script, U, chat_answer, chat_chunk, chunk, http, play, raw_head, sse, sse_head

STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
PRICES = [
    Price.model_validate({"model": "m-big", "input": 1, "cached": 0.1, "output": 4}),
    Price.model_validate({"model": "*", "input": 9, "output": 9}),
]
TOKENS = "SELECT input_tokens, output_tokens, usage_source FROM calls WHERE model = 'm'"


@asynccontextmanager
async def metered(folder: Path, script: Script, **sections: Any) -> AsyncIterator[tuple[Case, Accounts]]:
    """A case whose calls get rows. Model `m` is the provider's `m-big`."""
    models = {"m": {"targets": [{"provider": "up", "model": "m-big"}]}, "ok": {"targets": [{"provider": "script"}]}}
    async with accounts(folder, prices=PRICES) as usage, case(folder, script, **{"models": models} | sections) as it:
        it.running.app.endpoints.recorder = Fanout(it.running.kept, usage)
        yield it, usage


def said(body: bytes) -> list[Any]:
    frames = [frame.removeprefix(b"data: ") for frame in body.split(b"\n\n") if frame]
    return [json.loads(frame) for frame in frames if frame != b"[DONE]"]


def whole(usage: Any) -> bytes:
    answer = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m-big", "usage": usage}
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    return http(200, [("content-type", "application/json")], json.dumps(answer | {"choices": [choice]}).encode())


@pytest.mark.fault("USE-01")
async def test_usage_in_a_chunk_without_choices(tmp_path: Path) -> None:
    async with metered(tmp_path, play(sse(C("a"), F("stop"), U(13, 20), D))) as (it, usage):
        answer = await it.ask(STREAM)
        assert [(piece["choices"], piece["usage"]["total_tokens"]) for piece in said(answer.body)[-1:]] == [([], 33)]
        assert await usage.rows(TOKENS) == [[13, 20, "provider"]]
        assert await usage.rows("SELECT input_tokens, output_tokens FROM attempts WHERE provider = 'up'") == [[13, 20]]


@pytest.mark.fault("USE-02")
async def test_cumulative_usage_is_not_summed(tmp_path: Path) -> None:
    counts = [
        chat_chunk([{"index": 0, "delta": {"content": "a"}, "finish_reason": None}], usage=figures(13, count)) for count in range(1, 21)
    ]
    async with metered(tmp_path, play(sse(*counts, F("stop"), U(13, 20), D))) as (it, usage):
        await it.ask(STREAM)
        assert await usage.rows(TOKENS) == [[13, 20, "provider"]]


def figures(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@pytest.mark.fault("USE-02")
async def test_usage_that_is_said_twice_counts_once(tmp_path: Path) -> None:
    async with metered(tmp_path, play(sse(C("a"), F("stop"), U(13, 20), U(13, 20), D))) as (it, usage):
        await it.ask(STREAM)
        assert await usage.rows(TOKENS) == [[13, 20, "provider"]]


async def leaves_after(it: Case, pieces: int) -> None:
    """A client that closes its connection after so many pieces of a stream."""
    it.rows += 1
    async with it.line() as line:
        await line.send(it.request(STREAM))
        await heard(line, pieces)
        line.abort()


async def heard(line: Line, pieces: int) -> None:
    for _ in range(pieces):
        await line.reader.readuntil(b"data: ")


@pytest.mark.fault("USE-08")
async def test_a_client_that_leaves_in_the_middle(tmp_path: Path) -> None:
    slow = play(sse_head() + chunk(C("a")), *[(chunk(C("a")), 0.05)] * 29, chunk(F("stop") + U(13, 30) + D) + LAST_CHUNK)
    async with metered(tmp_path, slow) as (it, usage):
        await leaves_after(it, 10)
        await it.running.kept.count(1)
        assert await usage.rows("SELECT outcome, status, usage_source, cost_source FROM calls") == [
            ["aborted", 499, "estimated", "estimated"]
        ]
        [[input, output, weighted, cost]] = await usage.rows("SELECT input_tokens, output_tokens, weighted_tokens, cost FROM calls")
        assert input > 0
        assert output >= 10
        assert weighted == input + output
        assert cost > 0


@pytest.mark.fault("CAN-02")
async def test_two_hundred_that_leave_have_two_hundred_rows(tmp_path: Path) -> None:
    slow = play(sse_head() + chunk(C("a")), *[(chunk(C("a")), 0.02)] * 500)
    async with metered(tmp_path, slow) as (it, usage):
        await asyncio.gather(*(leaves_after(it, 10) for _ in range(200)))
        await it.running.kept.count(200)
        assert await usage.rows("SELECT outcome, count(DISTINCT id), sum(attempts) FROM calls GROUP BY outcome") == [["aborted", 200, 200]]


@pytest.mark.fault("USE-10")
async def test_two_choices_are_billed_once(tmp_path: Path) -> None:
    two = [
        chat_chunk([{"index": index, "delta": {"content": text}, "finish_reason": None}]) for index, text in enumerate(("Azure", "Blue"))
    ]
    ends = [chat_chunk([{"index": index, "delta": {}, "finish_reason": "stop"}]) for index in (0, 1)]
    async with metered(tmp_path, [play(sse(*two, *ends, U(5, 4), D)), play(sse(*two, *ends, D))]) as (it, usage):
        await it.ask({**STREAM, "n": 2})
        assert await usage.rows(TOKENS) == [[5, 4, "provider"]]
        await it.ask({**STREAM, "n": 2})
        estimated = f"{TOKENS} AND usage_source = 'estimated'"
        [[_, output, _]] = await usage.rows(estimated)
        assert output == -(-len("AzureBlue") // 4), "both choices count, and nothing around them"


ENDS = {
    "no [DONE]": play(sse(C("Héllo"), F("stop"))),
    "no last blank line": play(sse(C("Héllo"), F("stop"), D.rstrip())),
    "the end of the connection": play(raw_head(200, [("Content-Type", "text/event-stream")]) + C("Héllo") + F("stop"), end="fin"),
    "[DONE] twice": play(sse(C("Héllo"), F("stop"), D, D)),
    "as it should": play(sse(C("Héllo"), F("stop"), D)),
}


@pytest.mark.fault("SSE-14")
@pytest.mark.parametrize("end", ENDS)
async def test_a_client_gets_one_done_however_the_provider_ends(tmp_path: Path, end: str) -> None:
    async with metered(tmp_path, ENDS[end]) as (it, usage), it.line() as line:
        it.rows += 1
        await line.send(it.request({"stream": True}))
        async with asyncio.timeout(2):
            answer = await line.answer()  # to the last chunk
        assert (answer.status, answer.body) == (200, C("Héllo") + F("stop") + D)
        await line.send(it.request({"model": "ok"}))  # and the connection goes on
        it.rows += 1
        assert (await line.answer()).status == 200
        [row] = await usage.rows("SELECT outcome, status, usage_source, input_tokens, output_tokens FROM calls WHERE model = 'm'")
        assert row[:3] == ["completed", 200, "estimated"]
        assert min(row[3:]) > 0


@pytest.mark.fault("USE-11")
async def test_details_are_parts_of_their_totals(tmp_path: Path) -> None:
    told = {**figures(100, 50), "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 30}}
    async with metered(tmp_path, play(whole(told))) as (it, usage):
        await it.ask()
        columns = "input_tokens, cached_tokens, output_tokens, reasoning_tokens, weighted_tokens, cost, cost_source"
        row = [100, 60, 50, 30, 150.0, 0.000246, "override"]
        assert await usage.rows(f"SELECT {columns} FROM calls") == [row]
        assert await usage.rows(f"SELECT {columns.rpartition(',')[0]} FROM attempts") == [row[:-1]]


HOSTILE = [
    ({**figures(13, 20), "completion_tokens": -500}, 13, 20),
    ({**figures(13, 20), "completion_tokens": "20"}, 13, 20),
    ({"prompt_tokens": 13, "completion_tokens": -500}, 13, None),
    ({"prompt_tokens": 13, "completion_tokens": "20"}, 13, None),
    ({"prompt_tokens": 13, "completion_tokens": 20.7}, 13, None),
    ({"prompt_tokens": 13, "completion_tokens": 1e30}, 13, None),
    ({"prompt_tokens": 13, "completion_tokens": 10**30}, 13, None),
    ({"prompt_tokens": 13, "completion_tokens": float("nan")}, 13, None),
    ({"prompt_tokens": -13, "completion_tokens": 20}, None, 20),
    ({"prompt_tokens": None, "completion_tokens": True}, None, None),
    ({**figures(10, 20), "prompt_tokens_details": {"cached_tokens": 999}}, 10, 20),
    ({"prompt_tokens": 13, "completion_tokens": 20}, 13, 20),
    ([], None, None),
    ("lots", None, None),
    ({}, None, None),
    (None, None, None),
]


@pytest.mark.fault("USE-12")
async def test_absurd_usage_is_a_gift_to_nobody(tmp_path: Path) -> None:
    """What can't be believed is estimated, and says so; nothing raises, nothing is negative, nothing is nought."""
    async with metered(tmp_path, [play(whole(told)) for told, _, _ in HOSTILE]) as (it, usage):
        for told, _, _ in HOSTILE:
            assert (await it.ask()).status == 200, told
        rows = await usage.rows("SELECT input_tokens, cached_tokens, output_tokens, usage_source, cost FROM calls ORDER BY started_at")
        for row, (told, input, output) in zip(rows, HOSTILE, strict=True):
            assert row[0] == input if input else row[0] > 10, (told, row)
            assert row[2] == output if output else row[2] >= 1, (told, row)
            assert 0 <= row[1] <= row[0]
            assert row[3] == ("provider" if input and output else "estimated"), (told, row)
            assert row[4] > 0


@pytest.mark.fault("USE-14")
async def test_cost_follows_the_model_that_was_asked(tmp_path: Path) -> None:
    """The alias `chat-smart` is `m-big`, whatever the provider calls it."""
    models = {"chat-smart": {"targets": [{"provider": "up", "model": "m-big"}]}, "ok": {"targets": [{"provider": "script"}]}}
    answer = whole(figures(1_000_000, 0)).replace(b'"model": "m-big"', b'"model": "m-odd"')
    async with metered(tmp_path, play(answer), models=models) as (it, usage):
        await it.ask({"model": "chat-smart"})
        assert await usage.rows("SELECT model, target_model, cost, weighted_tokens FROM calls") == [
            ["chat-smart", "m-big", 1.0, 1_000_000.0]
        ]
        assert it.running.kept.seen[0].answered_model == "m-odd"


INJECTIONS = [
    "' OR '1'='1",
    "x'; DROP TABLE keys;--",
    "' UNION SELECT * FROM calls --",
    "sg-' || pg_sleep(5) --",
    "a" * 8000,
    "'); SELECT pg_sleep(5); --",
    "'); DELETE FROM calls; --",
]


@pytest.mark.fault("KEY-01")
async def test_a_key_that_is_sql(tmp_path: Path) -> None:
    """Refused in one shape, and no slower than any other wrong key: no database is asked, let alone told to sleep."""
    async with metered(tmp_path, play(chat_answer("Hello"))) as (it, usage):
        await it.ask()
        bodies, took = set(), {}
        for key in ("sg-wrong", *INJECTIONS):
            began = time.perf_counter()
            answer = await it.ask(key=key)
            took[key] = time.perf_counter() - began
            assert answer.status == 401
            error = answer.error
            bodies.add((error["message"], error["code"], error["type"], len(answer.body), tuple(name for name, _ in answer.headers)))
        assert len(bodies) == 1
        assert max(took.values()) < 1, took
        rows = await usage.rows("SELECT team, status, count(*) FROM calls GROUP BY ALL ORDER BY status")
        assert rows == [["search", 200, 1], ["", 401, 1 + len(INJECTIONS)]]
        assert KEY not in json.dumps(await usage.rows("SELECT * FROM calls"))


@pytest.mark.fault("KEY-01")
@pytest.mark.parametrize("key", ["x\x00y", f"{KEY}\x00", "\x00"], ids=["inside", "after a good key", "alone"])
async def test_a_key_with_nul_is_no_key(tmp_path: Path, key: str) -> None:
    """HTTP knows no NUL in a header: it ends at the parser, and no part of it is taken for a key."""
    async with metered(tmp_path, play(chat_answer("Hello"))) as (it, usage):
        request = it.request(key=key)
        assert b"\x00" in request
        answer = await it.raw(request)
        assert (answer.status, answer.error["code"], answer.header("connection")) == (400, "invalid_request", "close")
        assert it.up.requests == []
        assert await usage.value("SELECT count(*) FROM calls WHERE team <> ''") == 0


async def test_what_callers_write_is_data(tmp_path: Path) -> None:
    async with metered(tmp_path, play(chat_answer("Hello"))) as (it, usage):
        headers = [("x-spangate-user", "'; DROP TABLE calls; --"), ("x-spangate-tags", "env=%27%29%3B%20DROP"), ("x-request-id", "\"'--")]
        assert (await it.ask(headers=headers)).status == 200
        rows = await usage.rows("SELECT \"user\", tags['env'], client_request_id FROM calls")
        assert rows == [["'; DROP TABLE calls; --", "'); DROP", "\"'--"]]


async def test_rows_are_of_model_operations_alone(tmp_path: Path) -> None:
    async with metered(tmp_path, play(chat_answer("Hello"))) as (it, usage):
        for path in ("/v1/models", "/healthz"):
            assert (await it.ask(path=path, method="GET")).status == 200
        assert (await it.ask(path="/readyz", method="GET")).status in (200, 503)  # it may be replaying
        assert (await it.ask(b"{not json")).status == 400
        assert await usage.rows("SELECT status, outcome, error_code, model, usage_source FROM calls") == [
            [400, "refused", "invalid_request", "", "none"]
        ]
