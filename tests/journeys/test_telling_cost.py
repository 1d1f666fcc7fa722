"""What a row a call costs those who wait: p99 at up to 1,000 calls a second, with the usage writer and without, in turns.

The load is open: a call is due when it is due, whether or not those before it were answered. The model server is bench/mock.c.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import cast

import pytest

from case import KEY
from gateway import until
from house.source import ROOT

sys.path.insert(0, str(ROOT / "bench"))

from processes import Process, compiled, free_port
from proxies import MODEL, SPANGATE, find_spangate, start_mock

RATES = (1000, 800, 600, 400, 300, 200, 100, 50, 20)  # calls a second
SECONDS, ROUNDS, LANES = 4.0, 7, 64
STEADY = 0.01  # seconds: a p99 above this without the writer is a machine that can't follow
BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Why are there two high tides a day?"}]}).encode()


class Lane(asyncio.Protocol):
    """A connection that is kept: one call at a time, and the next that is due when it has ended."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.due = 0.0
        self.wire: asyncio.Transport
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.wire = cast("asyncio.Transport", transport)

    def ask(self, due: float) -> None:
        self.due = due
        self.wire.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        head, blank, body = self._heard.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200 "), head
        self._heard = b""
        self.load.answered(self)


class Load:
    """Calls at a rate, and how long each took from when it was due."""

    def __init__(self, port: int) -> None:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        self.request = f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
        self.port = port
        self.took: list[float] = []
        self.idle: deque[Lane] = deque()
        self.waiting: deque[float] = deque()
        self._now = time.perf_counter

    async def _open(self, lanes: int) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(lanes):
            _, lane = await loop.create_connection(lambda: Lane(self), "127.0.0.1", self.port)
            self.idle.append(lane)

    def _close(self) -> None:
        lanes, self.idle = self.idle, deque()
        for lane in lanes:
            lane.wire.abort()

    def answered(self, lane: Lane) -> None:
        self.took.append(self._now() - lane.due)
        if self.waiting:
            lane.ask(self.waiting.popleft())
        else:
            self.idle.append(lane)

    async def run(self, rate: float, seconds: float) -> list[float]:
        """The times of so many calls, in seconds, on connections of their own."""
        await self._open(LANES)
        try:
            await self._paced(rate, 0.2)  # the first of each are not like the others
            return await self._paced(rate, seconds)
        finally:
            self._close()

    async def _paced(self, rate: float, seconds: float) -> list[float]:
        self.took = []
        number, begun = int(rate * seconds), self._now()
        sent = 0
        while sent < number:
            now = self._now()
            while sent < number and begun + sent / rate <= now:
                sent += 1
                if self.idle:
                    self.idle.popleft().ask(now)
                else:
                    self.waiting.append(now)
            await asyncio.sleep(0.0005)  # the pace is the scenario
        await until(lambda: len(self.took) == number, 10)
        return self.took


@dataclass(frozen=True)
class Gateway:
    process: Process
    port: int


@contextmanager
def gateways(folder: Path) -> Iterator[dict[str, Gateway]]:
    """One that writes rows, and one that doesn't."""
    mock, mock_port = start_mock(compiled("mock", folder), folder, None)
    running: dict[str, Gateway] = {}
    try:
        for name, usage in (("without", "{enabled: false}"), ("with", "{path: usage.duckdb}")):
            port, fingerprint = free_port(), hashlib.sha256(KEY.encode()).hexdigest()
            written = SPANGATE.format(port=port, mock=mock_port, model=MODEL, hash=fingerprint, max_bodies="1GiB")
            (folder / f"{name}.yaml").write_text(f"{written}usage: {usage}\n", "utf-8")
            process = Process([find_spangate(), "serve", "-c", f"{name}.yaml"], folder, name)
            running[name] = Gateway(process, port)
            process.wait_until_it_listens(port)
        yield running
    finally:
        for gateway in running.values():
            gateway.process.end()
        mock.end()


def p99(times: list[float]) -> float:
    return quantiles(times, n=100)[-1]


async def steady(load: Load) -> int:
    """The highest rate that the machine can follow without the writer; at worst the lowest of all."""
    for rate in RATES:
        tried = sorted([p99(await load.run(rate, 2.0)) for _ in range(3)])
        print(f"{rate} calls/s without the writer: p99 {[f'{each * 1000:.1f} ms' for each in tried]}")
        if tried[1] < STEADY:
            break
    return rate


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.compiler
async def test_the_writer_costs_no_more_than_a_call(tmp_path: Path) -> None:
    with gateways(tmp_path) as running:
        loads = {name: Load(gateway.port) for name, gateway in running.items()}
        figures: dict[str, list[list[float]]] = {name: [] for name in loads}
        try:
            for load in loads.values():
                await load.run(200, 2.0)  # warm
            rate = await steady(loads["without"])
            gc.collect()
            gc.disable()
            for number in range(ROUNDS):
                for name in sorted(loads, reverse=bool(number % 2)):  # neither always comes first
                    figures[name].append(await loads[name].run(rate, SECONDS))
        finally:
            gc.enable()
        told = {name: median(map(p99, rounds)) for name, rounds in figures.items()}
        for name, rounds in figures.items():
            times = [each for took in rounds for each in took]
            each = " ".join(f"{p99(took) * 1000:.2f}" for took in rounds)
            print(f"{rate} calls/s {name} the writer: p50 {median(times) * 1000:.2f} ms, p99 {told[name] * 1000:.2f} ms (rounds {each})")
        print(f"p99 with ÷ without: {told['with'] / told['without']:.2f}")
        assert told["with"] <= 2 * told["without"]
