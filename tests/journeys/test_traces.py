"""One trace for every call: what a collector receives, decoded by OpenTelemetry's own classes, of a gateway between real clients and
misbehaving providers. Whatever happens to the collector happens to telemetry alone.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spangate.exporters.otlp.config import read
from spangate.exporters.otlp.export import Exporting
from spangate.exporters.record import Fanout, Resource
from spangate.exporters.settings import Telemetry
from spangate.proxy import config
from spangate.proxy.app import App, Setting
from spangate.proxy.endpoints import draining

from case import KEY, PROVIDER_KEY, SECRETS, Answer, Case, Line, case, key_hash, logged, settings
from gateway import KINDS, Kept, Running
from otlp_sink import Sink, attributes
from upstream import C, Misbehaving, Script, chat_answer, chat_completion, chunk, error, http, play, refusing_port, sse_head
from vendor import provider

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"
WORDS = "the words that nobody may see"

UNSET, ERROR = 0, 2
SERVER, CLIENT = 2, 3


@dataclass
class Traced:
    """A case whose calls are told to a collector."""

    it: Case
    sink: Sink
    recorder: Exporting

    async def spans(self) -> list[Span]:
        """All of them, once every call has ended."""
        await self.it.running.kept.count(self.it.rows)
        assert await asyncio.to_thread(self.recorder.wait)
        return self.sink.spans

    async def tree(self) -> tuple[Span, list[Span]]:
        """The one call's span and its attempts."""
        server, *attempts = await self.spans()
        assert (server.kind, {span.kind for span in attempts} - {CLIENT}) == (SERVER, set())
        assert {span.trace_id for span in attempts} <= {server.trace_id}
        assert {span.parent_span_id for span in attempts} <= {server.span_id}
        return server, attempts


@asynccontextmanager
async def traced(
    folder: Path,
    script: Script = (),
    *,
    sink: Sink | None = None,
    endpoint: str | None = None,
    environ: Mapping[str, str] | None = None,
    **sections: Any,
) -> AsyncIterator[Traced]:
    """A gateway on that script which tells its calls to `sink`, or to `endpoint`. `environ`: OTEL_* variables."""
    sink = sink or Sink()
    with sink:
        variables = {"OTEL_BSP_SCHEDULE_DELAY": "50", **(environ or {})}
        recorder = Exporting(
            read(Telemetry.model_validate({"otlp": {"endpoint": endpoint or sink.endpoint}}), variables),
            Resource({"service.name": "spangate"}),
        )
        async with logged() as log, Misbehaving(script) as up:
            path = folder / "spangate.yaml"
            path.write_text(settings(up.base_url, **sections), encoding="utf-8")
            kept = Kept()
            app = App(config.load(path, environ={}, kinds=KINDS), Setting(Fanout(kept, recorder), detailed=True))
            running = Running(app, await app.start("127.0.0.1", 0), kept)
            it = Case(running, up, log, KEY)
            try:
                yield Traced(it, sink, recorder)
                await it.running.settled()
                assert log.unhandled == []
            finally:
                await app.drain(0)
                await asyncio.to_thread(recorder.close, 0.5)


def with_parent(it: Case, body: Mapping[str, Any], path: str = "/v1/chat/completions", parent: str = PARENT) -> bytes:
    return it.request(body, path=path, headers=[("traceparent", parent)])


def status_of(span: Span) -> tuple[int, str | None]:
    return span.status.code, attributes(span).get("error.type")


# ---- the tree, for every way in which a call goes


CHAT = {"messages": [{"role": "user", "content": WORDS}], "temperature": 0.2, "max_tokens": 128}
TOOLS = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": {}}}]}


@pytest.mark.parametrize(
    ("path", "body", "name", "tokens"),
    [
        ("/v1/chat/completions", CHAT, "chat", (7, 2)),
        ("/v1/chat/completions", CHAT | {"stream": True}, "chat", (7, 2)),
        ("/v1/chat/completions", CHAT | TOOLS, "chat", (7, 2)),
        ("/v1/chat/completions", CHAT | TOOLS | {"stream": True}, "chat", (7, 2)),
        ("/v1/completions", {"prompt": WORDS}, "text_completion", None),
        ("/v1/embeddings", {"input": WORDS}, "embeddings", (1, None)),
    ],
    ids=["whole", "streamed", "tools", "streamed tools", "text", "embeddings"],
)
async def test_a_call_that_goes_well(
    tmp_path: Path, path: str, body: dict[str, Any], name: str, tokens: tuple[int, int | None] | None
) -> None:
    async with traced(tmp_path, provider) as told:
        answer = await told.it.raw(with_parent(told.it, {"model": "m"} | body, path), rows=1)
        assert answer.status == 200
        server, [attempt] = await told.tree()
        assert server.name == f"POST {path}"
        assert attempt.name == f"{name} m"
        assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, CALLER)
        assert (server.flags, attempt.flags) == (0x300, 0x100), "the caller is another process"
        assert answer.header("x-spangate-trace-id") == TRACE
        assert [status_of(span) for span in (server, attempt)] == [(UNSET, None)] * 2
        assert server.start_time_unix_nano <= attempt.start_time_unix_nano <= attempt.end_time_unix_nano <= server.end_time_unix_nano
        said, asked = attributes(server), attributes(attempt)
        assert {
            "http.request.method": "POST",
            "http.route": path,
            "http.response.status_code": 200,
            "spangate.outcome": "completed",
            "spangate.team": "search",
            "spangate.key": "ci",
            "spangate.request.id": answer.header("x-request-id"),
            "spangate.attempt.count": 1,
        }.items() <= said.items()
        assert {
            "gen_ai.operation.name": name,
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "m",
            "gen_ai.response.model": "m",
            "server.address": "127.0.0.1",
            "server.port": told.it.up.port,
            "spangate.deployment.name": "up",
            "spangate.attempt.number": 1,
            "spangate.attempt.outcome": "success",
        }.items() <= asked.items()
        streamed = bool(body.get("stream"))
        assert {asked.get("gen_ai.request.stream", False), "gen_ai.response.time_to_first_chunk" in asked} == {streamed}
        parameters = (asked.get("gen_ai.request.temperature"), asked.get("gen_ai.request.max_tokens"))
        assert parameters == (body.get("temperature"), body.get("max_tokens"))
        finish = None if name == "embeddings" else ["tool_calls" if "tools" in body else "stop"]
        assert asked.get("gen_ai.response.finish_reasons") == finish
        usage = (asked.get("gen_ai.usage.input_tokens"), asked.get("gen_ai.usage.output_tokens"))
        assert usage == (tokens or (None, None))
        assert not any(key.startswith("gen_ai.") for key in said)


async def refused_model(it: Case) -> int:
    return (await it.raw(with_parent(it, {"model": "gpt-9"}), rows=1)).status


async def bad_key(it: Case) -> int:
    return (await it.ask(key="sg-wrong", headers=[("traceparent", PARENT)])).status


async def asks(it: Case) -> int:
    return (await it.raw(with_parent(it, {"model": "m"}), rows=1)).status


async def streams(it: Case) -> int:
    return (await it.raw(with_parent(it, {"model": "m", "stream": True}), rows=1)).status


async def leaves(it: Case) -> int:
    """A client that leaves in the middle of a stream."""
    it.rows += 1
    async with it.line() as line:
        await line.send(with_parent(it, {"model": "m", "stream": True}))
        await line.reader.readuntil(b"data: ")
        line.abort()
    return 200


HELD = play(sse_head() + chunk(C("a")), end="hold")
BROKEN = play(sse_head() + chunk(C("a")) + chunk(C("b")), (b"", 0.02), end="rst")


@dataclass
class Bad:
    """A call that doesn't go well: who does what, the status that the client sees, and the statuses and `error.type`s of the spans."""

    do: Callable[[Case], Any]
    status: int
    server: tuple[int, str | None]
    said: dict[str, Any]
    script: Any = ()
    attempts: tuple[tuple[int, str | None], ...] | None = ()


FAILED = {"spangate.outcome": "failed"}
BAD = {
    "model": Bad(refused_model, 404, (UNSET, None), {"spangate.outcome": "refused", "spangate.refusal.reason": "forbidden_model"}),
    "key": Bad(bad_key, 401, (UNSET, None), {"spangate.outcome": "refused", "spangate.refusal.reason": "unauthenticated"}),
    "500": Bad(asks, 502, (ERROR, "502"), FAILED, play(error(500, WORDS)), ((ERROR, "500"),)),
    "400": Bad(asks, 400, (UNSET, None), FAILED, play(error(400, WORDS)), ((ERROR, "400"),)),
    "429": Bad(asks, 429, (UNSET, None), FAILED, play(error(429, WORDS)), ((ERROR, "429"),)),
    "no answer": Bad(asks, 502, (ERROR, "502"), FAILED, play(http(200, (), b"{}")), ((ERROR, "stream_interrupted"),)),
    "reset": Bad(asks, 502, (ERROR, "502"), FAILED, play(end="rst"), None),
    "broken stream": Bad(
        streams, 200, (ERROR, "stream_interrupted"), FAILED | {"http.response.status_code": 200}, BROKEN, ((ERROR, "stream_interrupted"),)
    ),
    "aborted": Bad(leaves, 200, (UNSET, None), {"spangate.outcome": "aborted"}, HELD, ((UNSET, None),)),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_call_that_does_not(tmp_path: Path, name: str) -> None:
    bad = BAD[name]
    async with traced(tmp_path, bad.script) as told:
        assert await bad.do(told.it) == bad.status
        server, sent = await told.tree()
        assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, CALLER)
        assert status_of(server) == bad.server
        assert bad.said.items() <= attributes(server).items()
        assert bad.attempts is None or tuple(status_of(span) for span in sent) == bad.attempts
        assert len(sent) == attributes(server)["spangate.attempt.count"] == len(told.it.running.kept.seen[0].attempts)


async def test_a_refusal_is_an_event_and_a_log_event(tmp_path: Path) -> None:
    teams = {"search": {"models": ["ok"], "keys": [{"name": "ci", "hash": key_hash(KEY)}]}}
    async with traced(tmp_path, teams=teams) as told:
        assert (await told.it.raw(with_parent(told.it, {"model": "m"}), rows=1)).status == 404
        [server] = await told.spans()
        [event], [log] = server.events, told.sink.logs
        assert (event.name, attributes(event)["spangate.policy.note"]) == ("spangate.policy", "access.refused")
        assert attributes(server)["spangate.policy.matched"] == ["access/teams.search.models"]
        assert (log.event_name, log.severity_number) == ("spangate.policy.decision", 13)
        assert (log.trace_id, log.span_id) == (server.trace_id, server.span_id)


async def test_no_content_and_no_key_is_told(tmp_path: Path) -> None:
    script = [play(chat_answer(f"{WORDS} {PROVIDER_KEY}")), play(error(500, f"{WORDS} {PROVIDER_KEY} {KEY}"))]
    async with traced(tmp_path, script) as told:
        for _ in range(2):
            await told.it.ask({"messages": [{"role": "user", "content": f"{WORDS} {KEY}"}], "stop": [WORDS], "user": WORDS})
        await told.it.ask(key=KEY[:-1], headers=[("x-request-id", "r-1"), ("baggage", f"user={KEY}")])
        assert len(await told.spans()) == 5
        told_of = "".join(str(each.message) for each in told.sink.taken)
        assert [word for word in (WORDS, *SECRETS, KEY[:20]) if word in told_of] == []


# ---- spans = calls + attempts


def failing(seed: int) -> Script:
    dice = random.Random(seed)
    ways = [play(error(500, "no")), play(error(429, "no")), play(end="rst"), BROKEN]

    def script(request: Any) -> Any:
        return dice.choice(ways) if dice.random() < 0.3 else play(chat_answer("Hello", stream=b'"stream": true' in request.body))

    return script


async def mixed(it: Case, number: int, dice: random.Random) -> None:
    """One call with a trace of its own: good, unknown, or given up."""
    parent = f"00-{number + 1:032x}-{number + 1:016x}-01"
    model = "gpt-9" if dice.random() < 0.1 else "m"
    request = with_parent(it, {"model": model, "stream": dice.random() < 0.5}, parent=parent)
    it.rows += 1
    async with it.line() as line:
        await line.send(request)
        if dice.random() < 0.1:
            await asyncio.sleep(dice.random() / 100)  # part of the scenario
            line.abort()
        else:
            await finished(line)


async def finished(line: Line) -> Answer | None:
    try:
        return await line.answer()
    except (asyncio.IncompleteReadError, ConnectionError):  # of a body that has begun, a failure is the end of the connection
        return None


@pytest.mark.parametrize("calls", [300, pytest.param(20_000, marks=pytest.mark.soak)])
async def test_each_call_and_each_attempt_is_one_span(tmp_path: Path, calls: int) -> None:
    dice = random.Random(calls)
    async with traced(tmp_path, failing(calls)) as told:
        for first in range(0, calls, 30):
            await asyncio.gather(*(mixed(told.it, number, dice) for number in range(first, min(first + 30, calls))))
        spans = await told.spans()
        seen = told.it.running.kept.seen
        expected = {(each.trace_id, each.span_id) for each in seen} | {(each.trace_id, a.span_id) for each in seen for a in each.attempts}
        assert len(seen) == calls
        assert len(spans) == len(expected) == sum(1 + len(each.attempts) for each in seen)
        assert {(int.from_bytes(s.trace_id, "big"), int.from_bytes(s.span_id, "big")) for s in spans} == expected
        assert told.recorder.counts.dropped == {}
        assert told.recorder.counts.sent["traces"] == len(spans)


# ---- TEL-07: a span's life across a stream


@pytest.mark.fault("TEL-07")
async def test_streams_that_end_in_every_way_leave_one_span_each(tmp_path: Path) -> None:
    """Of a hundred streams half are left by their clients, half are ended by another task of ours."""
    async with traced(tmp_path, HELD) as told:
        it = told.it
        lines = [await begun(it, number) for number in range(100)]
        for line in lines[:50]:
            line.abort()
        await it.running.kept.count(50)
        for running in list(it.running.app.endpoints.running):
            running.stop(draining())
        it.rows = 100
        spans = await told.spans()
        servers = {int.from_bytes(span.trace_id, "big"): span for span in spans if span.kind == SERVER}
        clients = {int.from_bytes(span.trace_id, "big"): span for span in spans if span.kind == CLIENT}
        assert len(spans) == 200
        assert servers.keys() == clients.keys() == set(range(1, 101))
        for trace, server in servers.items():
            assert int.from_bytes(server.parent_span_id, "big") == trace, "another call's parent"
            assert clients[trace].parent_span_id == server.span_id
            assert server.end_time_unix_nano >= clients[trace].end_time_unix_nano > 0
        outcomes = sorted(attributes(server)["spangate.outcome"] for server in servers.values())
        assert outcomes == ["aborted"] * 50 + ["failed"] * 50
        assert [line for line in it.log.lines if "detach" in line or "different Context" in line] == []
        for line in lines[50:]:
            await line.close()


async def begun(it: Case, number: int) -> Line:
    """A stream that has its first content, in a trace of its own."""
    address = it.running.address
    line = Line(*await asyncio.open_connection(address.host, address.port), it.heard)
    await line.send(with_parent(it, {"stream": True}, parent=f"00-{number + 1:032x}-{number + 1:016x}-01"))
    await line.reader.readuntil(b"data: ")
    return line


# ---- TEL-08: a context made to hurt

ZEROS = f"00-{'0' * 32}-{'0' * 16}-01"


@pytest.mark.fault("TEL-08")
@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", ZEROS)],
        [("traceparent", f"00-{'0' * 32}-{CALLER}-01")],
        [("traceparent", f"ff-{TRACE}-{CALLER}-01")],
        [("traceparent", PARENT.upper())],
        [("traceparent", PARENT), ("traceparent", PARENT)],
        [("traceparent", f"{PARENT}, {PARENT}")],
        [("traceparent", f"{PARENT}-more")],
        [("traceparent", "00-" + "a" * 20_000)],
        [("traceparent", f"00-{TRACE[:-1]}é-{CALLER}-01")],
        [("tracestate", "a=" + "x" * 10_240)],
        [("baggage", ",".join(f"key{number}=value{number}" for number in range(500)))],
    ],
    ids=["zeros", "zero trace", "ff", "upper case", "twice", "two in one", "more", "long", "not ASCII", "state alone", "baggage"],
)
async def test_a_bad_context_begins_a_new_trace(tmp_path: Path, headers: list[tuple[str, str]]) -> None:
    async with traced(tmp_path, play(chat_answer("Hello"))) as told:
        assert (await told.it.ask(headers=headers)).status == 200
        server, [_] = await told.tree()
        assert server.parent_span_id == b""
        assert server.trace_id.hex() != TRACE
        assert int.from_bytes(server.trace_id, "big")
        assert len(server.SerializeToString()) < 4096, "nothing of it is kept"


@pytest.mark.fault("TEL-08")
async def test_a_good_context_with_a_long_state_goes_on(tmp_path: Path) -> None:
    async with traced(tmp_path, play(chat_answer("Hello"))) as told:
        headers = [("traceparent", PARENT), ("tracestate", ",".join(f"k{number}={'v' * 200}" for number in range(100))), ("baggage", "a=b")]
        assert (await told.it.ask(headers=headers)).status == 200
        server, [_] = await told.tree()
        assert (server.trace_id.hex(), server.parent_span_id.hex()) == (TRACE, CALLER)
        assert len(server.trace_state) <= 512


@pytest.mark.fault("TEL-08")
async def test_a_client_cant_force_more_than_the_sampler_lets(tmp_path: Path) -> None:
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    async with traced(tmp_path, play(chat_answer("Hello")), environ=environ) as told:
        for _ in range(20):
            await told.it.raw(with_parent(told.it, {"model": "m"}), rows=1)
        assert await told.spans() == []


async def test_a_callers_no_is_honoured(tmp_path: Path) -> None:
    async with traced(tmp_path, play(error(500))) as told:
        await told.it.raw(with_parent(told.it, {"model": "m"}, parent=PARENT[:-2] + "00"), rows=1)
        assert await told.spans() == []


# ---- TEL-03: what goes on to a provider


@pytest.mark.fault("TEL-03")
async def test_baggage_and_state_never_leave_for_a_provider(tmp_path: Path) -> None:
    headers = [
        ("traceparent", PARENT),
        ("tracestate", "vendor=secret"),
        ("baggage", "user=jane,team=secret"),
        ("b3", "1-2-1"),
        ("x-b3-traceid", TRACE),
    ]
    async with traced(tmp_path, play(chat_answer("Hello"))) as told:
        assert (await told.it.ask(headers=headers)).status == 200
        [request] = told.it.up.requests
        sent = {name.lower() for name, _ in request.headers}
        assert not sent & {b"baggage", b"tracestate", b"b3", b"x-b3-traceid"}
        assert b"jane" not in request.raw
        assert CALLER.encode() not in request.raw, "the caller's span is not the provider's parent"


# ---- TEL-09: bad values among good ones


@pytest.mark.fault("TEL-09")
async def test_bad_values_cost_no_other_span(tmp_path: Path) -> None:
    """Fifty good calls and some whose model, prompt or answer holds what no backend bears."""
    strange = chat_completion("x", finish="\x00" + "y" * 100_000).replace(b'"c1"', b'"\\ud800"')

    def script(request: Any) -> Any:
        return play(http(200, (), strange) if b"strange" in request.body else chat_answer("Hello"))

    bad = [
        b'{"model": "\\ud800", "messages": []}',
        b'{"model": "a\\u0000b", "messages": []}',
        b'{"model": "m", "temperature": 1e400, "seed": %d, "messages": [{"role": "user", "content": "\\ud800 \\u0000"}]}' % 10**100,
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * (2 << 20)}]}).encode(),
        b'{"model": "m", "messages": ["strange"]}',
    ]
    async with traced(tmp_path, script) as told:
        for number in range(50):
            await told.it.ask()
            if number < len(bad):
                await told.it.ask(bad[number])
        spans = await told.spans()
        servers = [attributes(span) for span in spans if span.kind == SERVER]
        assert len(servers) == 55
        assert sum(said["spangate.outcome"] == "completed" for said in servers) >= 50
        assert told.recorder.counts.dropped == {}
        assert not any("\x00" in str(attributes(span)) for span in spans)
        assert max(len(each.message.SerializeToString()) for each in told.sink.taken) < 1 << 20


# ---- TEL-01: a collector that is dead, slow or mute


@pytest.mark.fault("TEL-01")
@pytest.mark.parametrize("state", ["dead", "mute", "slow", "busy"])
async def test_a_bad_collector_costs_no_call(tmp_path: Path, state: Any) -> None:
    sink = Sink(mode="well" if state == "dead" else state, delay=0.3, retry_after=None)
    endpoint = f"http://127.0.0.1:{refusing_port()}" if state == "dead" else None
    environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.4", "OTEL_BSP_MAX_QUEUE_SIZE": "100"}
    async with traced(tmp_path, play(chat_answer("Hello")), sink=sink, endpoint=endpoint, environ=environ) as told:
        for _ in range(20):
            answers = await asyncio.gather(*(told.it.ask() for _ in range(20)))
            assert {answer.status for answer in answers} == {200}
        recorder = told.recorder
        assert recorder.waiting <= 50
        began = time.monotonic()
        await asyncio.to_thread(recorder.wait, 3.0)
        assert time.monotonic() - began < 3.5
        lost, sent = recorder.counts.lost, recorder.counts.sent.get("traces", 0)
        assert lost + sent == 800
        assert lost > 0
        lines = [line for line in told.it.log.lines if "telemetry" in line]
        assert len(lines) == 1, "one line in ten seconds"


@pytest.mark.soak
@pytest.mark.fault("TEL-01")
async def test_a_dead_collector_for_a_minute(tmp_path: Path) -> None:
    """200 calls a second, in turns with a gateway that tells nobody: not slower, and once its queue is full not larger. (What waits at the
    end of a turn is lost in the next one, so that the sizes of the two belong together.)"""
    (tmp_path / "off").mkdir()
    script, memory = play(chat_answer("Hello")), psutil.Process().memory_info
    environ = {"OTEL_BSP_MAX_QUEUE_SIZE": "2000", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
    endpoint = f"http://127.0.0.1:{refusing_port()}"
    off, dead, lines = list[float](), list[float](), list[str]()
    grown = {False: list[int](), True: list[int]()}
    async with case(tmp_path / "off", script) as plain, traced(tmp_path, script, endpoint=endpoint, environ=environ) as told:
        for number in range(12):
            it, times = (told.it, dead) if number % 2 else (plain, off)
            before = memory().rss
            times.append(await pace(it, seconds=10))
            lines += [line for line in told.it.log.lines if "telemetry" in line]
            for kept in (it.running.kept.seen, it.up.requests, it.heard, told.it.log.lines):
                kept.clear()  # by the test, not by the gateway
            it.rows = 0
            gc.collect()
            grown[it is told.it].append(memory().rss - before)
        print(f"p95 {median(off) * 1000:.2f} ms, with a dead collector {median(dead) * 1000:.2f} ms")
        print(f"RSS + {[[each >> 10 for each in which] for which in grown.values()]} KiB; {told.recorder.counts.lost} items lost")
        assert median(dead) < median(off) * 1.1 + 0.0005
        assert sum(grown[True][1:]) + sum(grown[False][1:]) < 8 << 20
        assert told.recorder.counts.lost > 10_000
        assert len(lines) <= 13, "two minutes, a line in ten seconds"


async def pace(it: Case, seconds: float, each: float = 1 / 200) -> float:
    """A call every so often; the p95 of their times."""
    took: list[float] = []

    async def one() -> None:
        began = time.perf_counter()
        assert (await it.ask()).status == 200
        took.append(time.perf_counter() - began)

    loop = asyncio.get_running_loop()
    first, running = loop.time(), set[asyncio.Task[None]]()
    for number in range(int(seconds / each)):
        await asyncio.sleep(max(0.0, first + number * each - loop.time()))  # the pace is the scenario
        task = asyncio.create_task(one())
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)
    return quantiles(took, n=20)[-1]


# ---- the end


async def test_a_drain_sends_what_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    sink = Sink()
    async with traced(tmp_path, play(chat_answer("Hello")), sink=sink, environ={"OTEL_BSP_SCHEDULE_DELAY": "60000"}) as told:
        await asyncio.gather(*(told.it.ask() for _ in range(20)))
        assert sink.spans == []
    assert len(sink.spans) == 40
