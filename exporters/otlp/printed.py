"""Spans, log events and metrics as JSON lines, for OTEL_TRACES_EXPORTER=console and the like: a look at what would be sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

import msgspec

from ..utf8 import text

_encode = msgspec.json.Encoder(decimal_format="number").encode
_DIGITS: Final[Mapping[str, int]] = {"trace_id": 32, "span_id": 16, "parent_id": 16}


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
    return _encode({name: _field(name, value) for name, value in fields.items()}).decode()


def _field(name: str, value: Any) -> Any:
    # By the fields of our own records alone: callers name attributes too, and `spangate.tag.user_id` is a text.
    return f"{value:0{_DIGITS[name]}x}" if name in _DIGITS else _written(value)


def _written(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _field(name, getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {text(key).decode(): _written(inside) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_written(inside) for inside in value]
    return text(value).decode() if isinstance(value, str) else value
