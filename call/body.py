"""A JSON request body: its bytes as they came, and its top-level fields, each still as bytes.

Nothing is decoded that nobody asked for. A changed field makes a new body whose other fields are the very bytes that came in,
so renaming the model of a 30 MiB prompt copies nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec


class Body:
    """`raw` is the body as it came, or None once a field was changed; `fields` maps each top-level name to its JSON bytes."""

    __slots__ = ("__weakref__", "fields", "raw")

    def __init__(self, fields: Mapping[str, msgspec.Raw | bytes], raw: bytes | None = None) -> None:
        self.fields = fields
        self.raw = raw

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Body:
        """A body from plain values, for callers in the same process."""
        return cls({name: _encode(part) for name, part in value.items()})

    def get(self, name: str, default: Any = None) -> Any:
        """The field's value, decoded now; `default` if it is absent."""
        raw = self.fields.get(name)
        return default if raw is None else _decode(raw)

    def size(self, name: str) -> int:
        """How many bytes of JSON the field is, 0 if it is absent."""
        raw = self.fields.get(name)
        return 0 if raw is None else len(memoryview(raw))

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def changed(self, **values: Any) -> Body:
        """The same with these fields set; None takes a field away."""
        if not values:
            return self
        fields = dict(self.fields)
        for name, value in values.items():
            if value is None:
                fields.pop(name, None)
            else:
                fields[name] = _encode(value)
        return Body(fields)

    def parsed(self) -> dict[str, Any]:
        """All of it, decoded."""
        return {name: _decode(raw) for name, raw in self.fields.items()}

    def pieces(self) -> list[bytes | memoryview]:
        """What to send, in order; joined it is the JSON document. Long fields are views of the original bytes."""
        if self.raw is not None:
            return [self.raw]
        pieces: list[bytes | memoryview] = []
        before = b"{"
        for name, raw in self.fields.items():
            pieces.append(before + _encode(name) + b":")
            pieces.append(memoryview(raw))
            before = b","
        pieces.append(b"}" if self.fields else b"{}")
        return _small_joined(pieces)


def _small_joined(pieces: list[bytes | memoryview], small: int = 65536) -> list[bytes | memoryview]:
    """Neighbours that are short become one: a write costs more than a copy of a few kilobytes."""
    joined: list[bytes | memoryview] = []
    run: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < small:
            run.append(piece)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined


def _decode(raw: msgspec.Raw | bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError:  # JSON all the same: a lone surrogate, a number beyond any
        return json.loads(bytes(raw), parse_int=_integer)


def _integer(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts
        return float(digits)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate goes out as an escape
        return json.dumps(value).encode("ascii")
