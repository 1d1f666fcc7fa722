"""Spans, log events and metrics as JSON lines, for OTEL_TRACES_EXPORTER=console and the like: a look at what would be sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import msgspec

from .attributes import text

_encode = msgspec.json.Encoder(decimal_format="number").encode


class Printed:
    """Writes to `out`, stdout if none is given. What it can't write is lost."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def print(self, records: Iterable[msgspec.Struct]) -> None:
        lines = [line_of(record) for record in records]
        if not lines:
            return
        out = self._out or sys.stdout
        try:
            out.write("\n".join(lines) + "\n")
            out.flush()
        except (OSError, ValueError):  # closed, full or gone
            return


def line_of(record: msgspec.Struct) -> str:
    """One JSON object; ids in hexadecimal, as everybody writes them."""
    fields = {name: value for name in record.__struct_fields__ if (value := getattr(record, name)) not in (0, "", (), {})}
    return _encode(_written(fields)).decode()


def _written(value: Any, name: str = "") -> Any:
    if name.endswith("_id"):
        return f"{value:0{32 if name == 'trace_id' else 16}x}"
    if isinstance(value, msgspec.Struct):
        return _written({each: getattr(value, each) for each in value.__struct_fields__})
    if isinstance(value, Mapping):
        return {text(key).decode(): _written(inside, key) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_written(inside) for inside in value]
    return text(value).decode() if isinstance(value, str) else value
