"""The canary search: a program with everything on, calls that carry words which nobody may see, and everything that it wrote, sent or
answered to others. Each place that may hold a canary is named here; no other does.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

from case import CHAT, KEY, OTHER, PROVIDER_KEY, Answer, Case, key_hash, settings
from otlp_sink import Sink
from serving import serving
from upstream import C, F, Misbehaving, Play, Request, chunk, error, http, play, sse, sse_head, usage, wants_stream

ADMIN = "CANARY-admin-token-0123456789"
COLLECTOR = "CANARY-collector-token"
CANARIES = {
    "key": KEY,
    "other key": OTHER,
    "provider key": PROVIDER_KEY,
    "admin token": ADMIN,
    "collector token": COLLECTOR,
    "wrong key": "sk-live-CANARY-wrong-key",
    "prompt": "CANARY-prompt",
    "system": "CANARY-system",
    "answer": "CANARY-answer",
    "reasoning": "CANARY-reasoning",
    "e-mail": "CANARY.jane@example.com",
    "arguments": "CANARY-arguments",
    "tool": "CANARY-tool-description",
    "stop": "CANARY-stop-sequence",
    "schema": "CANARY-schema",
    "input": "CANARY-input",
    "query": "CANARY-query",
    "path": "CANARY-path",
    "cookie": "CANARY-cookie",
    "set-cookie": "CANARY-set-cookie",
    "api-key": "CANARY-api-key",
    "proxy-authorization": "CANARY-proxy-authorization",
    "header": "CANARY-header",
    "baggage": "CANARY-baggage",
    "traceparent": "CANARY-traceparent",
    "invalid JSON": "CANARY-invalid-json",
    "words": "CANARY-provider-words",
    "page": "CANARY-provider-html",
    "its header": "CANARY-provider-header",
    "whole answer": "CANARY-whole-answer",
    "embedding": "CANARY-embedding",
    "header value": "CANARY-label",
}

# What callers say of themselves is a column and an attribute by design: it is here to be found, and nowhere else.
USER, THREAD, TAG, OURS, MODEL, STATE, AGENT = (
    "KNOWN-user", "KNOWN-thread", "KNOWN-tag", "KNOWN-request-id", "KNOWN-sk-model", "KNOWN-state", "KNOWN-agent"
)  # fmt: skip
KNOWN = {  # who may say it: the console's lines, spans and log events, the database and its spool
    USER: {"spans", "database"},
    THREAD: {"spans", "database"},
    TAG: {"spans", "database"},
    OURS: {"console", "database"},
    MODEL: {"console", "spans", "database"},
    STATE: {"spans"},
    AGENT: {"spans"},
}

SAID = [
    {"role": "system", "content": CANARIES["system"]},
    {"role": "user", "content": f"{CANARIES['prompt']} {CANARIES['e-mail']}"},
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": CANARIES["arguments"]}}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": CANARIES["tool"], "parameters": {}}}]
BODY: dict[str, Any] = {"messages": SAID, "tools": TOOLS, "stop": [CANARIES["stop"]], "user": CANARIES["e-mail"], "temperature": 0.5}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": CANARIES["schema"], "schema": {}}}}
HEADERS = [
    ("cookie", CANARIES["cookie"]),
    ("x-goog-api-key", CANARIES["api-key"]),
    ("proxy-authorization", CANARIES["proxy-authorization"]),
    ("x-something", CANARIES["header"]),
    ("baggage", f"user={CANARIES['baggage']}"),
    ("traceparent", f"00-{CANARIES['traceparent']}-{CANARIES['traceparent']}-01"),
    ("x-spangate-user", USER),
    ("x-spangate-thread", THREAD),
    ("x-spangate-tags", f"env={TAG}"),
    ("x-request-id", OURS),
    ("user-agent", AGENT),
]
PAGES = ("text/plain", "application/openmetrics-text")
QUERY = f"{CHAT}?api_key={CANARIES['query']}"


def answered(request: Request) -> Play:
    """An answer, whole or streamed, that says things, in headers too."""
    told = [("Set-Cookie", f"sid={CANARIES['set-cookie']}"), ("x-something", CANARIES["its header"])]
    message = {"role": "assistant", "content": CANARIES["whole answer"], "reasoning_content": CANARIES["reasoning"]}
    if request.path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": CANARIES["embedding"]}]
        return play(http(200, told, json.dumps({"object": "list", "data": data, "model": "m", "usage": usage(7, 0)}).encode()))
    if wants_stream(request):
        return play(sse(C(CANARIES["answer"]), C(CANARIES["e-mail"]), F("stop"), headers=told))
    whole = {"id": "c1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage(7, 2)}
    return play(http(200, told, json.dumps(whole).encode()))


def failing(request: Request) -> list[Play]:
    """Providers that repeat in their errors what they were told, and their key."""
    words = f"{CANARIES['words']} {PROVIDER_KEY} {request.body.decode()}"
    html = f"<p>{CANARIES['page']} {PROVIDER_KEY}</p>".encode()
    begun = sse_head() + chunk(C(CANARIES["answer"]))
    return [
        play(error(400, words, type=CANARIES["words"], code=CANARIES["words"])),
        play(error(401, words, code=CANARIES["words"])),
        play(error(429, words, headers=[("retry-after", "0.01"), ("x-request-id", CANARIES["its header"])])),
        play(error(500, words)),
        play(http(502, [("Content-Type", "text/html")], html)),
        play(http(200, (), b'{"CANARY-whole-answer": broken')),
        play(http(200, (), json.dumps({"error": {"message": words, "code": words}}).encode())),
        play(begun + chunk(b'data: {"error": {"message": "%b"}}\n\n' % CANARIES["words"].encode()), end="fin"),
        play(begun + chunk(b'data: {"%b\n\n' % CANARIES["answer"].encode()), (b"", 0.02), end="rst"),
        play(begun, end="hold"),
    ]


class Provider:
    """Answers, or fails in the next way: each of them a whole and a streamed time."""

    def __init__(self) -> None:
        self.next: int | None = None

    def __call__(self, request: Request) -> Play:
        if self.next is None:
            return answered(request)
        return failing(request)[self.next]


async def calls(it: Case, provider: Provider) -> list[Answer]:
    """All kinds of calls with all canaries; the answers to those who sent none."""
    for more in ({}, {"stream": True}, FORMAT, {"model": MODEL}, {"model": "ok"}):
        await it.ask(BODY | more, headers=HEADERS, path=QUERY)
    for path, body in (("/v1/embeddings", {"input": CANARIES["input"]}), ("/v1/completions", {"prompt": CANARIES["prompt"]})):
        await it.ask(json.dumps({"model": "m", **body}).encode(), path=path, headers=HEADERS)
    for provider.next in range(len(failing(Request(b"", "POST", CHAT, [], b"", 0.0, None)))):  # type: ignore[arg-type]
        for stream in (False, True):
            await it.ask(BODY | {"stream": stream, "model": "slow"}, headers=HEADERS)
    provider.next = None
    await it.ask(b'{"model": "m", "messages": "' + CANARIES["invalid JSON"].encode(), headers=HEADERS)
    await it.ask({"stream": CANARIES["invalid JSON"]}, headers=HEADERS)
    await it.ask({}, headers=[("x-spangate-tags", CANARIES["header value"])])
    await it.ask(BODY, key=CANARIES["wrong key"], headers=HEADERS)
    await it.ask(BODY, headers=[*HEADERS, ("api-key", CANARIES["wrong key"])])  # two keys that differ
    await it.ask(path=f"/v1/{CANARIES['path']}?key={CANARIES['query']}", method="GET")
    await it.ask(headers=[("traceparent", f"00-{'1' * 32}-{'2' * 16}-01"), ("tracestate", f"a={STATE}")])
    return [
        await it.ask({"messages": [{"role": "user", "content": "hi"}], "model": "nobody"}, key=OTHER),
        await it.ask(b"{", key=OTHER),
        await it.ask(path="/v1/models", method="GET", key=OTHER),
        await it.ask(path="/v1/key", method="GET", key=OTHER),
        await it.ask(path="/readyz", method="GET", key=""),
        await it.ask(path="/healthz", method="GET", key=""),
        await it.ask(path="/usage/sql", headers=[("content-type", "application/json")], key=OTHER, body=b'{"sql": "SELECT * FROM calls"}'),
    ]


def written(folder: Path) -> str:
    """The bytes of every file that the program has in its folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "spangate.yaml"]
    return b"".join(path.read_bytes() for path in files).decode("latin-1")


def everything(folder: Path) -> str:
    """All texts of the database, whatever the files' compression."""
    with duckdb.connect(str(folder / "usage.duckdb"), read_only=True) as connection:
        tables = connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
        rows = [connection.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall() for schema, table in tables]
    return str(rows)


def configuration(up: Misbehaving, sink: Sink) -> dict[str, Any]:
    slow = {"total": "400ms", "silence": "100ms", "first": "400ms"}
    usual = json.loads(settings(up.base_url))
    return {
        "models": {**usual["models"], "slow": {"targets": [{"provider": "up", "model": "m"}], "time_limit": slow}},
        "teams": {
            "search": {"models": ["m", "ok", "slow"], "keys": [{"name": "ci", "hash": key_hash(KEY)}]},
            "other": {"models": ["ok"], "keys": [{"name": "ci", "hash": key_hash(OTHER)}]},
        },
        "server": {"admin_token": ADMIN},
        "usage": {"path": "usage.duckdb"},
        "telemetry": {"otlp": {"endpoint": sink.endpoint, "headers": {"authorization": COLLECTOR}}, "http_spans": True},
    }


@pytest.mark.fault("KEY-09", "KEY-11", "KEY-12", "TEL-03")
async def test_no_canary_is_found(tmp_path: Path) -> None:
    provider = Provider()
    async with Misbehaving(provider) as up:
        with Sink() as sink, serving(tmp_path, up.base_url, "--log-level", "debug", **configuration(up, sink)) as program:
            everything_said = asyncio.create_task(program.end())
            it = program.case(up)
            others = await calls(it, provider)
            metrics = [await it.ask(path="/metrics", method="GET", headers=[("accept", kind)]) for kind in PAGES]
            spool = written(tmp_path)
            program.process.send(signal.SIGTERM)
            ran, lines = await everything_said
            assert len(lines) >= 30
            requests = len(up.requests)
    assert requests > 20
    places: Mapping[str, str] = {
        "console": f"{ran.out}{ran.err}{''.join(program.process.heard)}",
        "spans": "".join(each.message.SerializeToString().decode("latin-1") for each in sink.taken),
        "metrics": "".join(answer.body.decode() for answer in metrics),
        "database": spool + written(tmp_path) + everything(tmp_path),
        "others' answers": "".join(f"{answer.headers}{answer.body!r}" for answer in others),
    }
    assert {each.path for each in sink.taken} == {"/v1/traces", "/v1/logs", "/v1/metrics"}
    assert all(len(text) > 1000 for text in places.values())
    found = {name: [place for place, text in places.items() if word in text] for name, word in CANARIES.items()}
    assert {name: where for name, where in found.items() if where} == {}
    assert "CANARY" not in "".join(places.values())
    known = {word: {place for place, text in places.items() if word in text} for word in KNOWN}
    assert known == KNOWN
    sent = b"".join(request.raw for request in up.requests)
    for name in ("key", "cookie", "api-key", "proxy-authorization", "baggage", "header", "query", "admin token", "collector token"):
        assert CANARIES[name].encode() not in sent, name
