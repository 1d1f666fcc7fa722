"""What stands between the driver and the mock: nothing (direct), nginx, spangate alone, spangate that tells all there is to tell
(everything), or that has budgets and limits to keep, in memory (budgets) or on a Valkey (shared); how each is configured and started.

nginx passes everything on and does nothing else: no log, no limit, no check. It is the yardstick, not a rival.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from processes import Process, Unusable, free_port

MODEL = "bench-model"

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_body_buffer_size 512k;
  client_max_body_size 64m;
  keepalive_requests 100000000;
  upstream mock {{ server 127.0.0.1:{mock}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://mock;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

SPANGATE = """
server: {{port: {port}, drain: 1s, max_bodies: {max_bodies}}}
providers:
  mock: {{kind: openai, base_url: "http://127.0.0.1:{mock}/v1", api_key: sk-mock}}
models:
  {model}: {{targets: [{{provider: mock}}]}}
teams:
  bench: {{keys: [{{name: bench, hash: "sha256:{hash}"}}]}}
"""

ALONE = "usage: {enabled: false}\n"
EVERYTHING = """
telemetry: {{otlp: {{endpoint: "http://127.0.0.1:{collector}"}}}}
usage: {{path: everything.duckdb}}
"""
RULES = """
policies:
  bench:
    - budget: {{name: month, limit: 5G, window: month, weights: {{cached: 0.1, output: 4}}}}
    - budget: {{name: day, limit: 5G, window: day}}
    - budget: {{name: key, limit: 50G, window: rolling 24h, per: key}}
    - rate_limit: {{name: limits, requests: 60M/min, concurrent: 1000}}
{more}defaults: {{policies: [bench]}}
"""
OF_PROVIDER = "    - rate_limit: {name: provider, requests: 60M/min, per: provider}\n"
SHARED = """
state: {{backend: redis, url: "redis://127.0.0.1:{valkey}"}}
"""
PACE = 1.1  # seconds between two looks: spans are sent once a second
SETTLED = 0.02  # of a CPU: less than that, and nothing is being told any more
LOST = re.compile(r"""^spangate_(?:telemetry_dropped|usage_records)_total\{(?![^}]*"written")[^}]*\} ([0-9.e+]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Proxy:
    """A way to the mock: where it is asked, with which key, and the process that is charged for it. `spool`: where rows wait until they
    are moved, every few seconds."""

    name: str
    port: int
    key: str = "none"
    process: Process | None = None
    spool: Path | None = None

    def cpu_seconds(self) -> float:
        return self.process.cpu_seconds() if self.process else 0.0

    def peak_rss(self) -> float:
        return self.process.peak_rss() if self.process else 0.0

    def settle(self, patience: float = 30.0) -> None:
        """Wait until what it tells in the background is told, so that its cost is counted where it arose."""
        latest, before = time.monotonic() + patience, self.cpu_seconds()
        while self.spool is not None and time.monotonic() < latest:
            time.sleep(PACE)
            used, before = self.cpu_seconds() - before, self.cpu_seconds()
            if used < SETTLED * PACE and not [*self.spool.glob("*.open"), *self.spool.glob("*.seg")]:
                return

    def lost(self) -> float:
        """Spans, points and rows that it has had to drop so far, by its own count; those who tell nothing lose nothing.

        Raises:
            Unusable: it doesn't say.
        """
        if self.name != "everything":
            return 0.0
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            told = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200 or "spangate_" not in told:
            raise Unusable(f"{self.name}: /metrics says {answer.status}")
        return sum(map(float, LOST.findall(told)))


def find_nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def find_spangate() -> str:
    beside = Path(sys.executable).with_name("spangate")
    found = str(beside) if beside.exists() else shutil.which("spangate")
    if found is None:
        raise Unusable("spangate is not installed in this environment; `make bench` installs it")
    return found


def start_mock(program: Path, folder: Path, cpu: int | None, *, name: str = "mock") -> tuple[Process, int]:
    """The model server; under another name also the collector, of whom it has the manners."""
    port = free_port()
    mock = Process([str(program), str(port)], folder, name, cpu=cpu)
    mock.wait_until_it_listens(port)
    return mock, port


def start_nginx(program: str, folder: Path, mock: int, cpu: int | None) -> Proxy:
    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, mock=mock, port=port), "utf-8")
    process = Process([program, "-p", str(folder), "-c", str(settings)], folder, "nginx", cpu=cpu)
    process.wait_until_it_listens(port)
    return Proxy("nginx", port, process=process)


def start_spangate(
    folder: Path,
    mock: int,
    cpu: int | None,
    *,
    max_bodies: str = "1GiB",
    name: str = "spangate",
    program: Sequence[str] = (),
    collector: int | None = None,
    more: str = "",
) -> Proxy:
    """As in production: a team, a key, the line a call on; its output goes to a file. `program` runs it in its own way. With a
    `collector` it tells all there is to tell: spans, log events and metrics to that port, a row a call to DuckDB. `more` is added to
    its configuration."""
    port, key = free_port(), "sg-" + secrets.token_urlsafe(32)
    settings = folder / f"{name}.yaml"
    fingerprint = hashlib.sha256(key.encode()).hexdigest()
    written = SPANGATE.format(port=port, mock=mock, model=MODEL, hash=fingerprint, max_bodies=max_bodies)
    written += ALONE if collector is None else EVERYTHING.format(collector=collector)
    written += more
    settings.write_text(written, "utf-8")
    environment = {word: value for word, value in os.environ.items() if not word.startswith(("OPENAI_", "OTEL_", "SPANGATE_", "PYTHON"))}
    command = [*(program or [find_spangate()]), "serve", "-c", str(settings)]
    process = Process(command, folder, name, cpu=cpu, environment=environment)
    process.wait_until_it_listens(port)
    spool = None if collector is None else folder / "everything.duckdb.spool"
    return Proxy(name, port, key, process, spool)


def rules(*, of_provider: bool = False, valkey: int | None = None) -> str:
    """Three budgets and two limits that never refuse; `of_provider`: and one of the provider's. Kept on the Valkey at that port, if any."""
    written = RULES.format(more=OF_PROVIDER if of_provider else "")
    return written if valkey is None else written + SHARED.format(valkey=valkey)
