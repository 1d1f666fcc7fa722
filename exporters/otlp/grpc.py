"""OTLP over gRPC: our encoded requests, sent by the exporters of OpenTelemetry's SDK, which know its channels, credentials and retries.

Imported only where grpc is asked for: it brings 12 MiB along. The SDK's exporters throw away what a collector says; `_Hearing` keeps it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .config import Name, Target
from .http import Result

COMPRESSIONS: Final = {"none": 0, "deflate": 1, "gzip": 2}  # the numbers of grpc.Compression


class _Heard:
    """What the last call came to: the name of its status, and how many items were left out."""

    status = ""
    rejected = 0


class _Stub:
    """A stub of one channel that writes down what it hears."""

    def __init__(self, stub: Any, heard: _Heard) -> None:
        self._stub = stub
        self._heard = heard

    def Export(self, **given: Any) -> Any:  # noqa: N802 - as the protocol calls it
        try:
            answer = self._stub.Export(**given)
        except Exception as error:
            self._heard.status = str(getattr(_code(error), "name", ""))
            raise
        self._heard.status = "OK"
        counts = [value for field, value in answer.partial_success.ListFields() if field.name.startswith("rejected_")]
        self._heard.rejected = max(0, sum(counts))
        return answer


def _code(error: Exception) -> Any:
    code = getattr(error, "code", None)
    return code() if callable(code) else None


class _Hearing:
    """An exporter of the SDK whose stubs are heard: it makes another one when a collector has gone away."""

    _client: Any
    heard: _Heard

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[misc]
        if not hasattr(self, "heard"):
            self.heard = _Heard()
        self._client = _Stub(self._client, self.heard)


class _Traces(_Hearing, OTLPSpanExporter):
    """The SDK's, given requests instead of spans."""

    def _translate_data(self, data: Any) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.ParseFromString(data)
        return request

    def _count_data(self, data: Any) -> int:
        return 1


class _Logs(_Hearing, OTLPLogExporter):
    """The SDK's, given requests instead of log records."""

    def _translate_data(self, data: Any) -> ExportLogsServiceRequest:
        request = ExportLogsServiceRequest()
        request.ParseFromString(data)
        return request

    def _count_data(self, data: Any) -> int:
        return 1


class _Metrics(_Hearing, OTLPMetricExporter):
    """The SDK's, given requests instead of metrics."""

    def _translate_data(self, data: Any) -> ExportMetricsServiceRequest:
        request = ExportMetricsServiceRequest()
        request.ParseFromString(data)
        return request

    def _count_data(self, data: Any) -> int:
        return 1


_EXPORTERS: Final[Mapping[Name, Any]] = {"traces": _Traces, "logs": _Logs, "metrics": _Metrics}


class GrpcSender:
    """A Sender of one signal."""

    def __init__(self, target: Target, name: Name) -> None:
        logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").setLevel(logging.CRITICAL)  # we say it, and more seldom
        # Certificates are told by variables alone (OTEL_EXPORTER_OTLP_CERTIFICATE and its like), which the SDK reads by itself.
        self._exporter = _EXPORTERS[name](
            endpoint=target.endpoint,
            insecure=True if target.insecure else None,
            headers=dict(target.headers) or ",",  # no header; for what is empty the SDK would read the environment
            timeout=target.timeout,
            compression=COMPRESSIONS[target.compression],
        )

    def send(self, body: bytes) -> Result:
        sent = self._exporter.export(body).name == "SUCCESS"
        return Result(rejected=self._exporter.heard.rejected) if sent else Result("unavailable", "gRPC call failed")

    @property
    def status(self) -> str:
        """What gRPC calls the end of the last call, such as UNAVAILABLE."""
        return str(self._exporter.heard.status)

    def close(self) -> None:
        self._exporter.shutdown()
