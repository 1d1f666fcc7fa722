"""A little OTLP/HTTP collector for tests: a real server in a thread, which decodes what it gets with OpenTelemetry's own protobuf
classes and keeps it. It can be slow, mute, busy, choosy, or shut.

    with Sink() as sink:
        … sink.endpoint …
        [span] = sink.wait_for_spans(1)
        assert attributes(span)["http.route"] == "/v1/chat/completions"
"""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Mode = Literal["well", "slow", "mute", "busy", "partial", "refusing"]

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


@dataclass
class Received:
    """One request as it came, and when."""

    path: str
    headers: dict[str, str]
    size: int
    message: Any
    at: float


@dataclass
class Sink:
    """`mode` may change at any time: `slow` waits `delay` seconds before it answers, `mute` never does, `busy` answers 503 with
    `retry_after` until `busy_for` requests were answered so, `partial` rejects `rejects` items of each request, `refusing` answers 400."""

    mode: Mode = "well"
    delay: float = 0.2
    retry_after: str | None = "0.05"
    busy_for: int = 1_000_000
    rejects: int = 1
    requests: list[Received] = field(default_factory=list)
    taken: list[Received] = field(default_factory=list)
    """Those that were answered well."""
    connections: int = 0

    def __enter__(self) -> Self:
        self._news = threading.Condition()
        self._over = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Span]:
        return [
            span for each in self._messages("/v1/traces") for parts in scopes(each.resource_spans, "scope_spans") for span in parts.spans
        ]

    @property
    def logs(self) -> list[Any]:
        return [
            log for each in self._messages("/v1/logs") for parts in scopes(each.resource_logs, "scope_logs") for log in parts.log_records
        ]

    @property
    def metrics(self) -> list[Any]:
        return [
            metric
            for each in self._messages("/v1/metrics")
            for parts in scopes(each.resource_metrics, "scope_metrics")
            for metric in parts.metrics
        ]

    @property
    def resource(self) -> dict[str, Any]:
        """Of the first spans."""
        return attributes(self._messages("/v1/traces")[0].resource_spans[0].resource)

    def wait(self, true: Callable[[], bool], seconds: float = 5.0) -> None:
        """Wait until `true`, which is asked again whenever something came."""
        until = time.monotonic() + seconds
        with self._news:
            while not true():
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{len(self.requests)} requests, {len(self.spans)} spans, {len(self.logs)} log events")
                self._news.wait(min(left, 0.05))

    def wait_for_spans(self, number: int, seconds: float = 5.0) -> list[Span]:
        self.wait(lambda: len(self.spans) >= number, seconds)
        return self.spans

    def _messages(self, path: str) -> list[Any]:
        return [each.message for each in list(self.taken) if each.path == path]

    def answer(self, received: Received) -> tuple[int, dict[str, str], bytes] | None:
        """What a request is answered, in the mode of the moment; None: nothing, ever."""
        self.requests.append(received)
        mode = self.mode
        if mode == "mute":
            self._over.wait(60)
            return None
        if mode == "slow":
            self._over.wait(self.delay)
        if mode == "busy" and self.busy_for > 0:
            self.busy_for -= 1
            return 503, {"retry-after": self.retry_after} if self.retry_after else {}, b""
        if mode == "refusing":
            return 400, {}, b"no"
        self.taken.append(received)
        with self._news:
            self._news.notify_all()
        answer = ExportTraceServiceResponse()
        if mode == "partial":
            answer.partial_success.rejected_spans = self.rejects
            answer.partial_success.error_message = "too old"
        return 200, {"content-type": "application/x-protobuf"}, answer.SerializeToString()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        super().__init__(("127.0.0.1", 0), _Exchange)


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 60

    def setup(self) -> None:
        super().setup()
        self.server.sink.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        coding = headers.get("content-encoding")
        plain = gzip.decompress(body) if coding == "gzip" else zlib.decompress(body) if coding == "deflate" else body
        path = urlsplit(self.path).path  # who takes it for a proxy names the whole address
        message = REQUESTS[path].FromString(plain)
        answer = self.server.sink.answer(Received(path, headers, len(body), message, time.monotonic()))
        if answer is None:
            self.close_connection = True
            return
        status, named, content = answer
        self.send_response(status)
        for name, value in (named | {"content-length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def scopes(parts: Iterable[Any], name: str) -> list[Any]:
    return [scope for part in parts for scope in getattr(part, name)]


def attributes(holder: Any) -> dict[str, Any]:
    """The attributes of a decoded span, event, log record or resource. A key that stands there twice is a mistake."""
    pairs: list[KeyValue] = list(holder.attributes)
    assert len({pair.key for pair in pairs}) == len(pairs)
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, kind) if kind else None
