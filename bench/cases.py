"""What is asked: the cases, the bodies they send, and one measurement of one of them through one proxy."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Unusable, pinned
from proxies import MODEL, Proxy

QUESTION = "Why are there two high tides a day, though the moon passes overhead only once? Answer in two sentences, without formulas."
REPORT = "Item {n}: the gauge at the outer pier read {m} cm above the mean, the wind came from the west, and nothing else was noted. "


@dataclass(frozen=True)
class Case:
    """One kind of load. `chunks` above zero makes it a stream, `every` milliseconds apart. With a `rate` all connections together ask
    so many times a second; else each asks again as soon as it has its answer."""

    name: str
    words: str
    connections: int
    chunks: int = 0
    every: int = 0
    prompt_size: int = 0
    path: str = "/v1/chat/completions"
    rate: int = 0

    def body(self) -> bytes:
        """Compact, as the official client writes it; what steers the mock comes first, before a long prompt."""
        if self.path.endswith("embeddings"):
            return _json({"model": MODEL, "input": QUESTION})
        asked: dict[str, object] = {"model": MODEL, "user": "bench:"}
        if self.chunks:
            asked["user"] = f"bench:chunks={self.chunks},every={self.every}"
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        asked |= {"temperature": 0.2, "max_tokens": 200}
        asked["messages"] = [
            {"role": "system", "content": "You are a patient teacher of physics. Be brief and exact."},
            {"role": "user", "content": _long(self.prompt_size) if self.prompt_size else QUESTION},
        ]
        return _json(asked)


CASES = (
    Case("one", "short answers, 1 connection", 1),
    Case("whole16", "short answers, 16 connections", 16),
    Case("steady16", "short answers, 16 connections, 1500 a second", 16, rate=1500),
    Case("whole64", "short answers, 64 connections", 64),
    Case("prompt16", "100 KB prompts, 16 connections", 16, prompt_size=100_000),
    Case("burst16", "streams of 50 chunks at once, 16 connections", 16, chunks=50),
    Case("paced64", "streams of 100 chunks 10 ms apart, 64 connections", 64, chunks=100, every=10),
    Case("embeddings16", "embeddings, 16 connections", 16, path="/v1/embeddings"),
)
TIMES = ("p50", "p95", "p99", "first_p50", "transit_p50", "transit_p99")
USUAL = ("one", "whole16", "steady16", "whole64", "prompt16", "burst16", "paced64")


@dataclass(frozen=True)
class Sample:
    """One measurement. Times of answers in milliseconds, CPU in seconds, memory in MiB. `pace`: seconds that Python took right after it
    for what takes it 54 microseconds where the goals were written (pace.py)."""

    proxy: str
    case: str
    round: int
    answered: int
    failed: int
    seconds: float
    p50: float
    p95: float
    p99: float
    first_p50: float
    events: int
    transit_p50: float
    transit_p99: float
    cpu: float
    rss: float
    lost: float = 0.0
    pace: float = math.nan

    @property
    def per_second(self) -> float:
        return self.answered / self.seconds

    @property
    def cpu_per_1000(self) -> float:
        """CPU seconds for 1000 answers."""
        return self.cpu / self.answered * 1000 if self.answered else math.nan

    @property
    def cpu_per_1000_events(self) -> float:
        """CPU seconds for 1000 events of streams."""
        return self.cpu / self.events * 1000 if self.events else math.nan


def measure(driver: Path, folder: Path, proxy: Proxy, case: Case, seconds: float, *, turn: int = 0, cpu: int | None = None) -> Sample:
    """Drive one case through one proxy. Streams that run when the time is up are read to their end, and counted."""
    body = folder / f"{case.name}.json"
    body.write_bytes(case.body())
    command = [str(driver), str(proxy.port), str(case.connections), str(seconds), case.path, str(body), proxy.key, str(case.rate)]
    before = proxy.cpu_seconds()
    with pinned(cpu):
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    proxy.settle()
    used = proxy.cpu_seconds() - before
    if ran.returncode:
        said = proxy.process.last_words() if proxy.process else ""
        raise Unusable(f"{proxy.name}, {case.name}: the driver gave up: {ran.stderr}\n{said}")
    told = json.loads(ran.stdout)
    if told["failed"]:
        print(f"{proxy.name}, {case.name}: {told['failed']} failed; {ran.stderr}")
    figures: dict[str, Any] = {name: told[name] / 1000 if told["answered"] else math.nan for name in TIMES}
    figures |= {name: told[name] for name in ("answered", "failed", "seconds", "events")}
    return Sample(proxy=proxy.name, case=case.name, round=turn, cpu=used, rss=proxy.peak_rss(), lost=proxy.lost(), **figures)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _long(size: int) -> str:
    text = "Sum up this log.\n\n"
    for n in range(size // 100):
        text += REPORT.format(n=n, m=n * 37 % 91)
    return text[:size]
