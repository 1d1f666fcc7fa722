"""A case of which everything is told: its spans reach a collector, its rows a database, and both are read back together.

    async with told(tmp_path, play(chat_answer("Hello"))) as it:
        await it.it.ask()
        [call] = await it.calls()
        assert call.row["input_tokens"] == attributes(call.attempts[0])["gen_ai.usage.input_tokens"] == 7

`calls` fails if spans and rows don't fit together one to one, or tell different things of one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spangate.exporters.usage.recorder import SpoolRecorder

from case import Case, case
from otlp_sink import Sink, attributes
from upstream import Misbehaving, Script

SERVER, CLIENT = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT
UNSET, ERROR = 0, 2

# What each attribute is by the conventions and by docs/telemetry.md, and on which kind of span it may stand.
_STRINGS = {
    SERVER: """http.request.method http.request.method_original http.route url.path url.scheme error.type network.protocol.version
        server.address client.address user_agent.original spangate.request.id spangate.outcome spangate.refusal.reason spangate.error.code
        spangate.organisation spangate.team spangate.key spangate.user spangate.api spangate.request.model spangate.policy.verdict
        spangate.policy.action spangate.stream.aborted_by""",
    CLIENT: """gen_ai.operation.name gen_ai.provider.name gen_ai.request.model gen_ai.conversation.id gen_ai.output.type
        gen_ai.request.reasoning.level gen_ai.response.id gen_ai.response.model error.type server.address openai.api.type
        openai.request.service_tier spangate.organisation spangate.team spangate.key spangate.user spangate.deployment.name
        spangate.attempt.reason spangate.attempt.outcome spangate.fallback.from spangate.fallback.reason spangate.usage.source
        spangate.stream.aborted_by""",
}
_INTEGERS = {
    SERVER: "http.response.status_code server.port spangate.attempt.count spangate.redaction.count",
    CLIENT: """gen_ai.request.choice.count gen_ai.request.seed gen_ai.request.top_k gen_ai.request.max_tokens gen_ai.usage.input_tokens
        gen_ai.usage.output_tokens gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_write.input_tokens
        gen_ai.usage.reasoning.output_tokens gen_ai.embeddings.dimension.count server.port spangate.attempt.number
        spangate.stream.chunk.count""",
}
_DOUBLES = {
    SERVER: "spangate.cost.total",
    CLIENT: """gen_ai.request.temperature gen_ai.request.top_p gen_ai.request.frequency_penalty gen_ai.request.presence_penalty
        gen_ai.response.time_to_first_chunk gen_ai.usage.cost spangate.cost.total""",
}
_BOOLEANS = {SERVER: "spangate.request.stream", CLIENT: "gen_ai.request.stream spangate.attempt.hedged"}
_LISTS = {SERVER: "spangate.policy.matched", CLIENT: "gen_ai.response.finish_reasons gen_ai.request.encoding_formats"}
_BY_TYPE: Mapping[type, Mapping[int, str]] = {str: _STRINGS, int: _INTEGERS, float: _DOUBLES, bool: _BOOLEANS, list: _LISTS}
TYPES = {kind: {name: type for type, names in _BY_TYPE.items() for name in names[kind].split()} for kind in (SERVER, CLIENT)}

ALWAYS = {
    SERVER: {"http.request.method", "url.path", "url.scheme", "http.route", "spangate.request.id", "spangate.outcome", "spangate.api"},
    CLIENT: {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "server.address", "server.port"},
}
TOKENS = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cached_tokens",
    "gen_ai.usage.cache_write.input_tokens": "cache_write_tokens",
    "gen_ai.usage.reasoning.output_tokens": "reasoning_tokens",
}


@dataclass(frozen=True)
class Call:
    """One call as it was told: its span and its row, its attempts' spans and rows in their order."""

    row: dict[str, Any]
    tried: list[dict[str, Any]]
    span: Span
    attempts: list[Span]
    logs: list[Any]

    @property
    def said(self) -> dict[str, Any]:
        return attributes(self.span)

    @property
    def tokens(self) -> tuple[int | None, int | None, str]:
        return self.row["input_tokens"], self.row["output_tokens"], self.row["usage_source"]

    def check(self) -> None:
        """Spans are typed as the conventions say, and tell what the rows tell."""
        check_types(self.span)
        self._check_call()
        assert len(self.tried) == len(self.attempts) == self.row["attempts"] == self.said["spangate.attempt.count"]
        for row, span in zip(self.tried, self.attempts, strict=True):
            check_types(span)
            self._check_attempt(row, span)

    def _check_call(self) -> None:
        row, said, span = self.row, self.said, self.span
        assert (span.kind, span.name) == (SERVER, f"POST {said['http.route']}")
        assert (row["trace_id"], row["id"]) == (span.trace_id.hex(), said["spangate.request.id"])
        assert (row["status"], row["outcome"]) == (said["http.response.status_code"], said["spangate.outcome"])
        assert row["error_code"] == said.get("spangate.error.code", "")
        for column in ("organisation", "team", "key", "user"):
            assert row[column] == said.get(f"spangate.{column}", ""), column
        model = said.get("spangate.request.model", "")
        assert row["model"] == model or "\ufffd" in model, "what no text can hold is replaced, by each in its way"
        assert row["stream"] == said.get("spangate.request.stream", False)
        check_times(row, span)
        assert (span.status.code == ERROR) == ("error.type" in said)
        assert ("error.type" in said) == (row["outcome"] in ("failed", "refused") and not 400 <= row["status"] < 500), said
        assert not any(name.startswith("gen_ai.") for name in said), "viewers would count it twice"
        if self.tried:
            assert (row["provider"], row["target_model"]) == (self.tried[-1]["provider"], self.tried[-1]["target_model"])

    def _check_attempt(self, row: Mapping[str, Any], span: Span) -> None:
        said = attributes(span)
        assert (span.kind, span.name) == (CLIENT, f"{said['gen_ai.operation.name']} {said['gen_ai.request.model']}")
        assert (row["call_id"], row["span_id"]) == (self.row["id"], span.span_id.hex())
        assert (span.trace_id, span.parent_span_id) == (self.span.trace_id, self.span.span_id)
        assert self.span.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= self.span.end_time_unix_nano
        names = ("deployment.name", "attempt.number", "attempt.reason", "attempt.outcome")
        assert tuple(row[column] for column in ("provider", "number", "reason", "outcome")) == tuple(said[f"spangate.{n}"] for n in names)
        assert row["target_model"] == said["gen_ai.request.model"]
        check_times(row, span)
        failed = row["outcome"] == "error"
        assert (span.status.code == ERROR, "error.type" in said, bool(row["error_type"])) == (failed,) * 3
        for name, column in TOKENS.items():
            # A span tells what the provider said; a row may hold an estimate where it said nothing, and says so.
            assert name not in said or said[name] == row[column], name
        assert len([log for log in self.logs if log.span_id == span.span_id]) == failed, "a failure is an event of its own"


def check_times(row: Mapping[str, Any], span: Span) -> None:
    for column, nanoseconds in (("started_at", span.start_time_unix_nano), ("ended_at", span.end_time_unix_nano)):
        written = datetime.fromisoformat(row[column]).replace(tzinfo=UTC).timestamp()
        assert abs(written * 1e6 - nanoseconds / 1e3) <= 2, column


def check_types(span: Span) -> None:
    """Each attribute is one that we know, where it belongs, with the type that it has by the conventions."""
    types, said = TYPES[span.kind], attributes(span)
    wrong = {name: value for name, value in said.items() if not name.startswith("spangate.tag.") and type(value) is not types.get(name)}
    assert wrong == {}
    assert ALWAYS[span.kind] - said.keys() == set()
    assert all(isinstance(each, str) for value in said.values() if isinstance(value, list) for each in value)


@dataclass(frozen=True)
class Told:
    """A case that can be asked what was told of it."""

    it: Case
    sink: Sink

    @property
    def usage(self) -> SpoolRecorder:
        usage = self.it.running.app.setting.usage
        assert usage is not None
        return usage

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        answer = await self.usage.sql.query(sql)
        assert not answer.truncated
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    async def spans(self) -> list[Span]:
        """All spans, once every call has ended."""
        running = self.it.running
        await running.kept.count(self.it.rows)
        await asyncio.to_thread(running.app.setting.recorder.flush)
        return self.sink.spans

    async def calls(self) -> list[Call]:
        """Every call, oldest first, each of them checked."""
        spans = await self.spans()
        servers = {attributes(span)["spangate.request.id"]: span for span in spans if span.kind == SERVER}
        clients = {span.span_id.hex(): span for span in spans if span.kind == CLIENT}
        rows = await self.rows("SELECT * FROM calls ORDER BY started_at, id")
        tried = await self.rows("SELECT * FROM attempts ORDER BY number")
        assert len(servers) + len(clients) == len(spans), "an id came twice"
        assert sorted(row["id"] for row in rows) == sorted(servers)
        assert sorted(row["span_id"] for row in tried) == sorted(clients)
        assert len(rows) == len(self.it.running.kept.seen) == self.it.rows
        calls = [Call(row, [], servers[row["id"]], [], []) for row in rows]
        by_id = {call.row["id"]: call for call in calls}
        for row in tried:
            by_id[row["call_id"]].tried.append(row)
            by_id[row["call_id"]].attempts.append(clients[row["span_id"]])
        by_span = {span.span_id: call for call in calls for span in (call.span, *call.attempts)}
        for log in self.sink.logs:
            by_span[log.span_id].logs.append(log)
        for call in calls:
            call.check()
        return calls

    async def call(self) -> Call:
        """The one that there is."""
        [call] = await self.calls()
        return call


@asynccontextmanager
async def told(
    folder: Path, script: Script | Misbehaving = (), *, sink: Sink | None = None, environ: Mapping[str, str] | None = None, **sections: Any
) -> AsyncIterator[Told]:
    """A case with a collector and a database. `environ`: OTEL_* variables."""
    with sink or Sink() as collector:
        telling = {"usage": {"path": "usage.duckdb"}, "telemetry": {"otlp": {"endpoint": collector.endpoint}}}
        async with case(folder, script, environ=environ, **telling | sections) as it:
            yield Told(it, collector)
