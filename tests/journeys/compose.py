"""docker-compose.yml as it stands, brought up, called, looked at from each of its windows, and taken down again.

No test by its name: it wants Docker. `make compose-test` runs it, on free ports and with volumes of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, NotFoundError

from house.source import ROOT
from upstream import refusing_port

STARTS, HEARS = 300, 90  # seconds: images may have to be pulled; metrics are sent every ten
PORTS = ("SPANGATE_PORT", "GRAFANA_PORT", "JAEGER_PORT", "PROMETHEUS_PORT", "OTLP_PORT")


class Compose:
    """One project of docker-compose.yml."""

    def __init__(self) -> None:
        self._ports = {name: refusing_port() for name in PORTS}
        self._environment = os.environ | {name: str(port) for name, port in self._ports.items()}
        self._command = ["docker", "compose", "--project-name", f"spangate-test-{os.getpid()}"]

    def run(self, *arguments: str) -> str:
        ran = subprocess.run([*self._command, *arguments], cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"docker compose {' '.join(arguments)}: {ran.stderr}"
        return ran.stdout

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def key(self, team: str) -> str:
        made = self.run("exec", "--no-TTY", "gateway", "spangate", "keys", "new", team, "--name", "test")
        return made.rpartition("OPENAI_API_KEY=")[2].strip()

    def states(self) -> dict[str, str]:
        """Of each service: healthy, or running where nothing asks, or exited."""
        told = [json.loads(line) for line in self.run("ps", "--all", "--format", "json").splitlines()]
        return {each["Service"]: each["Health"] or each["State"] for each in told}


@contextmanager
def composed() -> Iterator[Compose]:
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.fail("This needs Docker with its compose plug-in: https://docs.docker.com/compose/install.")
    compose = Compose()
    try:
        compose.run("up", "--detach", "--build")
        yield compose
    except BaseException:
        print(compose.run("logs", "--tail", "50"))
        raise
    finally:
        compose.run("down", "--volumes", "--timeout", "10")


def fetched(url: str, **parameters: str) -> Any:
    """What stands there; None: nobody answers, or nothing is there yet."""
    try:
        with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
        return None


async def there(look: Callable[[], Any], seconds: float) -> Any:
    """What is there at last."""
    async with asyncio.timeout(seconds):
        while not (found := await asyncio.to_thread(look)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # other processes, which tell nobody
    return found


async def called(url: str, key: str) -> str:
    """An answer and a refusal; the trace of the answer."""
    messages: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=3) as client:
        raw = await client.chat.completions.with_raw_response.create(model="fast", messages=messages)
        assert raw.parse().choices[0].message.content == "Rome."
        with pytest.raises(NotFoundError):
            await client.chat.completions.create(model="strong", messages=messages)
        return raw.headers["x-spangate-trace-id"]


async def test_every_window_shows_the_calls() -> None:
    with composed() as compose:
        gateway, jaeger, prometheus, grafana = (
            compose.url(name) for name in ("SPANGATE_PORT", "JAEGER_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
        )
        await there(lambda: fetched(f"{gateway}/readyz"), STARTS)
        key = await asyncio.to_thread(compose.key, "search")
        await there(lambda: accepted(gateway, key), 5)
        trace = await called(gateway, key)

        told = await there(lambda: (fetched(f"{jaeger}/api/traces/{trace}") or {}).get("data"), HEARS)
        assert sorted(span["operationName"] for span in told[0]["spans"]) == ["POST /v1/chat/completions", "chat gpt-5-mini"]

        query = 'sum by (spangate_outcome) (spangate_requests_total{job="spangate", spangate_team="search"})'
        series = await there(lambda: ((fetched(f"{prometheus}/api/v1/query", query=query) or {}).get("data") or {}).get("result"), HEARS)
        assert {each["metric"]["spangate_outcome"] for each in series} == {"completed", "refused"}

        board = await there(lambda: fetched(f"{grafana}/api/dashboards/uid/spangate-overview"), HEARS)
        assert board["dashboard"]["title"] == "spangate: overview"

        wanted = {"keys": "exited", "collector": "running"} | dict.fromkeys(("gateway", "jaeger", "prometheus", "grafana"), "healthy")
        await there(lambda: compose.states() == wanted, HEARS)


def accepted(gateway: str, key: str) -> bool:
    """Whether the gateway knows the key, as it does within a second."""
    request = urllib.request.Request(f"{gateway}/v1/models", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False
