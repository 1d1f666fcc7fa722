"""Whether a span reaches the collector: one is sent, by the way that the gateway's own take, and the collector must take it."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

from ...exporters.otlp.config import PREFIX, OtlpConfig, Target, read
from ...exporters.otlp.encoding import detected_resource
from ...exporters.otlp.export import probe_request
from ...exporters.otlp.http import HttpSender, Result
from ...exporters.otlp.outlet import sender_of
from ...exporters.settings import Telemetry
from .doctor_clock import Reading, reading
from .doctor_findings import Finding, off, ok, problem, warning

NAME: Final = "traces"
ADDRESS: Final = f"{PREFIX}ENDPOINT or telemetry.otlp.endpoint"
MISTYPED: Final = "is that a collector? OTLP over HTTP is mostly at port 4318, over gRPC (telemetry.otlp.protocol: grpc) at 4317"
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # which gRPC obeys, in this case alone


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of it."""

    findings: list[Finding]
    readings: list[Reading] = field(default_factory=list)


def traces(telemetry: Telemetry, environ: Mapping[str, str], patience: float) -> Probed:
    """Send a span, if spans go anywhere. Blocks for `patience` seconds at most."""
    try:
        otlp = read(telemetry, environ)
    except ValueError as error:
        return Probed([problem(NAME, str(error))])
    doubtful = [warning("OTEL_*", told) for told in otlp.told]
    target = otlp.traces.target
    if target is None:
        return Probed([*doubtful, _nowhere(otlp)])
    sent = sent_to(target, environ, patience)
    return Probed([*doubtful, *sent.findings, *_sampling(otlp)], sent.readings)


def _nowhere(otlp: OtlpConfig) -> Finding:
    if otlp.traces.console:
        return ok(NAME, "go to the console")
    return off(NAME, "off", f"set {ADDRESS} to your collector, such as http://127.0.0.1:4318")


def _sampling(otlp: OtlpConfig) -> Iterator[Finding]:
    if otlp.sampling.bound == 0:
        yield warning("sampling", "no trace that begins here is sent", "raise telemetry.sampling.ratio or OTEL_TRACES_SAMPLER_ARG")


def sent_to(target: Target, environ: Mapping[str, str], patience: float) -> Probed:
    """One span to a collector."""
    endpoint = target.endpoint.partition("?")[0]  # vendors put keys behind it
    told = _unreadable(target) or _unreachable(target, endpoint, environ, patience)
    if told is not None:
        return Probed([told])
    until = min(target.timeout, patience)
    try:
        sender: Any = sender_of(replace(target, timeout=until), "traces")
    except (ValueError, OSError) as error:
        return Probed([problem(NAME, f"{endpoint} can't be used ({type(error).__name__})", ADDRESS)])
    before = time.time()
    try:
        result: Result = sender.send(probe_request(detected_resource()))
    finally:
        sender.close()
    heard = sender.heard if isinstance(sender, HttpSender) else {}
    status = "" if isinstance(sender, HttpSender) else sender.status
    read = reading(urlsplit(endpoint).hostname or endpoint, heard["date"], before, time.time()) if "date" in heard else None
    return Probed([_told(endpoint, result, heard, status, until)], [read] if read else [])


def _told(endpoint: str, result: Result, heard: Mapping[str, str], status: str, seconds: float) -> Finding:
    kind = heard.get("content-type", "").partition(";")[0].strip().lower()
    if not result.reason and result.rejected:
        return problem(NAME, f"{endpoint} answered, and threw the test span away", "its own log says why")
    if not result.reason and kind not in ("", "application/x-protobuf", "application/json"):
        return problem(NAME, f"{endpoint} took the test span, but answered with {kind[:40]}", MISTYPED)
    if not result.reason:
        return ok(NAME, f"a test span reached {endpoint}")
    if result.reason == "timeout" or status == "DEADLINE_EXCEEDED":
        return problem(NAME, f"{endpoint} gives no answer within {seconds:g} s", MISTYPED)
    if result.words in ("status 401", "status 403") or status in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        told = f"{endpoint} wants to know who sends ({status or result.words})"
        return problem(NAME, told, f"set telemetry.otlp.headers or {PREFIX}HEADERS")
    if result.words == "status 404" or status == "UNIMPLEMENTED":
        return problem(NAME, f"{endpoint} knows nothing of traces ({status or result.words})", MISTYPED)
    if "Certificate" in result.words or "SSL" in result.words:
        return problem(
            NAME, f"no TLS with {endpoint} ({result.words})", f"{PREFIX}CERTIFICATE names the file of its authority; or it is http://"
        )
    if result.reason == "unavailable":
        return problem(NAME, f"{endpoint} doesn't take spans just now ({status or result.words})", f"see the collector's log; {MISTYPED}")
    return problem(NAME, f"{endpoint} didn't take the test span ({result.words})", MISTYPED)


def _unreadable(target: Target) -> Finding | None:
    """A file of the target's TLS that can't be used."""
    named = {"CERTIFICATE": target.certificate, "CLIENT_CERTIFICATE": target.client_certificate, "CLIENT_KEY": target.client_key}
    for name, path in named.items():
        if not path:
            continue
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError as error:
            return problem(NAME, f"{PREFIX}{name} names a file that can't be read ({error.strerror})", "correct it")
    try:
        if target.certificate:
            ssl.create_default_context(cafile=target.certificate)
        if target.client_certificate:
            ssl.create_default_context().load_cert_chain(
                target.client_certificate, target.client_key or None, password=""
            )  # nobody is asked for one
    except (ssl.SSLError, OSError):
        return problem(NAME, f"a file that {PREFIX}CERTIFICATE or CLIENT_CERTIFICATE names is no PEM file that fits", "correct it")
    return None


def _unreachable(target: Target, endpoint: str, environ: Mapping[str, str], patience: float) -> Finding | None:
    """Nobody listens: said at once, and more exactly than by sending, which would try again and again."""
    if target.protocol == "grpc" and any(environ.get(name) or environ.get(name.upper()) for name in _PROXIES):
        return None
    parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
    try:
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        port = None
    if not parts.hostname or not port:
        return None
    try:
        socket.create_connection((parts.hostname, port), timeout=min(patience, 5.0)).close()
    except socket.gaierror:
        return problem(NAME, f"{endpoint} can't be reached: its host name does not resolve", f"check {ADDRESS}")
    except TimeoutError:
        return problem(NAME, f"{endpoint} can't be reached: no connection in time", f"check {ADDRESS}, and the firewall")
    except ConnectionRefusedError:
        return problem(NAME, f"{endpoint} can't be reached: connection refused", f"start the collector, or correct {ADDRESS}")
    except OSError as error:
        return problem(NAME, f"{endpoint} can't be reached: {error.strerror or error}", f"check {ADDRESS}")
    return None
