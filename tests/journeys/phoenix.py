"""A real Phoenix gets the gateway's spans by OTLP over HTTP, and tells by its own API what it understood.

No test by its name: it wants an environment of half a gigabyte. `make phoenix` makes that and runs this; SPANGATE_PHOENIX is its program.
Phoenix is told to call nobody.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI

from program import environment, running
from upstream import refusing_port

CALLER_TRACE, CALLER_SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STARTS, HEARS = 180, 30  # seconds: it makes its database first
QUIET = {
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_AGENTS_DISABLE_WEB_ACCESS": "true",
}
YAML = """\
providers:
  script:
    kind: scripted
    script: [{when: {contains: out of luck}, fault: {status: 503}}, {usage: {input: 13, output: 20, cached: 5}}]
models: {fast: {targets: [{provider: script, model: gpt-5-mini}]}}
"""


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """Its address."""
    program = os.environ.get("SPANGATE_PHOENIX")
    if not program:
        pytest.fail("SPANGATE_PHOENIX names no program: run this by `make phoenix`.")
    port, grpc = refusing_port(), refusing_port()
    own = {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc), "PHOENIX_WORKING_DIR": str(folder)}
    with (folder / "phoenix.log").open("w") as log:
        command = [Path(program).absolute(), "serve"]
        with subprocess.Popen(command, env=environment(folder, **QUIET, **own), cwd=folder, stdout=log, stderr=log) as process:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def fetched(url: str) -> Any:
    """What stands there; None: nobody answers, or nothing is there yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError, json.JSONDecodeError):
        return None


async def spans(url: str, number: int, seconds: float) -> list[dict[str, Any]]:
    """So many spans, as Phoenix tells them."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(seconds):
        while len(found) < number:
            told = await asyncio.to_thread(fetched, f"{url}/v1/projects/default/spans?limit=100")
            found = told["data"] if told else []
            await asyncio.sleep(0.2)  # it writes its database in turns
    return found


async def is_up(url: str) -> None:
    async with asyncio.timeout(STARTS):
        while await asyncio.to_thread(fetched, f"{url}/v1/projects") is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.5)


async def calls(url: str) -> dict[str, str]:
    """An answer, a stream in the caller's trace, and a failure; the trace of each."""
    messages: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
    traces = {}
    async with AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        raw = await client.chat.completions.with_raw_response.create(model="fast", messages=messages)
        traces["answer"] = raw.headers["x-spangate-trace-id"]
        parent = {"traceparent": f"00-{CALLER_TRACE}-{CALLER_SPAN}-01"}
        stream = await client.chat.completions.create(model="fast", messages=messages, stream=True, extra_headers=parent)
        async with stream:
            async for _ in stream:
                pass
        traces["stream"] = CALLER_TRACE
        with pytest.raises(APIStatusError) as failed:
            await client.chat.completions.create(model="fast", messages=[{"role": "user", "content": "I am out of luck."}])
        traces["failure"] = failed.value.response.headers["x-spangate-trace-id"]
    return traces


async def test_phoenix_understands_the_spans(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text(YAML, encoding="utf-8")
    with phoenix(tmp_path) as collector:
        await is_up(collector)
        with running("serve", "--port", "0", folder=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector) as gateway:
            url = gateway.until("listens on").split()[-1]
            traces = await calls(url)
            gateway.send(signal.SIGTERM)
            assert (await asyncio.to_thread(gateway.end)).code == 0
        found = await spans(collector, 6, HEARS)
    by_trace = {name: [span for span in found if span["context"]["trace_id"] == trace] for name, trace in traces.items()}
    for name, pair in by_trace.items():
        [server] = [span for span in pair if span["name"] == "POST /v1/chat/completions"]
        [attempt] = [span for span in pair if span["name"] == "chat gpt-5-mini"]
        assert len(pair) == 2
        assert attempt["parent_id"] == server["context"]["span_id"]
        assert server["parent_id"] == (CALLER_SPAN if name == "stream" else None)
        assert server["status_code"] == attempt["status_code"] == ("ERROR" if name == "failure" else "UNSET")
    [answered] = [span for span in by_trace["answer"] if span["name"].startswith("chat")]
    told = answered["attributes"]
    assert answered["span_kind"] == "LLM"
    assert told["llm.model_name"] == "gpt-5-mini"
    assert (told["llm.token_count.prompt"], told["llm.token_count.completion"]) == (13, 20)
    assert told["llm.token_count.prompt_details.cache_read"] == 5
    assert "capital of Italy" not in json.dumps(found), "content is told to nobody"
