"""A provider's own limits over HTTP: what it tells slows the gateway down before it refuses, and what it lies stops nobody for long."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from case import Case, case
from gateway import gateway, until
from upstream import LAST_CHUNK, C, D, F, Play, Request, chat_completion, chunk, error, http, play, sse_head

JSON = ("content-type", "application/json")
HELLO = chat_completion("Hello")


def requests(remaining: int | str, reset: str, limit: int | str = 2) -> list[tuple[str, str]]:
    return [
        ("x-ratelimit-limit-requests", str(limit)),
        ("x-ratelimit-remaining-requests", str(remaining)),
        ("X-RateLimit-Reset-Requests", reset),
    ]


def answer(*headers: tuple[str, str]) -> Play:
    return play(http(200, [JSON, *headers], HELLO))


class Window:
    """A provider that takes `limit` calls in a window of so many seconds, and refuses what is more."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit = limit
        self.seconds = seconds
        self.ends = 0.0
        self.used = 0
        self.refused = 0

    def __call__(self, request: Request) -> Play:
        now = time.monotonic()
        if now >= self.ends:
            self.ends, self.used = now + self.seconds, 0
        if self.used >= self.limit:
            self.refused += 1
            return play(error(429, "Slow down.", headers=[("retry-after-ms", str(round((self.ends - now) * 1000)))]))
        self.used += 1
        return answer(*requests(self.limit - self.used, f"{round((self.ends - now) * 1000)}ms", self.limit))


async def test_twenty_calls_keep_within_a_limit_of_seven(tmp_path: Path) -> None:
    provider = Window(7, 0.75)
    async with case(tmp_path, provider) as it:
        assert (await it.ask()).status == 200
        asked = await asyncio.gather(*(it.ask() for _ in range(19)))
        assert [each.status for each in asked] == [200] * 19
        assert provider.refused == 0
        assert all(each.header("x-ratelimit-remaining-requests") is None for each in asked)  # what is left of the provider's is its own


async def test_a_stream_waits_for_its_turn(tmp_path: Path) -> None:
    stream = sse_head() + chunk(C("Hi")) + chunk(F("stop")) + chunk(D) + LAST_CHUNK
    async with case(tmp_path, [answer(*requests(0, "0.6s")), play(stream)]) as it:
        await it.ask()
        asked = await it.ask({"stream": True})
        assert (asked.status, asked.body[-14:]) == (200, b"data: [DONE]\n\n")
        gap = it.up.requests[1].arrived - it.up.requests[0].arrived
        assert gap >= 0.59
        [waited] = it.running.kept.seen[1].notes.named("rate_limit.waited")
        assert (waited.figures["admitted"], 0 < waited.figures["seconds"] <= gap) == (True, True)


async def test_a_call_for_which_there_is_no_time_is_refused(tmp_path: Path) -> None:
    async with case(tmp_path, answer(*requests(0, "6m0s", limit=500))) as it:
        await it.ask()
        refused = await it.ask()
        assert (refused.status, refused.error["code"], refused.error["type"]) == (429, "rate_limit_exceeded", "rate_limit_exceeded")
        assert (refused.error["source"], refused.error["limit"]["name"]) == ("policy", "up.requests")
        assert (refused.error["limit"]["limit"], refused.error["limit"]["used"]) == (500, 500)
        assert "provider 'up'" in refused.error["message"]
        assert refused.header("retry-after") == "60"
        assert refused.header("x-spangate-attempts") == "0"
        assert len(it.up.requests) == 1
        assert [each.outcome for each in it.running.kept.seen] == ["completed", "refused"]


@pytest.mark.fault("RET-01")
@pytest.mark.parametrize(
    "headers", [[("retry-after", "0.3")], [("retry-after-ms", "300")], [("retry-after-ms", ""), ("retry-after", "0.3")]]
)
async def test_after_a_refusal_the_provider_is_left_alone(tmp_path: Path, headers: list[tuple[str, str]]) -> None:
    async with case(tmp_path, [play(error(429, "Slow down.", headers=headers)), answer()]) as it:
        assert (await it.ask()).status == 429
        asked = await asyncio.gather(*(it.ask() for _ in range(8)))
        assert [each.status for each in asked] == [200] * 8
        at = sorted(each.arrived for each in it.up.requests)
        assert at[1] - at[0] >= 0.29
        assert len(at) == 9


@pytest.mark.parametrize(
    "lies",
    [
        requests(-5, "-3s"),
        [("x-ratelimit-remaining-tokens", "0")],
        [("ratelimit", "\x80\xff;;r=0")],
        [("anthropic-ratelimit-requests-remaining", "0"), ("anthropic-ratelimit-requests-reset", "1970-01-01T00:00:00Z")],
        requests("0" * 300, "9" * 300),
    ],
    ids=ascii,
)
async def test_nobody_waits_long_for_a_lie(tmp_path: Path, lies: list[tuple[str, str]]) -> None:
    async with case(tmp_path, answer(*lies)) as it:
        began = time.monotonic()
        for _ in range(2):
            assert (await it.ask()).status == 200
        assert time.monotonic() - began < 5  # a call that could go in ten would wait for them


async def test_who_leaves_the_line_is_never_sent(tmp_path: Path) -> None:
    async with case(tmp_path, [answer(*requests(0, "1.5s", limit=1)), answer(*requests(0, "0.1s", limit=1))]) as it:
        await it.ask()
        async with it.line() as line:
            it.rows += 1
            await line.send(it.request())
            await until(lambda: waiting(it) == 1)
            staying = asyncio.create_task(it.ask())
            await until(lambda: waiting(it) == 2)
            line.abort()
        await until(lambda: waiting(it) == 1)
        assert (await staying).status == 200
        assert len(it.up.requests) == 2
        assert [each.outcome for each in it.running.kept.seen] == ["completed", "aborted", "completed"]


def waiting(it: Case) -> int:
    lines: Any = it.running.app.endpoints.gateway.providers["up"].lines
    line = lines.of("m")
    return 0 if line is None else line.waiting


async def test_what_a_provider_told_outlives_a_reload(tmp_path: Path) -> None:
    async with case(tmp_path, answer(*requests(0, "6m0s"))) as it:
        await it.ask()
        before = it.running.app.endpoints.gateway
        it.running.app.reload.soon()
        await until(lambda: it.running.app.endpoints.gateway is not before)
        assert (await it.ask()).status == 429
        assert len(it.up.requests) == 1


async def test_a_script_tells_limits_too(tmp_path: Path) -> None:
    yaml = """
providers:
  script:
    kind: scripted
    script:
      - {answer: {text: Hi, headers: {x-ratelimit-remaining-requests: "0", retry-after: "1"}}, times: 1}
      - {fault: {status: 429, headers: {Retry-After: "30"}}}
models: {m: {targets: [{provider: script}]}}
telemetry: {}
"""
    async with gateway(yaml, tmp_path) as running:
        it = Case(running, None, None, None)  # type: ignore[arg-type]
        asked = [await it.ask() for _ in range(3)]
        assert [each.status for each in asked] == [200, 429, 429]
        assert [each.error["source"] for each in asked[1:]] == ["provider", "policy"]
        assert asked[0].header("x-ratelimit-remaining-requests") is None
        metrics = (await it.ask(path="/metrics", method="GET")).body.decode()
        name, scope = 'spangate_rate_limit_name="script.retry_after"', 'spangate_rate_limit_scope="provider"'
        assert any(name in line and scope in line for line in metrics.splitlines() if line.startswith("spangate_rate_limit_refusals"))
        assert "spangate_rate_limit_wait_duration_seconds_count 1" in metrics
