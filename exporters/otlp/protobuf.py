"""Protobuf's wire format, by hand: varints, tags, fields. The fields of OTLP stand in encoding.py, attributes.py and metrics.py,
which encode its messages.

A tag is `number << 3 | wire type`, written as bytes by `tag()`. A message, a string and packed numbers have the same form: a length,
then so many bytes.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
FIXED32: Final = 5

MAX_UINT64: Final = 2**64 - 1

BYTE: Final = tuple(bytes((number,)) for number in range(256))
_SMALL: Final = tuple(
    BYTE[number] if number < 128 else bytes((number & 127 | 128, number >> 7)) for number in range(4096)
)  # most lengths, statuses and token counts

_uint64 = Struct("<Q").pack
_double = Struct("<d").pack
_uint32 = Struct("<I").pack


def varint(number: int) -> bytes:
    """A number from 0 to 2**64 - 1."""
    if number < 4096:
        return _SMALL[number]
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def signed(number: int) -> bytes:
    """An int64, as two's complement."""
    return varint(number & MAX_UINT64)


def int64(number: int) -> int:
    """What a varint of `fields` stands for where the field is an int64."""
    number &= MAX_UINT64
    return number - 2**64 if number >= 2**63 else number


def tag(number: int, wire: int) -> bytes:
    """What a field begins with."""
    return varint(number << 3 | wire)


def counted(data: bytes) -> bytes:
    """`data` with its length before it: a string, bytes, or a message inside another."""
    return varint(len(data)) + data


def uint64(number: int) -> bytes:
    """A fixed64; what lies outside of it is brought to its edge."""
    return _uint64(number if 0 <= number <= MAX_UINT64 else max(0, min(number, MAX_UINT64)))


def uint32(number: int) -> bytes:
    """A fixed32."""
    return _uint32(number)


def double(number: float) -> bytes:
    return _double(number)


def repeated(field: bytes, messages: Sequence[bytes]) -> bytes:
    """Each of `messages`, which bear their lengths already, as one element of a repeated field with that tag."""
    return field + field.join(messages) if messages else b""


def packed_uint64(numbers: Iterable[int]) -> bytes:
    """Packed fixed64 with their length, such as the counts of a histogram."""
    return counted(b"".join(map(_uint64, numbers)))


def packed_double(numbers: Iterable[float]) -> bytes:
    """Packed doubles with their length, such as the bounds of a histogram."""
    return counted(b"".join(map(_double, numbers)))


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, by number: varints as numbers, everything else as bytes.

    Raises:
        ValueError: it is none.
    """
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire = key & 7
        if wire == VARINT:
            number, at = _read_varint(data, at)
            yield key >> 3, number
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(wire, 0)
        if wire == DELIMITED:
            length, at = _read_varint(data, at)
        if not length and wire != DELIMITED:
            raise ValueError(f"wire type {wire}")
        if at + length > len(data):
            raise ValueError("cut short")
        yield key >> 3, data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("a varint without an end")
