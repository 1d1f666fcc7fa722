"""exporters/otlp/protobuf.py: the wire format, against protobuf's own."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from spangate.exporters.otlp import protobuf
from spangate.exporters.otlp.protobuf import DELIMITED, FIXED64, VARINT, counted, fields, repeated, tag, varint


@given(
    st.integers(0, 2**64 - 1) | st.integers(0, 5000),
    st.floats(allow_nan=False),
    st.lists(st.integers(0, 2**64 - 1)),
    st.lists(st.floats(allow_nan=False)),
)
def test_a_message_is_protobufs(number: int, total: float, counts: list[int], bounds: list[float]) -> None:
    written = b"".join((
        tag(3, FIXED64) + protobuf.uint64(number),
        tag(5, FIXED64) + protobuf.double(total),
        tag(6, DELIMITED) + protobuf.packed_uint64(counts),
        tag(7, DELIMITED) + protobuf.packed_double(bounds),
        tag(10, VARINT) + varint(number & 0xFFFFFFFF),
    ))  # fmt: skip
    point = HistogramDataPoint.FromString(written)
    assert (point.time_unix_nano, point.sum, point.flags) == (number, total, number & 0xFFFFFFFF)
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == (counts, bounds)
    assert [key for key, _ in fields(written)] == [3, 5, 6, 7, 10]


@given(st.integers(0, 2**64 - 1), st.binary())
def test_what_is_written_is_read(number: int, data: bytes) -> None:
    written = tag(1, VARINT) + varint(number) + repeated(tag(20, DELIMITED), [counted(data), counted(b"x")])
    assert list(fields(written)) == [(1, number), (20, data), (20, b"x")]


@given(st.binary())
def test_anything_else_is_refused_or_read_to_its_end(data: bytes) -> None:
    with suppress(ValueError):
        assert all(number >= 0 for number, _ in fields(data))


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05abc", b"\x0b", b"\xff" * 12, b"\x09\x00"])
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"varint|cut|wire"):
        list(fields(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_numbers(number: int) -> None:
    [(_, read)] = fields(tag(1, VARINT) + protobuf.signed(number))
    assert isinstance(read, int)
    assert (read - 2**64 if read >= 2**63 else read) == number


def test_nothing_repeated_is_nothing() -> None:
    assert repeated(b"\x0a", []) == b""


def test_fixed_numbers_stay_within_their_width() -> None:
    assert protobuf.uint64(-1) == b"\0" * 8
    assert protobuf.uint64(2**64) == b"\xff" * 8
    assert protobuf.uint32(256) == b"\0\1\0\0"
    assert math.isnan(HistogramDataPoint.FromString(tag(5, FIXED64) + protobuf.double(math.nan)).sum)


@pytest.mark.parametrize("number", [0, 5, 2**63 - 1, -1, -(2**63)])
def test_an_int64_comes_back(number: int) -> None:
    [(_, read)] = fields(tag(1, VARINT) + protobuf.signed(number))
    assert isinstance(read, int)
    assert protobuf.int64(read) == number
