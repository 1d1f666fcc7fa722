"""Columns of Python values as an Arrow record batch, which DuckDB reads where it lies: a third of what handing over lists costs.

The Arrow C data interface, by ctypes. DuckDB takes the two structures as PyCapsules and copies what it keeps while a statement runs;
the buffers belong to the `Batch`, which must be kept until then. So the release callbacks have nothing to free.
https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Literal

# int64, float64, UTF-8, boolean, microseconds since the epoch, decimals as their int64 of billionths or millionths
Kind = Literal["l", "g", "u", "b", "tsu:", "d:18,9,64", "d:18,6,64"]

_NULLABLE = 2


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))

_Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(_Schema))), ("dictionary", ctypes.POINTER(_Schema)),
    ("release", _ReleaseSchema), ("private_data", ctypes.c_void_p),
]  # fmt: skip
_Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))), ("dictionary", ctypes.POINTER(_Array)),
    ("release", _ReleaseArray), ("private_data", ctypes.c_void_p),
]  # fmt: skip

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _let_schema_go(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


def _let_array_go(batch: Any) -> None:
    batch.contents.release = _ReleaseArray()


_release_schema = _ReleaseSchema(_let_schema_go)
_release_array = _ReleaseArray(_let_array_go)


class Batch:
    """Columns of equal length under their names. Values may be None. It must outlive the statement that reads it."""

    def __init__(self, columns: Iterable[tuple[str, Kind, Sequence[Any]]] = ()) -> None:
        self._length = 0
        self._columns: list[tuple[bytes, bytes, int, list[Any]]] = []
        self._kept: list[Any] = []
        for column in columns:
            self.add(*column)

    def add(self, name: str, kind: Kind, values: Sequence[Any]) -> None:
        """One more column. Whoever has many gives other threads their turn in between."""
        self._length = len(values)
        self._columns.append((name.encode(), kind.encode(), *_buffers(kind, values)))

    def __len__(self) -> int:
        return self._length

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Fresh structures over the same buffers, for whoever reads next."""
        count = len(self._columns)
        schemas = [_Schema(kind, name, None, _NULLABLE, 0, None, None, _release_schema, None) for name, kind, _, _ in self._columns]
        arrays = [_array(self._length, nulls, buffers) for _, _, nulls, buffers in self._columns]
        schema_children = (ctypes.POINTER(_Schema) * count)(*map(ctypes.pointer, schemas))
        array_children = (ctypes.POINTER(_Array) * count)(*map(ctypes.pointer, arrays))
        whole = _array(self._length, 0, [None])
        whole.n_children, whole.children = count, array_children
        schema = _Schema(b"+s", b"", None, 0, count, schema_children, None, _release_schema, None)
        self._kept += [schemas, arrays, schema_children, array_children, whole, schema]
        return (
            _capsule(ctypes.addressof(schema), b"arrow_schema", None),
            _capsule(ctypes.addressof(whole), b"arrow_array", None),
        )


def _array(length: int, nulls: int, buffers: Sequence[Any]) -> Any:
    """`buffers` are array.array, bytes or None; the structure keeps its pointers, the Batch keeps what they point to."""
    pointers = (ctypes.c_void_p * len(buffers))(*map(_address, buffers))
    return _Array(
        length, nulls, 0, len(buffers), 0, ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)), None, None, _release_array, None
    )


def _address(buffer: Any) -> int | None:
    if buffer is None:
        return None
    if isinstance(buffer, array):
        return buffer.buffer_info()[0]
    return ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value


def _buffers(kind: Kind, values: Sequence[Any]) -> tuple[int, list[Any]]:
    """How many values are None, and the buffers: which are not, then the values themselves."""
    try:  # as most columns are: to look for None first costs as much as this
        return 0, [None, *_filled(kind, values)]
    except TypeError:
        nulls = values.count(None)
        if not nulls:
            raise
    valid = _bits([value is not None for value in values])
    nothing = "" if kind == "u" else 0
    return nulls, [valid, *_filled(kind, [nothing if value is None else value for value in values])]


def _filled(kind: Kind, values: Sequence[Any]) -> Sequence[Any]:
    """
    Raises:
        TypeError: one of them is None, or of another kind.
    """
    if kind == "u":
        return _text(values)
    if kind == "b":
        if None in values:
            raise TypeError
        return [_bits(values)]
    return [array("d" if kind == "g" else "q", values)]


def _text(values: Sequence[str]) -> tuple[Any, bytes]:
    joined = "".join(values)
    if joined.isascii():
        return array("i", [*accumulate(map(len, values), initial=0)]), joined.encode()
    encoded = [value.encode() for value in values]
    return array("i", accumulate(map(len, encoded), initial=0)), b"".join(encoded)


def _bits(values: Sequence[Any]) -> bytes:
    """One bit a value, the first in the lowest."""
    digits = "".join(["1" if value else "0" for value in reversed(values)])
    return int(digits or "0", 2).to_bytes((len(values) + 7) // 8 or 1, "little")
