"""OTLP over gRPC: our encoded requests, sent by the exporters of OpenTelemetry's SDK, which know its channels, credentials and retries.

Imported only where grpc is asked for: it brings 12 MiB along. How many items of a request a collector left out is not told here.
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


class _Traces(OTLPSpanExporter):
    """The SDK's, given requests instead of spans."""

    def _translate_data(self, data: Any) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.ParseFromString(data)
        return request

    def _count_data(self, data: Any) -> int:
        return 1


class _Logs(OTLPLogExporter):
    """The SDK's, given requests instead of log records."""

    def _translate_data(self, data: Any) -> ExportLogsServiceRequest:
        request = ExportLogsServiceRequest()
        request.ParseFromString(data)
        return request

    def _count_data(self, data: Any) -> int:
        return 1


class _Metrics(OTLPMetricExporter):
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
        self._exporter = _EXPORTERS[name](
            endpoint=target.endpoint,
            insecure=True if target.insecure else None,
            headers=dict(target.headers) or None,
            timeout=target.timeout,
            compression=COMPRESSIONS[target.compression],
        )

    def send(self, body: bytes) -> Result:
        sent = self._exporter.export(body).name == "SUCCESS"
        return Result() if sent else Result("unavailable", "gRPC call failed")

    def close(self) -> None:
        self._exporter.shutdown()
