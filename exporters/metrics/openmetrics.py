"""Metrics as Prometheus reads them: the text of `/metrics`, OpenMetrics 1.0 with exemplars for those who ask for it, else the text format
0.0.4, which has none.

Names are those that OpenTelemetry's own exporter gives: dots become `_`, a unit that is no annotation in braces becomes a suffix, and a
counter ends in `_total`.

https://prometheus.io/docs/specs/om/open_metrics_spec/ and
https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import msgspec

from ..pace import Pace
from ..record import Scalar
from ..semconv import Instrument
from ..utf8 import text as clean
from .metrics import Exemplar, Labels, Metric, Point, Spread

OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"

PIECE: Final = 64 << 10  # characters

UNITS: Final[Mapping[str, str]] = {"s": "seconds", "ms": "milliseconds", "By": "bytes", "1": "", "%": "percent"}
TYPES: Final[Mapping[str, str]] = {"counter": "counter", "updown": "gauge", "gauge": "gauge", "histogram": "histogram"}

_NO_NAME = re.compile(r"[^a-zA-Z0-9]+")
_ANNOTATION = re.compile(r"\{.*\}")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


class Page(msgspec.Struct, frozen=True):
    """What a scrape is answered. `encoding` is the body's, empty: none."""

    content_type: str
    body: bytes
    encoding: str = ""


async def render(collect: Callable[[], Sequence[Metric]], accept: str = "", accept_encoding: str = "") -> Page:
    """The page for somebody who sent these headers, made in a thread: twenty models are some milliseconds of work."""
    return await asyncio.to_thread(page, collect, accept, accept_encoding)


def page(collect: Callable[[], Sequence[Metric]], accept: str = "", accept_encoding: str = "") -> Page:
    """The same at once."""
    openmetrics = wants_openmetrics(accept)
    kind, pieces = OPENMETRICS if openmetrics else PLAIN, pieces_of(collect(), openmetrics=openmetrics)
    if not _accepted(accept_encoding).get("gzip", 0) > 0:
        return Page(kind, b"".join(pieces))
    short = zlib.compressobj(1, wbits=31)
    return Page(kind, b"".join([*map(short.compress, pieces), short.flush()]), "gzip")


def text_of(metrics: Sequence[Metric], *, openmetrics: bool) -> bytes:
    """The whole text."""
    return b"".join(pieces_of(metrics, openmetrics=openmetrics))


def pieces_of(metrics: Sequence[Metric], *, openmetrics: bool) -> Iterator[bytes]:
    """The text, so much at a time that no step of it is long."""
    pace, piece, size = Pace(), list[str](), 0
    for metric in metrics:
        family = _family(metric.spec)
        piece.append(_head(metric.spec, family, openmetrics=openmetrics))
        for point in metric.points:
            if isinstance(point, Spread):
                piece.append(_histogram(family, point, metric.spec, openmetrics=openmetrics))
            else:
                piece.append(_number(family, point, metric.spec, openmetrics=openmetrics))
            size += len(piece[-1])
            if size > PIECE:
                yield _encoded(piece)
                piece, size = [], 0
            pace.rest()
    yield _encoded([*piece, "# EOF"] if openmetrics else piece)


def _encoded(lines: list[str]) -> bytes:
    return clean("\n".join([*lines, ""]))


def wants_openmetrics(accept: str) -> bool:
    """Whether the header names it, and likes it as well as plain text."""
    wanted = _accepted(accept)
    openmetrics = wanted.get("application/openmetrics-text", 0.0)
    return openmetrics > 0 and openmetrics >= wanted.get("text/plain", 0.0)


def _accepted(header: str) -> dict[str, float]:
    """The names of a header such as Accept, with how much each is liked."""
    found: dict[str, float] = {}
    for each in header.lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        liked = next((_quality(part[2:]) for part in parameters if part.startswith("q=")), 1.0)
        found[name] = max(liked, found.get(name, 0.0))
    return found


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


# ---- names


def name_of(spec: Instrument) -> str:
    """What its samples are called; those of a histogram have one more suffix."""
    family = _family(spec)
    return f"{family}_total" if spec.kind == "counter" else family


@lru_cache(256)
def _family(spec: Instrument) -> str:
    name = _NO_NAME.sub("_", spec.name)
    unit = _unit(spec)
    return f"{name}_{unit}" if unit and not name.endswith(f"_{unit}") else name


def _unit(spec: Instrument) -> str:
    unit = _ANNOTATION.sub("", spec.unit)
    return UNITS.get(unit, _NO_NAME.sub("_", unit))


def _head(spec: Instrument, family: str, *, openmetrics: bool) -> str:
    name = family if openmetrics else name_of(spec)
    unit = [f"# UNIT {name} {_unit(spec)}"] if openmetrics and _unit(spec) else []
    about = spec.about.translate(_ESCAPES) if openmetrics else spec.about.replace("\\", "\\\\").replace("\n", "\\n")
    return "\n".join([f"# TYPE {name} {TYPES[spec.kind]}", *unit, f"# HELP {name} {about}"])


# ---- samples


def _number(family: str, point: Point, spec: Instrument, *, openmetrics: bool) -> str:
    name = f"{family}_total" if spec.kind == "counter" else family
    labels = _labels(point.labels)
    exemplar = _exemplar(point.exemplar) if openmetrics and spec.kind == "counter" and point.exemplar else ""
    return f"{name}{{{labels}}} {_written(point.value)}{exemplar}" if labels else f"{name} {_written(point.value)}{exemplar}"


def _histogram(family: str, spread: Spread, spec: Instrument, *, openmetrics: bool) -> str:
    labels = _labels(spread.labels)
    comma = "," if labels else ""
    marked = {bisect_left(spec.buckets, each.value): _exemplar(each) for each in spread.exemplars} if openmetrics else {}
    counts = list(accumulate(spread.counts))
    lines = [
        f'{family}_bucket{{{labels}{comma}le="{bound}"}} {count}{marked.get(place, "")}'
        for place, (bound, count) in enumerate(zip(_bounds(spec.buckets), counts, strict=True))
    ]
    braced = f"{{{labels}}}" if labels else ""
    lines += [f"{family}_sum{braced} {_written(spread.sum)}", f"{family}_count{braced} {counts[-1]}"]
    return "\n".join(lines)


def _exemplar(exemplar: Exemplar) -> str:
    ids = f'trace_id="{exemplar.trace_id:032x}",span_id="{exemplar.span_id:016x}"'
    return f" # {{{ids}}} {_written(exemplar.value)} {exemplar.at // 10**9}.{exemplar.at // 10**6 % 1000:03}"


@lru_cache(64)
def _bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(_written, map(float, buckets)), "+Inf")


def _labels(labels: Labels) -> str:
    return ",".join([_label(name, value) for name, value in labels])


@lru_cache(4096, typed=True)
def _label(name: str, value: Scalar) -> str:
    written = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return f'{_NO_NAME.sub("_", name)}="{written.translate(_ESCAPES)}"'


def _written(value: float) -> str:
    return repr(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
