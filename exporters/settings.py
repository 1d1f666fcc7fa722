"""The section `telemetry` of spangate.yaml. OTEL_* variables win over what it says: otlp/config.py puts the two together."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from ..call.amounts import Duration
from .semconv import GenaiNames

HEADER_PATTERN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$"

Protocol = Literal["http/protobuf", "grpc"]


class Section(BaseModel):
    """A mapping of the file: frozen, without unknown keys, and never quoting what it was given."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def address(value: str) -> str:
    """An address that OTLP can be sent to.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(value)
        plain = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        plain = False
    else:
        plain = plain and not parts.query and not parts.fragment and "@" not in parts.netloc
    if not plain or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be an address such as http://127.0.0.1:4318")
    return value.rstrip("/")


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text.isascii() or not text.isprintable() or text != text.strip():
        raise ValueError("must be a header's value: printable ASCII")
    return value


HeaderName = Annotated[str, StringConstraints(pattern=HEADER_PATTERN, to_lower=True)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]


class Otlp(Section):
    """Where traces, metrics and log events are sent to."""

    endpoint: Annotated[str, AfterValidator(address)] | None = None
    """The collector's address without the path of a signal, such as http://127.0.0.1:4318. Without it here or in
    OTEL_EXPORTER_OTLP_ENDPOINT nothing is sent."""
    headers: dict[HeaderName, HeaderValue] = {}
    """Headers that go with everything sent, such as an authorization."""
    protocol: Protocol = "http/protobuf"
    """How it is sent: `http/protobuf`, mostly to port 4318, or `grpc`, mostly to port 4317."""


class Slower(Section):
    """Calls that took long."""

    slower: Annotated[Duration, Field(gt=0)]
    """From how long on a call is worth keeping."""


class Sampling(Section):
    """Which calls' traces are sent. Rows, metrics and refusals in the log are of all calls."""

    ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of traces that begin here and are sent. A caller that has a trace decides itself."""
    keep: list[Literal["refused", "failed"] | Slower] = []
    """What is sent although the ratio leaves it out: `refused`, `failed`, or calls `{slower: 10s}`."""


class Telemetry(Section):
    """What is told to an OpenTelemetry collector, and how much. OTEL_* variables win."""

    otlp: Otlp = Otlp()
    """Where traces, metrics and log events are sent to."""
    sampling: Sampling = Sampling()
    """Which calls' traces are sent."""
    capture_content: Literal["none"] = "none"
    """How much of prompts and answers is told: nothing."""
    genai_metrics: GenaiNames = "both"
    """Which names the `gen_ai.client` metrics have: those that dashboards know (`legacy`), those of the conventions v0.1.0, or both."""
    http_spans: bool = False
    """Whether each request to a provider gets a span of its HTTP exchange, below its `chat` span."""
