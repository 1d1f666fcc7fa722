"""Columns of Python values as an Arrow record batch, which DuckDB reads where it lies: a third of what handing over lists costs.

The Arrow C data interface, by ctypes. DuckDB takes the two structures as PyCapsules and copies what it keeps while a statement runs;
the buffers belong to the `Batch`, which must be kept until then. So the release callbacks have nothing to free.
https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal

# int64, float64, UTF-8, boolean, microseconds since the epoch, decimals as their int64 of billionths or millionths
Kind = Literal["l", "g", "u", "b", "tsu:", "d:18,9,64", "d:18,6,64"]

FOLDED: frozenset[Kind] = frozenset({"u", "l", "g", "b"})

VARIES = object()
"""What a column says whose rows don't all say the same."""

_NULLABLE = 2
_DIGITS = bytes.maketrans(b"\0\1", b"01")


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


class Column:
    """Values of one kind, in the order in which they come. A value that `folds` and is the same in every row is kept once, as `same`,
    until another one comes."""

    __slots__ = ("_flags", "_folds", "_numbers", "_texts", "_valid", "kind", "length", "name", "nulls", "same")

    def __init__(self, name: str, kind: Kind, *, folds: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.length = 0
        self.nulls = 0
        self.same: Any = VARIES
        self._folds = folds
        self._valid: bytearray | None = None
        self._flags = bytearray()
        self._numbers: array[Any] = array("i", [0]) if kind == "u" else array("d" if kind == "g" else "q")
        self._texts: list[bytes] = []

    def extend(self, values: Sequence[Any]) -> None:
        """
        Raises:
            OverflowError: a number that has no place.
            UnicodeError: a text with a lone surrogate.
            TypeError: a value of another kind.
        """
        if not self._folds or not self._fold(values):
            self._add(values)
        self.length += len(values)

    def _fold(self, values: Sequence[Any]) -> bool:
        """Whether all that came says the same; from now on it doesn't, if these say something else."""
        first = values[0]
        if (self.same == first if self.length else first is None or self.kind in FOLDED) and values.count(first) == len(values):
            self.same = first
            return True
        before, self.same = [self.same] * self.length, VARIES
        self._folds, self.length = False, 0
        if before:
            self._add(before)
            self.length = len(before)
        return False

    def _add(self, values: Sequence[Any]) -> None:
        try:  # as most are: to look for None first costs as much as this
            self._fill(values)
        except TypeError:
            nulls = values.count(None)
            if not nulls:
                raise
            nothing = "" if self.kind == "u" else 0
            self._fill([nothing if value is None else value for value in values])
            if self._valid is None:
                self._valid = bytearray(b"\1" * self.length)
            self._valid += bytes([value is not None for value in values])
            self.nulls += nulls
        else:
            if self._valid is not None:
                self._valid += b"\1" * len(values)

    def _fill(self, values: Sequence[Any]) -> None:
        """All of them or, where one is None or of another kind (TypeError), none."""
        if self.kind == "u":
            self._fill_text(values)
        elif self.kind == "b":
            self._flags += bytes(values)
        else:
            self._numbers.extend(array(self._numbers.typecode, values))

    def _fill_text(self, values: Sequence[str]) -> None:
        joined, start = "".join(values), self._numbers[-1]
        if joined.isascii():
            ends = array("i", [*accumulate(map(len, values), initial=start)])
            self._texts.append(joined.encode())
        else:
            encoded = [value.encode() for value in values]
            ends = array("i", [*accumulate(map(len, encoded), initial=start)])
            self._texts.append(b"".join(encoded))
        self._numbers.extend(ends[1:])

    def buffers(self) -> list[Any]:
        """Which are not None, then the values themselves, as Arrow lays them out."""
        valid = None if self._valid is None else _bits(self._valid)
        if self.kind == "u":
            return [valid, self._numbers, b"".join(self._texts)]
        return [valid, _bits(self._flags) if self.kind == "b" else self._numbers]


class Batch:
    """Columns of equal length. It must outlive the statement that reads it, and gets no rows while one does."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self._kept: list[Any] = []

    def extend(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """
        Raises:
            OverflowError, UnicodeError, TypeError: a value that its column can't take. The batch is of no use then.
        """
        for column, values in zip(self.columns, zip(*rows, strict=True), strict=True):
            column.extend(values)

    def __len__(self) -> int:
        return self.columns[0].length

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Fresh structures, for whoever reads next. Columns that say the same in every row are left out."""
        columns = [column for column in self.columns if column.same is VARIES]
        count = len(columns)
        names = [(column.kind.encode(), column.name.encode()) for column in columns]
        buffers = [column.buffers() for column in columns]
        schemas = [_Schema(kind, name, None, _NULLABLE, 0, None, None, _release_schema, None) for kind, name in names]
        arrays = [_array(len(self), column.nulls, each) for column, each in zip(columns, buffers, strict=True)]
        schema_children = (ctypes.POINTER(_Schema) * count)(*map(ctypes.pointer, schemas))
        array_children = (ctypes.POINTER(_Array) * count)(*map(ctypes.pointer, arrays))
        whole = _array(len(self), 0, [None])
        whole.n_children, whole.children = count, array_children
        schema = _Schema(b"+s", b"", None, 0, count, schema_children, None, _release_schema, None)
        self._kept += [names, buffers, schemas, arrays, schema_children, array_children, whole, schema]
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


def _bits(values: bytearray) -> bytes:
    """One bit a value, the first in the lowest."""
    digits = bytes(values[::-1]).translate(_DIGITS)
    return int(digits or b"0", 2).to_bytes((len(values) + 7) // 8 or 1, "little")
