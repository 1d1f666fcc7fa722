"""A stream leaves as it comes: nothing between the provider and the caller waits for more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import gateway
from upstream import LAST_CHUNK, C, D, F, Misbehaving, Step, chunk, play, sse_head

EVENTS, APART, LATE = 40, 0.01, 0.05
ASK = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"go"}]}'


@pytest.mark.fault("SSE-21")
async def test_each_event_leaves_within_50_ms(tmp_path: Path) -> None:
    gates = [asyncio.Event() for _ in range(EVENTS)]
    steps: list[Step] = [sse_head()]
    for number, gate in enumerate(gates):
        steps += [gate, chunk(C(f"<{number}>"))]
    async with Misbehaving(play(*steps, chunk(F("stop") + D) + LAST_CHUNK)) as up:
        provider = f"providers: {{up: {{kind: openai, flavor: compatible, base_url: '{up.base_url}'}}}}"
        yaml = f"{provider}\nmodels: {{m: {{targets: [{{provider: up}}]}}}}"
        async with gateway(yaml, tmp_path) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.address.port)
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            writer.write(head + b"content-length: %d\r\n\r\n" % len(ASK) + ASK)
            await up.request()
            waits = [await _passed(gate, reader, b"<%d>" % number) for number, gate in enumerate(gates)]
            await reader.readuntil(b"[DONE]")
            writer.close()
            await running.kept.count(1)
    assert sorted(waits)[int(0.95 * EVENTS)] <= LATE, waits


async def _passed(gate: asyncio.Event, reader: asyncio.StreamReader, mark: bytes) -> float:
    """Let the provider send one event; how long it took until it was here."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(APART)  # one event at a time, as a model writes
    sent = loop.time()
    gate.set()
    await reader.readuntil(mark)
    return loop.time() - sent
