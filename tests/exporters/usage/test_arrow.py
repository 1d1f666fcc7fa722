"""Columns handed over to DuckDB come out as they went in."""

from __future__ import annotations

import datetime as dt
import gc
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.exporters.usage.arrow import VARIES, Batch, Column, Kind

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    "l": INT64,
    "g": st.floats(allow_nan=False),
    "u": st.text(),
    "b": st.booleans(),
    "tsu:": st.integers(-(10**15), 10**16),
    "d:18,9,64": st.integers(-(10**18) + 1, 10**18 - 1),
    "d:18,6,64": st.integers(-(10**18) + 1, 10**18 - 1),
}


def batch_of(*columns: tuple[str, Kind, list[Any]], at_once: int = 10_000, folds: bool = False) -> Batch:
    batch = Batch([Column(name, kind, folds=folds and number > 0) for number, (name, kind, _) in enumerate(columns)])
    rows = [*zip(*[values for _, _, values in columns], strict=True)]
    for start in range(0, len(rows), at_once):
        batch.extend(rows[start : start + at_once])
    return batch


def read(*columns: tuple[str, Kind, list[Any]], at_once: int = 10_000) -> list[tuple[Any, ...]]:
    connection = duckdb.connect(":memory:")
    batch = batch_of(*columns, at_once=at_once)
    connection.register("batch", batch)
    try:
        connection.execute("CREATE TABLE kept AS SELECT * FROM batch")
        connection.unregister("batch")
        del batch
        gc.collect()
        return connection.execute("SELECT * FROM kept").fetchall()
    finally:
        connection.close()


def as_given(kind: Kind, value: Any) -> Any:
    """Decimals as the integers that they were."""
    return int(value.scaleb(int(kind.split(",")[1]))) if value is not None and kind.startswith("d:") else value


def as_read(kind: Kind, value: Any) -> Any:
    if value is None or kind in {"l", "g", "u", "b"}:
        return value
    if kind == "tsu:":
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)  # noqa: DTZ001 - as DuckDB gives it
    return value


@given(st.data())
def test_what_goes_in_comes_out(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    columns: list[tuple[str, Kind, list[Any]]] = []
    for number, (kind, values) in enumerate(VALUES.items()):
        drawn = data.draw(st.lists(st.none() | values, min_size=length, max_size=length))
        columns.append((f"c{number}", kind, drawn))
    rows = read(*columns, at_once=data.draw(st.integers(1, 41)))
    assert len(rows) == length
    for (_, kind, values), column in zip(columns, zip(*rows, strict=True), strict=True):
        assert [as_given(kind, value) for value in column] == [as_read(kind, value) for value in values]


def test_no_rows() -> None:
    assert read(("a", "l", []), ("b", "u", []), ("c", "b", [])) == []


@pytest.mark.parametrize("length", [7, 8, 9, 2047, 2048, 2049, 5000])
def test_more_rows_than_a_vector_holds(length: int) -> None:
    rows = read(
        ("n", "l", [n if n % 3 else None for n in range(length)]),
        ("s", "u", [f"é{n}" if n % 5 else None for n in range(length)]),
        ("b", "b", [n % 2 == 0 if n % 7 else None for n in range(length)]),
    )
    assert rows == [(n if n % 3 else None, f"é{n}" if n % 5 else None, n % 2 == 0 if n % 7 else None) for n in range(length)]


def test_a_batch_can_be_read_twice() -> None:
    connection = duckdb.connect(":memory:")
    batch = batch_of(("a", "l", [1, 2]))
    connection.register("batch", batch)
    assert sorted(connection.execute("SELECT * FROM batch a, batch b").fetchall()) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    connection.close()
    assert len(batch) == 2


def test_what_fits_no_column_is_refused() -> None:
    with pytest.raises(OverflowError):
        batch_of(("a", "l", [2**63]))
    with pytest.raises(UnicodeEncodeError):
        batch_of(("a", "u", ["\ud800"]))
    with pytest.raises(TypeError):
        batch_of(("a", "l", ["1"]))


@given(st.data())
def test_what_is_the_same_in_every_row_is_kept_once(data: st.DataObject) -> None:
    """However many pieces the rows come in, and whatever follows; a column that is left out of what DuckDB reads says so."""
    for kind, values in VALUES.items():
        drawn = data.draw(st.lists(st.sampled_from([None, *data.draw(st.lists(values, min_size=1, max_size=2))]), min_size=1, max_size=12))
        columns: list[tuple[str, Kind, list[Any]]] = [("n", "l", [*range(len(drawn))]), ("c", kind, drawn)]
        batch = batch_of(*columns, at_once=data.draw(st.integers(1, 13)), folds=True)
        same = batch.columns[1].same
        if same is not VARIES:
            assert drawn == [same] * len(drawn)
        else:
            assert len(set(drawn)) > 1 or kind in {"tsu:", "d:18,9,64", "d:18,6,64"}
        connection = duckdb.connect(":memory:")
        connection.register("batch", batch)
        if same is VARIES:
            found = [value for (value,) in connection.execute("SELECT c FROM batch ORDER BY n").fetchall()]
            assert [as_given(kind, value) for value in found] == [as_read(kind, value) for value in drawn]
        connection.close()
