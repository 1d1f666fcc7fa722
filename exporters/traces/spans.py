"""A finished Seen → its spans: one SERVER span for the call, one CLIENT span for each request sent to a provider, siblings under it.
Never content: no prompt, no answer, no header, no body of an error.

`gen_ai.*` stands on attempts alone: viewers take every span that bears it for an answer of a model, and would count its tokens twice.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...call.seen import Attempt, Seen
from .. import semconv
from ..record import ERROR, SERVER, UNSET, Begun, Link, LogRecord, Said, Shared, Span, Value
from . import attempts, decisions, outcomes

AGENT = 256  # characters of a user agent
METHOD = 32  # characters of a method that nobody knows
HOST = 300  # characters of a Host header


def spans_of(seen: Seen, *, http_spans: bool = False) -> list[Span]:
    """The call's span first, then its attempts in their order; with `http_spans` a child of each attempt for its HTTP request."""
    labels = labels_of(seen)
    spans = [_server(seen, labels)]
    before: Attempt | None = None
    for attempt in seen.attempts:
        spans.append(attempts.span(seen, attempt, before, labels))
        if http_spans:
            spans.append(attempts.http_span(seen, attempt))
        before = attempt
    return spans


def logs_of(seen: Seen, *, sampled: bool) -> list[LogRecord]:
    """Its log events: decisions of policies always, failures of providers with the spans that they belong to."""
    told = decisions.logs_of(seen, ended_at(seen), caller_of(seen), sampled=sampled) if len(seen.notes) else []
    if sampled:
        told += [attempts.exception(seen, attempt) for attempt in seen.attempts if attempt.outcome == "error"]
    return told


def caller_of(seen: Seen) -> Said:
    """Whose call it is, by names of the configuration and labels of the caller."""
    said: Said = {}
    if seen.organisation:
        said[semconv.ORGANISATION] = seen.organisation
    if seen.team:
        said[semconv.TEAM] = seen.team
    if seen.key:
        said[semconv.KEY] = seen.key
    return said | labels_of(seen)


def labels_of(seen: Seen) -> Said:
    """What the caller says of itself."""
    said: Said = {}
    if seen.user:
        said[semconv.USER] = seen.user
    for name, value in seen.tags.items():
        said[semconv.TAG_PREFIX + name] = value
    return said


def ended_at(seen: Seen) -> int:
    """Wall time in nanoseconds."""
    return seen.started_ns + max(0, round((seen.ended - seen.started) * 1e9))


# ---- the call


class Kind(NamedTuple):
    """What many calls have in common."""

    method: str
    path: str
    scheme: str
    http_version: str
    host: str
    client: str
    user_agent: str
    op: str
    model: str
    stream: bool
    status: int
    outcome: str
    error: str
    error_code: str
    refusal: str
    breaker: str
    attempts: int
    organisation: str
    team: str
    key: str


def _server(seen: Seen, labels: Mapping[str, Value]) -> Span:
    at = ended_at(seen)
    error = outcomes.call_error(seen)
    common = (
        seen.method, seen.path, seen.scheme, seen.http_version, seen.host[:HOST],
        coarse(seen.client_address) if seen.client_address else "",
        seen.user_agent[:AGENT], seen.op, seen.model, seen.stream, seen.status, seen.outcome or "", error, seen.error_code,
        outcomes.refusal(seen), outcomes.call_broken_by(seen), len(seen.attempts), seen.organisation, seen.team, seen.key,
    )  # fmt: skip
    own: Said = {semconv.REQUEST_ID: seen.id, **labels}
    events = decisions.events_of(seen, at) if len(seen.notes) else ()
    if events:
        own |= decisions.summary_of(seen)
    return Span(
        trace_id=seen.trace_id,
        span_id=seen.span_id,
        name=_name(seen),
        kind=SERVER,
        start=seen.started_ns,
        end=at,
        attributes=Begun(_shared(common), own),
        parent_id=seen.parent_span_id,
        remote=bool(seen.parent_span_id),
        trace_state=seen.trace_state,
        events=events,
        links=(Link(*seen.linked, remote=True),) if seen.linked else (),
        status=ERROR if error else UNSET,
        message=seen.error_code if error else "",
    )


def _name(seen: Seen) -> str:
    """Never a path that is no route, nor a method that nobody knows."""
    method = seen.method if seen.method in semconv.METHODS else "HTTP"
    return f"{method} {seen.path}" if seen.op else method


@lru_cache(1024)
def _shared(common: tuple[Any, ...]) -> Shared:
    kind = Kind(*common)
    said = _http(kind)
    if kind.model:
        said[semconv.REQUEST_MODEL] = kind.model
        said[semconv.REQUEST_STREAM] = kind.stream
    said[semconv.ATTEMPT_COUNT] = kind.attempts
    words = {
        semconv.OUTCOME: kind.outcome,
        semconv.ERROR_TYPE: kind.error,
        semconv.ERROR_CODE: kind.error_code,
        semconv.REFUSAL_REASON: kind.refusal,
        semconv.STREAM_ABORTED_BY: kind.breaker,
        semconv.ORGANISATION: kind.organisation,
        semconv.TEAM: kind.team,
        semconv.KEY: kind.key,
    }
    said.update({name: value for name, value in words.items() if value})
    return Shared(said)


def _http(kind: Kind) -> Said:
    said: Said = {
        semconv.HTTP_REQUEST_METHOD: kind.method,
        semconv.URL_PATH: kind.path,
        semconv.URL_SCHEME: kind.scheme,
        semconv.NETWORK_PROTOCOL_VERSION: kind.http_version,
    }
    if kind.method not in semconv.METHODS:
        said |= {semconv.HTTP_REQUEST_METHOD: semconv.OTHER, semconv.HTTP_REQUEST_METHOD_ORIGINAL: kind.method[:METHOD]}
    if kind.op:
        said[semconv.HTTP_ROUTE] = kind.path
        said[semconv.API] = semconv.APIS.get(kind.op, kind.op)
    if kind.status:
        said[semconv.HTTP_RESPONSE_STATUS_CODE] = kind.status
    if kind.host:
        said[semconv.SERVER_ADDRESS], said[semconv.SERVER_PORT] = place_of(kind.host, kind.scheme)
    if kind.client:
        said[semconv.CLIENT_ADDRESS] = kind.client
    if kind.user_agent:
        said[semconv.USER_AGENT_ORIGINAL] = kind.user_agent
    return said


@lru_cache(256)
def place_of(host: str, scheme: str) -> tuple[str, int]:
    """The address and port of a Host header."""
    default = semconv.PORTS.get(scheme, 80)
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]") or not (port.isascii() and port.isdigit() and len(port) <= 5):
        return host.strip("[]")[:255], default
    return name.strip("[]")[:255], int(port)


@lru_cache(1024)
def coarse(address: str) -> str:
    """A client's address without the part that tells people apart: of IPv4 the last byte, of IPv6 all but the first 48 bits. Empty for
    what is no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    kept = 24 if parsed.version == 4 else 48
    return str(ipaddress.ip_network((parsed.packed, kept), strict=False).network_address)
