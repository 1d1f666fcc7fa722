"""Records → OTLP, and from OpenTelemetry's SDK the resource that stands over them; the SDK is imported when that is first asked for.

The three signals have one frame: a resource, a scope, and what belongs to it. `frame` makes it for whatever messages it is given, so
that metrics come in the same way as spans and log events. Every message is encoded with its length before it.

https://github.com/open-telemetry/opentelemetry-proto/tree/main/opentelemetry/proto
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, Final

import msgspec

from ... import __version__
from .. import semconv
from ..record import Link, LogRecord, Resource, Scope, Span, SpanEvent
from ..utf8 import text
from . import protobuf
from .attributes import NAME, Pairs, keep
from .protobuf import counted, uint64, varint

log = logging.getLogger("spangate.exporters")

GATEWAY: Final = Scope(semconv.SCOPE_GATEWAY, __version__)
LENGTH: Final = 64 << 10  # characters of one value, where nobody says otherwise

_LOCAL, _REMOTE = b"\x85\x01\x00\x01\x00\x00", b"\x85\x01\x00\x03\x00\x00"  # flags: whether the parent is remote is known, and is so
_LINK_LOCAL, _LINK_REMOTE = b"\x35\x00\x01\x00\x00", b"\x35\x00\x03\x00\x00"
_SEVERITY: Final[Mapping[int, bytes]] = {5: b"\x1a\x05DEBUG", 9: b"\x1a\x04INFO", 13: b"\x1a\x04WARN", 17: b"\x1a\x05ERROR"}
_times = Struct("<BQBQ").pack
_span_ids = Struct(">2sQQ2sQ").pack
_parent = Struct(">2sQ").pack
_LOW = 2**64 - 1


class Limits(msgspec.Struct, frozen=True):
    """How much of a record goes out; None: all of it."""

    attributes: int | None = 128
    length: int | None = LENGTH
    events: int | None = 128
    event_attributes: int | None = 128
    links: int | None = 128
    link_attributes: int | None = 128


class Encoder:
    """Records → messages of OTLP. For one thread at a time: it remembers the attributes that repeat."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.pairs = Pairs(self.limits.length)
        self._names: dict[tuple[str, int], bytes] = {}

    def span(self, span: Span) -> bytes:
        limits, trace, parent = self.limits, span.trace_id, span.parent_id
        attributes, dropped = self.pairs.encode(span.attributes, b"\x4a", limits.attributes)
        parts = [
            _span_ids(b"\x0a\x10", trace >> 64, trace & _LOW, b"\x12\x08", span.span_id),
            _parent(b"\x22\x08", parent) if parent else b"",
            self._names.get((span.name, span.kind)) or self._name(span.name, span.kind),
            _span_times(span.start, span.end),
            attributes,
            _status(span.status, span.message) if span.status else b"\x7a\x00",
            _REMOTE if span.remote else _LOCAL,
        ]
        if dropped:
            parts.append(b"\x50" + varint(dropped))
        if span.trace_state:
            parts.append(b"\x1a" + counted(text(span.trace_state)))
        if span.events:
            parts.append(self._some(span.events, self._event, b"\x5a", b"\x60", limits.events))
        if span.links:
            parts.append(self._some(span.links, self._link, b"\x6a", b"\x70", limits.links))
        return counted(b"".join(parts))

    def log(self, record: LogRecord) -> bytes:
        attributes, dropped = self.pairs.encode(record.attributes, b"\x32", self.limits.attributes)
        at = uint64(record.at)
        parts = [b"\x09", at, b"\x59", at, b"\x10", varint(record.severity), _SEVERITY.get(record.severity, b""), b"\x2a\x00", attributes]
        if dropped:
            parts.append(b"\x38" + varint(dropped))
        if record.trace_id:
            parts.append(b"\x4a\x10" + record.trace_id.to_bytes(16, "big"))
        if record.span_id:
            parts.append(b"\x52\x08" + record.span_id.to_bytes(8, "big"))
        if record.sampled:
            parts.append(b"\x45\x01\x00\x00\x00")
        parts.append(b"\x62" + counted(text(record.event, NAME)))
        return counted(b"".join(parts))

    def resource(self, resource: Resource) -> bytes:
        """A Resource of the protocol, as `frame` takes it."""
        schema = b"\x1a" + counted(text(resource.schema_url)) if resource.schema_url else b""
        return b"\x0a" + counted(self.pairs.encode(resource.attributes, b"\x0a")[0]) + schema

    def scope(self, scope: Scope) -> bytes:
        """An InstrumentationScope, as `frame` takes it."""
        version = b"\x12" + counted(text(scope.version)) if scope.version else b""
        return b"\x0a" + counted(b"\x0a" + counted(text(scope.name)) + version)

    def _name(self, name: str, kind: int) -> bytes:
        encoded = b"\x2a" + counted(text(name, NAME)) + b"\x30" + protobuf.BYTE[kind]
        keep(self._names, (name, kind), encoded)
        return encoded

    def _some(self, items: Sequence[Any], encode: Any, field: bytes, dropped: bytes, limit: int | None) -> bytes:
        """A repeated field of at most `limit` of the items, the newest, and the count of the others."""
        over = max(0, len(items) - limit) if limit is not None else 0
        kept = protobuf.repeated(field, [encode(item) for item in items[over:]])
        return kept + dropped + varint(over) if over else kept

    def _event(self, event: SpanEvent) -> bytes:
        attributes, dropped = self.pairs.encode(event.attributes, b"\x1a", self.limits.event_attributes)
        head = b"\x09" + uint64(event.at) + b"\x12" + counted(text(event.name, NAME))
        return counted(head + attributes + (b"\x20" + varint(dropped) if dropped else b""))

    def _link(self, link: Link) -> bytes:
        attributes, dropped = self.pairs.encode(link.attributes, b"\x22", self.limits.link_attributes)
        ids = b"\x0a\x10" + link.trace_id.to_bytes(16, "big") + b"\x12\x08" + link.span_id.to_bytes(8, "big")
        flags = _LINK_REMOTE if link.remote else _LINK_LOCAL
        return counted(ids + attributes + (b"\x28" + varint(dropped) if dropped else b"") + flags)


def _span_times(start: int, end: int) -> bytes:
    if 0 <= start <= end <= protobuf.MAX_UINT64:
        return _times(0x39, start, 0x41, end)
    return b"\x39" + uint64(start) + b"\x41" + uint64(end)


def _status(code: int, message: str) -> bytes:
    return b"\x7a" + counted((b"\x12" + counted(text(message, 256)) if message else b"") + b"\x18" + protobuf.BYTE[code])


def frame(resource: bytes, scope: bytes, messages: Sequence[bytes]) -> bytes:
    """A whole Export…ServiceRequest of spans, log events or metrics: whatever `messages` are."""
    return b"\x0a" + counted(resource + b"\x12" + counted(scope + protobuf.repeated(b"\x12", messages)))


# ---- the SDK


def detected_resource() -> Resource:
    """Who we are: what the SDK's detectors and OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME of this process say, else `spangate`."""
    from opentelemetry.sdk.resources import Resource as Detected

    detected = Detected.create()
    found: dict[str, Any] = dict(detected.attributes)
    if str(found.get(semconv.SERVICE_NAME, "")).startswith("unknown_service"):
        del found[semconv.SERVICE_NAME]
    return Resource({semconv.SERVICE_NAME: semconv.SERVICE, semconv.SERVICE_VERSION: __version__} | found, detected.schema_url)
