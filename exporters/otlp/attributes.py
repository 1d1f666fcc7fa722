"""Attributes → OTLP's KeyValue and AnyValue, made safe on the way: one value that protobuf or a backend can't bear must not cost a batch.

A lone surrogate and NUL become U+FFFD, long text is cut, an integer beyond int64 becomes text, and NaN and infinities are left out. What
repeats (names of models, keys, hosts, statuses) is encoded once and kept, in a memo that is bounded.

https://opentelemetry.io/docs/specs/otel/common/attribute-type-mapping/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..record import Begun, Shared, Value
from ..utf8 import text
from . import protobuf
from .protobuf import counted, double, varint

KEPT: Final = 4096  # encoded pairs
SHORT: Final = 32  # characters; longer text is mostly an id that never comes again
SMALL: Final = 10_000
NAME: Final = 1024  # characters of a key or of a span's name
WIDEST: Final = 1024  # bits of an integer that is still written out in decimal
INT64: Final = 2**63


class Pairs:
    """Encodes attributes, their text at most `length` characters long (None: no limit). For one thread at a time.

    The memos are one for each class of values, since True, 1 and 1.0 are one key of a dict.
    """

    def __init__(self, length: int | None = None, kept: int = KEPT) -> None:
        self.length = length
        self._kept = kept
        self._keys: dict[str, bytes] = {}
        self._texts: dict[tuple[str, str], bytes] = {}
        self._words: dict[tuple[str, str], bytes] = {}
        self._integers: dict[tuple[str, int], bytes] = {}
        self._booleans: dict[tuple[str, bool], bytes] = {}
        self._floats: dict[tuple[str, float], bytes] = {}
        self._shared: dict[tuple[Shared, bytes], tuple[bytes, int]] = {}

    def encode(self, attributes: Mapping[str, Any], field: bytes, count: int | None = None) -> tuple[bytes, int]:
        """At most `count` of them as a repeated field with that tag, and how many had to be left out."""
        if attributes.__class__ is Begun:
            shared, own = attributes.shared, attributes.own
            if count is None or len(shared.said) + len(own) <= count:
                first, dropped = self._shared.get((shared, field)) or self._first(shared, field)
                rest, number = self._encode(own.items(), field)
                return first + rest, dropped + len(own) - number
        items: Any = attributes.items()
        if count is not None and len(attributes) > count:
            items = list(items)[len(attributes) - count :]  # the newest, as the SDK does
        encoded, number = self._encode(items, field)
        return encoded, len(attributes) - number

    def _first(self, shared: Shared, field: bytes) -> tuple[bytes, int]:
        """What many spans begin with, and how many of it had to be left out."""
        encoded, number = self._encode(shared.said.items(), field)
        found = encoded, len(shared.said) - number
        keep(self._shared, (shared, field), found, self._kept)
        return found

    def _encode(self, items: Iterable[tuple[str, Any]], field: bytes) -> tuple[bytes, int]:
        """As a repeated field, and how many of them are in it."""
        texts, integers = self._texts, self._integers
        encoded = []
        for key, value in items:
            kind = value.__class__
            if kind is str:
                pair = texts.get((key, value)) or self._text(key, value)
            elif kind is int:
                pair = integers.get((key, value)) or self._integer(key, value)
            else:
                pair = self._other(key, value)
            if pair:
                encoded.append(pair)
        return protobuf.repeated(field, encoded), len(encoded)

    def _pair(self, key: str, value: bytes) -> bytes:
        """A KeyValue with its length; empty for a key that is."""
        start = self._keys.get(key)
        if start is None:
            start = b"\x0a" + counted(text(key, NAME)) + b"\x12" if key else b""
            keep(self._keys, key, start, self._kept)
        return counted(start + counted(value)) if start else b""

    def _text(self, key: str, value: str) -> bytes:
        pair = self._pair(key, b"\x0a" + counted(text(value, self.length)))
        if len(value) <= SHORT:
            keep(self._texts, (key, value), pair, self._kept)
        return pair

    def _integer(self, key: str, value: int) -> bytes:
        pair = self._pair(key, integer(value))
        if -1 <= value < SMALL:
            keep(self._integers, (key, value), pair, self._kept)
        return pair

    def _other(self, key: str, value: Value) -> bytes:
        if value.__class__ is float:
            return (value and self._floats.get((key, value))) or self._float(key, value)  # 0.0 and -0.0 are one key of a dict
        if value is True or value is False:
            return self._booleans.get((key, value)) or self._boolean(key, value)
        if value.__class__ is list and len(value) == 1 and value[0].__class__ is str:
            return self._words.get((key, value[0])) or self._word(key, value)
        encoded = self.any_value(value)
        return b"" if encoded is None else self._pair(key, encoded)

    def _boolean(self, key: str, value: bool) -> bytes:
        pair = self._pair(key, b"\x10\x01" if value else b"\x10\x00")
        keep(self._booleans, (key, value), pair, self._kept)
        return pair

    def _float(self, key: str, value: float) -> bytes:
        """Parameters such as a temperature come again, times don't: those with few digits are kept."""
        if not math.isfinite(value):
            return b""
        pair = self._pair(key, b"\x21" + double(value))
        if value * 100 % 1 == 0:
            keep(self._floats, (key, value), pair, self._kept)
        return pair

    def _word(self, key: str, value: list[str]) -> bytes:
        """A list of one text, such as a finish_reason."""
        pair = self._pair(key, self.any_value(value) or b"")
        if len(value[0]) <= SHORT:
            keep(self._words, (key, value[0]), pair, self._kept)
        return pair

    def any_value(self, value: Any) -> bytes | None:
        """An AnyValue without its length; None for what has no place in one."""
        if isinstance(value, str):
            return b"\x0a" + counted(text(value, self.length))
        if isinstance(value, bool):
            return b"\x10\x01" if value else b"\x10\x00"
        if isinstance(value, int):
            return integer(value)
        if isinstance(value, float):
            return b"\x21" + double(value) if math.isfinite(value) else None
        if isinstance(value, bytes):
            return b"\x3a" + counted(value[: self.length])
        if isinstance(value, Sequence):
            inside = [self.any_value(each) for each in value]
            return b"\x2a" + counted(protobuf.repeated(b"\x0a", [counted(each) for each in inside if each is not None]))
        return None


def integer(value: int) -> bytes:
    """The AnyValue of a whole number; one beyond int64 as text."""
    if -INT64 <= value < INT64:
        return b"\x18" + varint(value & protobuf.MAX_UINT64)
    written = str(value) if value.bit_length() <= WIDEST else f"an integer of {value.bit_length()} bits"
    return b"\x0a" + counted(written.encode())


def keep(memo: dict[Any, Any], key: Any, encoded: Any, limit: int = KEPT) -> None:
    """A full memo is emptied, not frozen: what is common comes back at once, and what strangers filled it with does not stay."""
    if len(memo) >= limit:
        memo.clear()
    memo[key] = encoded
