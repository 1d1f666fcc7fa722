"""Spans = rows = requests, whatever goes wrong: many calls of every kind at once, counted by the clients, the provider, the collector and
the database.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from case import Line
from otlp_sink import attributes
from told import CLIENT, SERVER, Told, told
from upstream import LAST_CHUNK, C, D, F, Play, Request, U, chat_answer, chunk, error, play, sse_head, wants_stream

LIMITS = {"connect": "5s", "first": "1s", "silence": "150ms", "total": "1s"}
MODELS = {"m": {"targets": [{"provider": "up"}], "time_limit": LIMITS}, "ok": {"targets": [{"provider": "script"}]}}
BEGUN = sse_head() + chunk(C("a")) + chunk(C("b"))
WAYS = [
    play(error(500)),
    play(error(429)),
    play(error(400)),
    play(end="rst"),
    play(end="fin"),
    play(b"HTTP/1.1 200 OK\r\nContent-", end="fin"),
    play(BEGUN, (b"", 0.005), end="rst"),
    play(BEGUN, (b"", 0.005), end="fin"),
    play(BEGUN, (chunk(D) + LAST_CHUNK, 0.005)),
    play(BEGUN, (chunk(b'data: {"error": {"message": "no"}}\n\n') + LAST_CHUNK, 0.005)),
    play(BEGUN, end="hold"),
]


class Provider:
    """One request in five fails in some way; it knows which attempt each request was, and what it told of tokens."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.asked: Counter[str] = Counter()
        self.whole: dict[str, tuple[int, int]] = {}

    def __call__(self, request: Request) -> Play:
        parent = (request.header(b"traceparent") or b"").decode().split("-")[2]
        self.asked[parent] += 1
        dice = self._dice
        if dice.random() < 0.2:
            return dice.choice(WAYS)
        self.whole[parent] = tokens = dice.randrange(1, 10_000), dice.randrange(1, 10_000)
        if not wants_stream(request):
            return play((chat_answer("Hello", tokens), dice.random() / 100))
        said = [(chunk(C("word ")), dice.random() / 200) for _ in range(dice.randrange(1, 8))]
        return play(sse_head(), *said, chunk(F("stop")) + chunk(U(*tokens)) + chunk(D) + LAST_CHUNK)


BODIES: list[Callable[[bool], Any]] = [
    *[lambda stream: {"stream": stream}] * 16,
    lambda stream: {"model": "gpt-9", "stream": stream},
    lambda stream: {"model": "ok", "stream": stream},
    lambda stream: {"stream": "perhaps"},
    lambda stream: b"{not json",
]


class Crowd:
    """Clients, each with a seed: some ask what nobody has, some show a bad key, one in ten leaves."""

    def __init__(self, it: Told, seed: int) -> None:
        self._it = it
        self._dice = random.Random(seed)
        self.sent = 0
        self.left = 0
        self.statuses: Counter[int] = Counter()

    async def calls(self, count: int, at_once: int) -> None:
        async with asyncio.TaskGroup() as lanes:
            for lane in range(at_once):
                lanes.create_task(self._lane(count // at_once + (lane < count % at_once)))

    async def _lane(self, count: int) -> None:
        for _ in range(count):
            await self._call()

    async def _call(self) -> None:
        dice, it = self._dice, self._it.it
        self.sent += 1
        parent = f"00-{self.sent:032x}-{self.sent:016x}-01"
        key = "sg-wrong" if dice.random() < 0.03 else None
        request = it.request(dice.choice(BODIES)(dice.random() < 0.6), key=key, headers=[("traceparent", parent)])
        leaves = dice.uniform(0, 0.03) if dice.random() < 0.1 else None
        it.rows += 1
        async with it.line() as line:
            line._heard = []
            await line.send(request)
            if leaves is None:
                self.statuses[await status(line)] += 1
                return
            await asyncio.sleep(leaves)  # part of the scenario
            line.abort()
            self.left += 1


async def status(line: Line) -> int:
    return (await line.answer()).status


def check_tokens(provider: Provider, rows: list[dict[str, Any]]) -> None:
    """What a provider told of a whole answer is in the row, to the token; of what it didn't tell, an estimate."""
    for row in rows:
        if row["provider"] == "up" and row["outcome"] == "success":
            assert (row["input_tokens"], row["output_tokens"]) == provider.whole[row["span_id"]]


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
async def test_spans_are_rows_are_requests(tmp_path: Path, count: int) -> None:
    provider = Provider(count)
    async with told(tmp_path, provider, models=MODELS) as it:
        crowd = Crowd(it, count + 1)
        await crowd.calls(count, at_once=60)
        spans = await it.spans()
        calls = {row["id"]: row for row in await all_rows(it, "calls", "id")}
        attempts = await all_rows(it, "attempts", "span_id")
        servers = {attributes(span)["spangate.request.id"]: span for span in spans if span.kind == SERVER}
        clients = {span.span_id.hex(): span for span in spans if span.kind == CLIENT}
        exporting = exporting_of(it)
        print(f"{count} calls: {Counter(row['outcome'] for row in calls.values())}, {len(attempts)} attempts, {crowd.left} left early")

        # Requests, spans, rows: one to one.
        assert exporting.counts.dropped == {}
        assert len(spans) == len(servers) + len(clients) == exporting.counts.sent["traces"]
        assert calls.keys() == servers.keys()
        assert len(calls) == count == crowd.sent
        assert {int(row["trace_id"], 16) for row in calls.values()} == set(range(1, count + 1)), "each in its caller's trace"
        assert {row["span_id"] for row in attempts} == clients.keys()
        assert len(attempts) == len(clients) == sum(row["attempts"] for row in calls.values())

        # By outcome.
        outcomes = Counter(attributes(span)["spangate.outcome"] for span in servers.values())
        assert outcomes == Counter(row["outcome"] for row in calls.values())
        outcomes = Counter(attributes(span)["spangate.attempt.outcome"] for span in clients.values())
        assert outcomes == Counter(row["outcome"] for row in attempts)
        answered = Counter(row["status"] for row in calls.values())
        assert all(answered[status] >= number for status, number in crowd.statuses.items())
        assert sum(answered.values()) - sum(crowd.statuses.values()) == crowd.left
        assert answered[499] <= crowd.left, "nobody else is aborted"

        # Each of them is what it says it is, and is where it belongs.
        for id, span in servers.items():
            assert (span.trace_id.hex(), attributes(span)["spangate.outcome"]) == (calls[id]["trace_id"], calls[id]["outcome"])
        for row in attempts:
            span, call = clients[row["span_id"]], calls[row["call_id"]]
            assert (span.trace_id.hex(), span.parent_span_id) == (call["trace_id"], servers[row["call_id"]].span_id)
        check_sent(provider, attempts)
        check_tokens(provider, attempts)


def check_sent(provider: Provider, attempts: list[dict[str, Any]]) -> None:
    """What the provider saw is an attempt; an attempt that it did not see was given up by a client that left, or never came so far."""
    ours = {row["span_id"]: row for row in attempts if row["provider"] == "up"}
    assert provider.asked.keys() <= ours.keys()
    unseen = [row["outcome"] for span_id, row in ours.items() if span_id not in provider.asked]
    assert set(unseen) <= {"cancelled", "error"}
    assert len(unseen) < 0.05 * len(ours)


def exporting_of(it: Told) -> Any:
    return next(part for part in it.it.running.app.setting.recorder.parts if hasattr(part, "counts"))  # type: ignore[attr-defined]


async def all_rows(it: Told, table: str, key: str) -> list[dict[str, Any]]:
    """All of them, as many at a time as a query gives."""
    rows: list[dict[str, Any]] = []
    while more := await it.rows(f"SELECT * FROM {table} ORDER BY {key} LIMIT 5000 OFFSET {len(rows)}"):
        rows += more
    return rows
