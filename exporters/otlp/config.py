"""What is sent, where and how: OTEL_* variables first, then `telemetry` of spangate.yaml, then defaults.

Without an endpoint in either nothing is sent, and nothing of it costs anything; OTEL_TRACES_EXPORTER=otlp (LOGS, METRICS) asks for the
default endpoint. A variable of one signal wins over the one of all. OTEL_SDK_DISABLED switches everything off.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ and /configuration/sdk-environment-variables/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from ...call.seen import Seen
from .. import settings
from ..settings import Protocol, Telemetry
from . import sampling
from .encoding import LENGTH, Limits
from .sampling import Sampling
from .variables import Variables

Name = Literal["traces", "logs", "metrics"]
Compression = Literal["none", "gzip", "deflate"]
Temporality = Literal["cumulative", "delta", "lowmemory"]
Exemplars = Literal["trace_based", "always_on", "always_off"]

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
DEFAULTS: Final[Mapping[Protocol, str]] = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
EXPORTERS: Final = {"otlp": "otlp", "otlp_proto_http": "otlp", "otlp_proto_grpc": "otlp", "console": "console", "prometheus": "prometheus"}
PROPAGATORS: Final = {"tracecontext": "tracecontext", "baggage": "baggage"}

QUEUE: Final = 8192  # calls; a call is 2 KiB there
DELAY: Final = 1.0  # seconds
BATCH: Final = 256  # spans


@dataclass(frozen=True, slots=True)
class Target:
    """A collector, as one signal reaches it. `endpoint` is whole: of HTTP with the path."""

    endpoint: str
    protocol: Protocol = "http/protobuf"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    compression: Compression = "none"
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = field(default="", repr=False)
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """Where spans, log events or metrics go: to a collector, to the console, to both, or nowhere."""

    target: Target | None = None
    console: bool = False

    def __bool__(self) -> bool:
        return self.console or self.target is not None


@dataclass(frozen=True, slots=True)
class OtlpConfig:
    """All of it. `off`: OTEL_SDK_DISABLED says so. `told`: what is wrong with the variables, a line each. `queue` is in calls, `batch` in
    spans, `delay` in seconds; `interval`, in seconds too, is how often metrics go out."""

    traces: Signal = Signal()
    logs: Signal = Signal()
    metrics: Signal = Signal()
    sampling: Sampling = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)
    http_spans: bool = False
    queue: int = QUEUE
    delay: float = DELAY
    batch: int = BATCH
    interval: float = 60.0
    temporality: Temporality = "cumulative"
    exemplars: Exemplars = "trace_based"
    propagators: frozenset[str] = frozenset({"tracecontext", "baggage"})
    off: bool = False
    told: tuple[str, ...] = ()

    def exemplary(self, seen: Seen) -> bool:
        """Whether metrics may point to this call: those do whose spans are sent, unless a variable says otherwise."""
        if self.exemplars == "trace_based":
            return self.sampling.keeps(seen)
        return self.exemplars == "always_on"


def read(telemetry: Telemetry, environ: Mapping[str, str]) -> OtlpConfig:
    """The configuration that both make together.

    Raises:
        ValueError: a protocol, an address or headers that can't be used; it names the variable.
    """
    variables = Variables(environ)
    off = variables.true("OTEL_SDK_DISABLED")
    signals = {name: Signal() if off else _signal(name, telemetry, variables) for name in _names()}
    return OtlpConfig(
        traces=signals["traces"],
        logs=signals["logs"],
        metrics=signals["metrics"],
        sampling=_sampling(telemetry, variables),
        limits=_limits(variables),
        http_spans=telemetry.http_spans,
        queue=max(1, variables.count("OTEL_BSP_MAX_QUEUE_SIZE", default=2 * QUEUE) // 2),
        delay=variables.seconds("OTEL_BSP_SCHEDULE_DELAY", default=DELAY, unit=0.001),
        batch=min(BATCH, variables.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default=BATCH)),
        interval=variables.seconds("OTEL_METRIC_EXPORT_INTERVAL", default=60.0, unit=0.001),
        temporality=cast("Temporality", variables.word(f"{PREFIX}METRICS_TEMPORALITY_PREFERENCE", get_args(Temporality))),
        exemplars=cast("Exemplars", variables.word("OTEL_METRICS_EXEMPLAR_FILTER", get_args(Exemplars))),
        propagators=frozenset(variables.words("OTEL_PROPAGATORS", "tracecontext,baggage", PROPAGATORS)),
        off=off,
        told=tuple(dict.fromkeys(variables.told)),  # of all signals once
    )


def _names() -> tuple[Name, ...]:
    return "traces", "logs", "metrics"


def _signal(name: Name, telemetry: Telemetry, variables: Variables) -> Signal:
    own = f"{PREFIX}{name.upper()}_"
    known = variables.text(f"{own}ENDPOINT", f"{PREFIX}ENDPOINT") or telemetry.otlp.endpoint
    wanted = variables.words(f"OTEL_{name.upper()}_EXPORTER", "otlp" if known else "none", EXPORTERS)
    return Signal(_target(name, own, telemetry, variables) if "otlp" in wanted else None, "console" in wanted)


def _target(name: Name, own: str, telemetry: Telemetry, variables: Variables) -> Target:
    protocol = _protocol(own, telemetry, variables)
    return Target(
        endpoint=_endpoint(name, own, protocol, telemetry, variables),
        protocol=protocol,
        headers={key: value.get_secret_value() for key, value in telemetry.otlp.headers.items()}
        | dict(variables.headers(f"{own}HEADERS", f"{PREFIX}HEADERS")),
        timeout=variables.seconds(f"{own}TIMEOUT", f"{PREFIX}TIMEOUT", default=10.0),
        compression=cast("Compression", variables.word(f"{own}COMPRESSION", get_args(Compression), f"{PREFIX}COMPRESSION")),
        certificate=variables.text(f"{own}CERTIFICATE", f"{PREFIX}CERTIFICATE"),
        client_certificate=variables.text(f"{own}CLIENT_CERTIFICATE", f"{PREFIX}CLIENT_CERTIFICATE"),
        client_key=variables.text(f"{own}CLIENT_KEY", f"{PREFIX}CLIENT_KEY"),
        insecure=variables.true(f"{own}INSECURE", f"{PREFIX}INSECURE"),
    )


def _protocol(own: str, telemetry: Telemetry, variables: Variables) -> Protocol:
    said = variables.text(f"{own}PROTOCOL", f"{PREFIX}PROTOCOL").lower()
    if not said:
        return telemetry.otlp.protocol
    if said not in DEFAULTS:
        raise ValueError(f"{PREFIX}PROTOCOL: must be http/protobuf or grpc")
    return cast("Protocol", said)


def _endpoint(name: Name, own: str, protocol: Protocol, telemetry: Telemetry, variables: Variables) -> str:
    """A signal's own variable is the whole address; anything else is where the signals' paths begin."""
    whole = variables.text(f"{own}ENDPOINT")
    base = variables.text(f"{PREFIX}ENDPOINT") or telemetry.otlp.endpoint or DEFAULTS[protocol]
    if protocol == "grpc":
        return whole or base
    try:
        if whole:
            settings.address(whole.partition("?")[0])  # some vendors want a query
        return whole or f"{settings.address(base)}/v1/{name}"
    except ValueError as error:
        raise ValueError(f"{own if whole else PREFIX}ENDPOINT: {error}") from None


def _sampling(telemetry: Telemetry, variables: Variables) -> Sampling:
    name, argument = variables.text("OTEL_TRACES_SAMPLER"), variables.text("OTEL_TRACES_SAMPLER_ARG")
    if name:
        head, wrong = sampling.named(name, argument)
        variables.told += wrong
    else:
        ratio = telemetry.sampling.ratio
        head = Sampling(bound=sampling.bound_of(ratio))
        if argument:
            variables.told.append(f"OTEL_TRACES_SAMPLER_ARG means nothing without OTEL_TRACES_SAMPLER=traceidratio: {ratio:g} it is")
    keep = telemetry.sampling.keep
    slower = [each.slower for each in keep if isinstance(each, settings.Slower)]
    return Sampling(
        parents=head.parents,
        bound=head.bound,
        refused="refused" in keep,
        failed="failed" in keep,
        slower=min(slower, default=None),
    )


def _limits(variables: Variables) -> Limits:
    every = "OTEL_ATTRIBUTE_COUNT_LIMIT"
    long = "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    return Limits(
        attributes=variables.count("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", every, default=128, least=0),
        length=variables.count(*long, default=LENGTH, least=0),
        events=variables.count("OTEL_SPAN_EVENT_COUNT_LIMIT", default=128, least=0),
        event_attributes=variables.count("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", every, default=128, least=0),
        links=variables.count("OTEL_SPAN_LINK_COUNT_LIMIT", default=128, least=0),
        link_attributes=variables.count("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", every, default=128, least=0),
    )
