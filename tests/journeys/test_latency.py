"""A stream leaves as it comes: nothing between the provider and the caller waits for more, whatever is switched on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from case import KEY, Line, key_hash
from told import told
from upstream import LAST_CHUNK, C, D, F, Step, U, chunk, play, sse_head

EVENTS, APART, LATE = 40, 0.01, 0.05
WATCHED = [
    {"access": {"max": {"max_tokens": 1}, "mode": "shadow"}},
    {"rate_limit": {"name": "watched", "tokens": "1/min", "mode": "shadow"}},
]
POLICIES: list[dict[str, Any]] = [
    {"access": {"operations": ["chat"], "tools": {"deny": ["rm_*"]}, "max": {"max_tokens": 4000, "n": 2}, "when": "op == 'chat'"}},
    {"rate_limit": {"requests": "1000/min", "tokens": "1M/min", "concurrent": 50, "per": "key"}},
    {"budget": {"name": "tokens", "limit": "1M", "unit": "weighted_tokens", "window": "day", "cap_output": True}},
    {"budget": {"name": "dollars", "limit": 50, "unit": "usd", "window": "month", "on_exceeded": "wrap_up", "grace": "10%"}},
    *WATCHED,
]
EVERYTHING: dict[str, Any] = {
    "models": {
        "m": {"targets": [{"provider": "up"}], "time_limit": {"total": "60s", "first": "20s", "silence": "20s"}},
        "ok": {"targets": [{"provider": "script"}]},
    },
    "teams": {"search": {"models": ["m", "ok"], "keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": POLICIES}},
    "prices": [{"model": "*", "input": 1, "output": 4}],
    "server": {"keepalive": "5s"},
}


@pytest.mark.fault("SSE-21")
async def test_each_event_leaves_within_50_ms(tmp_path: Path) -> None:
    """Under every policy that there is, with traces, metrics and rows."""
    gates = [asyncio.Event() for _ in range(EVENTS)]
    steps: list[Step] = [sse_head()]
    for number, gate in enumerate(gates):
        steps += [gate, chunk(C(f"<{number}>"))]
    async with told(tmp_path, play(*steps, chunk(F("stop") + U(7, 40) + D) + LAST_CHUNK), **EVERYTHING) as it:
        it.it.rows += 1
        async with it.it.line() as line:
            await line.send(it.it.request({"stream": True}))
            await it.it.up.request()
            waits = [await _passed(gate, line, b"<%d>" % number) for number, gate in enumerate(gates)]
            await line.reader.readuntil(b"[DONE]")
        [call] = await it.calls()
        assert call.tokens == (7, 40, "provider")
        (seen, *_) = it.it.running.kept.seen
        noted = [(note.name, note.figures.get("mode", "")) for note in seen.notes]
        assert noted == [
            ("access.capped", ""),
            ("access.capped", "shadow"),
            ("rate_limit.refused", "shadow"),
            ("budget.settled", ""),
            ("budget.settled", ""),
        ]
    assert sorted(waits)[int(0.95 * EVENTS)] <= LATE, waits


async def _passed(gate: asyncio.Event, line: Line, mark: bytes) -> float:
    """Let the provider send one event; how long it took until it was here."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(APART)  # one event at a time, as a model writes
    sent = loop.time()
    gate.set()
    heard = await line.reader.readuntil(mark)
    if mark == b"<0>":
        assert b"x-accel-buffering: no" in heard.lower()
        assert b"cache-control: no-cache" in heard.lower()
    return loop.time() - sent
