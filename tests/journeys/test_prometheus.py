"""The playground of docker-compose.yml without Docker: its configuration, its traffic, its scrape, and a real Prometheus, which every
query of the dashboards is then put to.

`make journeys` runs it; Prometheus is Debian's package of that name, or any that stands on the PATH.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from house.dashboards import DASHBOARDS, Query, queries, substituted, values_of
from house.source import ROOT
from program import Process, environment, running, spangate

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

PATIENCE = 60.0
SCRAPE = 0.5
WINDOW = "5m"  # longer than the journey
ALL = dict.fromkeys(("team", "model", "provider", "target"), ".*")
CHOSEN = {"team": "search|support|interns", "model": "fast|strong", "provider": "scripted", "target": "gpt-5-mini|gpt-5.5"}
SELDOM = {"spangate_fallbacks_total", "spangate_telemetry_dropped_total"}
"""What this traffic never makes: a model has one target so far, and no collector loses anything."""


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs, asked as Grafana asks it."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return told["data"]

    def values(self, expr: str) -> list[float]:
        """What a query gives now, without what is no number."""
        found = [float(series["value"][1]) for series in self.ask("query", query=expr)["result"]]
        return [value for value in found if not math.isnan(value)]

    def exemplars(self, expr: str) -> list[dict[str, str]]:
        found = self.ask("query_exemplars", query=expr, start=str(time.time() - 600), end=str(time.time() + 1))
        return [exemplar["labels"] for series in found for exemplar in series["exemplars"]]


@dataclass(frozen=True)
class Playground:
    """A gateway that was called, and the Prometheus that asks it."""

    prometheus: Prometheus
    target: str


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    folder = tmp_path_factory.mktemp("playground")
    text = (ROOT / "compose/spangate.yaml").read_text("utf-8").replace("/data/", f"{folder}/")
    (folder / "spangate.yaml").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "compose/answers.yaml", folder)
    for team in ("search", "support", "interns"):
        assert spangate("keys", "new", team, folder=folder).code == 0
    with running("serve", "--host", "127.0.0.1", "--port", "0", folder=folder) as process:
        address = process.until("listens on").split()[-1].removeprefix("http://").removesuffix("/v1")
        with ended(process), scraping(folder, address) as prometheus:
            until(lambda: prometheus.values("up") == [1.0])
            traffic = [sys.executable, "-P", ROOT / "compose/traffic.py", f"http://{address}/v1", "--calls", "96", "--every", "0.08"]
            subprocess.run(traffic, env=environment(folder), cwd=folder, check=True, timeout=PATIENCE)
            until(lambda: sum(prometheus.values("spangate_requests_total")) == 96)
            yield Playground(prometheus, address)


@contextmanager
def ended(process: Process) -> Iterator[None]:
    """Hear what the gateway says, so that it never waits for a reader, and drain it at the end."""
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(process.end, 600)
        try:
            yield
        finally:
            process.send(signal.SIGTERM)
        assert last.result().code == 0


@contextmanager
def scraping(folder: Path, target: str) -> Iterator[Prometheus]:
    """A Prometheus that asks `target` as docker-compose.yml's asks the Collector, only more often."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.fail("There is no `prometheus` on the PATH. Debian, Ubuntu: apt install prometheus; macOS: brew install prometheus.")
    config = yaml.safe_load((ROOT / "compose/prometheus.yml").read_text("utf-8"))
    config["global"]["scrape_interval"] = f"{int(SCRAPE * 1000)}ms"
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", "--web.listen-address=127.0.0.1:0")
    log = folder / "prometheus.log"
    with log.open("w") as told, subprocess.Popen([program, *options, "--enable-feature=exemplar-storage"], stderr=told) as process:
        try:
            until(lambda: "ready to receive" in log.read_text() or process.poll() is not None)
            listening = re.search(r"Listening on\"? address=(\S+)", log.read_text())
            assert listening, log.read_text()
            yield Prometheus(f"http://{listening[1]}")
        finally:
            process.terminate()


def until(true: Callable[[], bool]) -> None:
    """Ask again and again until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(SCRAPE / 2)  # nothing new comes sooner


ASKED = [query for path in DASHBOARDS for query in queries(path)]


@pytest.mark.parametrize("chosen", [ALL, CHOSEN], ids=["all", "some"])
@pytest.mark.parametrize("query", ASKED, ids=str)
def test_every_query_of_a_dashboard_has_an_answer(playground: Playground, query: Query, chosen: dict[str, str]) -> None:
    if query.panel == "Configuration loaded":  # an annotation: says something at a reload alone
        playground.prometheus.values(substituted(query.expr, WINDOW, chosen))
        return
    assert playground.prometheus.values(substituted(query.expr, WINDOW, chosen)), query.expr


@pytest.mark.parametrize("query", [query for query in ASKED if query.exemplar], ids=str)
def test_every_exemplar_of_a_dashboard_leads_to_a_trace(playground: Playground, query: Query) -> None:
    found = playground.prometheus.exemplars(substituted(query.expr, WINDOW, ALL))
    assert found
    assert all(len(labels["trace_id"]) == 32 and len(labels["span_id"]) == 16 for labels in found)


def test_no_query_falls_back_on_a_metric_that_nobody_sends(playground: Playground) -> None:
    """`or vector(0)` would hide it."""
    names = set(playground.prometheus.ask("label/__name__/values"))
    assert {name for query in ASKED for name in query.metrics} - names == SELDOM


@pytest.mark.parametrize(("name", "series", "label"), [each for path in DASHBOARDS for each in values_of(path)])
def test_every_variable_has_values(playground: Playground, name: str, series: str, label: str) -> None:
    found = playground.prometheus.ask("series", **{"match[]": substituted(series, WINDOW, ALL)})
    assert {labels[label] for labels in found if label in labels}, name


def test_the_figures_are_those_of_the_traffic(playground: Playground) -> None:
    """Six rounds of sixteen calls."""
    [search] = playground.prometheus.values('sum(spangate_requests_total{spangate_team="search"})')
    outcomes = {
        series["metric"]["spangate_outcome"]: float(series["value"][1])
        for series in playground.prometheus.ask("query", query="sum by (spangate_outcome) (spangate_requests_total)")["result"]
    }
    assert search == 36
    assert outcomes == {"completed": 54, "refused": 12, "failed": 24, "aborted": 6}
    [cost] = playground.prometheus.values("sum(spangate_cost_total)")
    assert cost > 0
