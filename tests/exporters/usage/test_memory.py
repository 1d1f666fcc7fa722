"""Next to nothing when nobody is at work, and room for rows whatever people ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import TYPE_CHECKING

import duckdb
import pytest

from spangate.exporters.usage.rows import Rows
from spangate.exporters.usage.store import Mark, Store, _settings

from .test_store import rows_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MiB = 1 << 20
HOLD = "CREATE TEMP TABLE held AS SELECT range FROM range({})"  # 8 bytes each, which nothing can take away


def batches(number: int) -> Iterator[Rows]:
    """Of 2000 calls, each with an id and a user of its own."""
    random = Random(1)
    [call], [tried] = (one := rows_of(1)).calls, one.attempts
    for _ in range(number):
        rows = rows_of(0)
        ids = [f"req_{random.getrandbits(128):032x}" for _ in range(2000)]
        rows.calls = [(id, *call[1:8], f"u-{id}", *call[9:]) for id in ids]
        rows.attempts = [(id, *tried[1:]) for id in ids]
        yield rows


def fill(store: Store, number: int) -> None:
    for upto, rows in enumerate(batches(number)):
        store.move(rows, Mark("one", upto))


def kept(connection: DuckDBPyConnection) -> float:
    """What DuckDB has in memory, in MiB."""
    [(size,)] = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    return float(size) / MiB


def limit(connection: DuckDBPyConnection) -> str:
    [(text,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    return str(text)


def test_what_was_written_is_let_go(store: Store) -> None:
    most = 0.0
    for number, rows in enumerate(batches(25)):
        store.move(rows, Mark("one", number))
        most = max(most, kept(store.connection))
    assert most < 10
    assert store.connection.execute("SELECT count(*) FROM calls").fetchall() == [(25 * 2000,)]


def test_what_was_read_is_let_go(store: Store) -> None:
    fill(store, 10)
    with store.question() as cursor:
        cursor.execute("SELECT * FROM calls").fetchall()
        cursor.execute(HOLD.format(4_000_000))
        assert kept(cursor) > 30
    assert kept(store.connection) < 10


def test_whoever_is_still_at_work_keeps_what_he_has(store: Store) -> None:
    with store.question() as one:
        with store.question() as other:
            other.execute("SELECT 1")
        fill(store, 1)
        assert limit(one) == "256.0 MiB"
        one.execute(HOLD.format(16_000_000))
        assert kept(one) > 100
    assert kept(store.connection) < 10


def test_a_question_that_holds_all_memory_holds_up_no_row(store: Store) -> None:
    with store.question() as cursor:
        for number in count():
            try:
                cursor.execute(f"CREATE TEMP TABLE held{number} AS SELECT range FROM range(500_000)")
            except duckdb.OutOfMemoryException:
                break
        assert kept(cursor) > 245
        fill(store, 10)
        with pytest.raises(duckdb.OutOfMemoryException):
            cursor.execute(HOLD.format(5_000_000))
    assert store.connection.execute("SELECT count(*) FROM calls").fetchall() == [(20_000,)]
    assert kept(store.connection) < 10


def test_a_limit_that_somebody_else_sets_does_not_last(store: Store) -> None:
    with store.question() as cursor:
        cursor.execute("SET memory_limit = '100GB'")
        fill(store, 1)
        assert limit(cursor) == "256.0 MiB"
        cursor.execute("SET memory_limit = '100GB'")
    assert limit(store.connection) == "256.0 MiB"


def test_a_question_may_end_in_any_state(store: Store) -> None:
    for how in ("SELECT 1", "BEGIN TRANSACTION READ ONLY", "BEGIN; SELECT 'x'::INT"):
        with store.question() as cursor:
            try:
                cursor.execute(how)
            except duckdb.ConversionException:
                assert "'x'" in how
        assert (limit(store.connection), store.connection.execute("SELECT count(*) FROM calls").fetchall()) == ("256.0 MiB", [(0,)])
    with store.question() as cursor:
        store.close()
        cursor.close()
    store.open()
    fill(store, 1)
    assert limit(store.connection) == "256.0 MiB"


def test_rows_and_questions_at_once(store: Store) -> None:
    """Whoever comes while memory is being given back waits that long, and fails for nothing."""
    counts: list[int] = []

    def ask() -> None:
        for _ in range(60):
            with store.question() as cursor:
                counts.append(len(cursor.execute("SELECT id, count(*) FROM calls GROUP BY id ORDER BY id LIMIT 5000").fetchall()))

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    fill(store, 20)
    for thread in threads:
        thread.join()
    assert len(counts) == 120
    assert limit(store.connection) == "256.0 MiB"


def test_a_question_that_runs_ends_when_the_database_is_opened_again(store: Store) -> None:
    begun = Event()
    failed: list[BaseException] = []

    def ask() -> None:
        with store.question() as cursor:
            begun.set()
            try:
                cursor.execute("SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b").fetchall()
            except duckdb.Error as error:
                failed.append(error)

    thread = Thread(target=ask)
    thread.start()
    assert begun.wait(5)
    store.close()
    thread.join(5)
    assert [type(error) for error in failed] == [duckdb.InterruptException]
    store.open()
    fill(store, 1)
    assert limit(store.connection) == "256.0 MiB"


def test_a_database_that_is_held_open_is_opened_again(store: Store) -> None:
    with duckdb.connect(str(store.path), config=_settings()):  # as a question that can't be interrupted
        store.close()
        store.open()
        fill(store, 1)
    assert store.connection.execute("SELECT count(*) FROM calls").fetchall() == [(2000,)]


def test_a_question_waits_while_the_database_is_opened_again(store: Store) -> None:
    store.close()
    answers: list[object] = []

    def ask() -> None:
        with store.question() as cursor:
            answers.extend(cursor.execute("SELECT count(*) FROM calls").fetchall())

    thread = Thread(target=ask)
    thread.start()
    store.open()
    thread.join(5)
    assert answers == [(0,)]


PEAK = """
import re, resource, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
from spangate.exporters.usage.store import Mark, Store
from exporters.usage.test_memory import batches
def peak():
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20
    return int(re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]) >> 10  # ru_maxrss counts whoever started us
store = Store(Path({path!r}))
store.open()
for number, rows in enumerate(batches(200)):
    store.move(rows, Mark("one", number))
    if number in (4, 199):
        print(peak())
"""


@pytest.mark.soak
def test_folding_takes_little_memory_however_much_there_is(tmp_path: Path) -> None:
    program = PEAK.format(tests=str(Path(__file__).parents[2]), path=str(tmp_path / "usage.duckdb"))
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=50)
    first, last = map(int, ran.stdout.split())
    print(f"at its highest {first} MiB after 10,000 calls, {last} MiB after 400,000")
    assert last - first < 25
