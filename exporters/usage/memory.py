"""How much memory DuckDB has for usage: enough for whoever is at work, and next to nothing when nobody is.

Left alone it keeps each block that it read or wrote until its limit is reached, and its allocator (jemalloc) keeps what DuckDB has freed.
A limit that can't be met makes both let go. Such a limit stands for a moment in which nobody is at work: what meets it fails, and a
checkpoint that fails takes the database along until it is opened again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from threading import Condition
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

QUESTIONS = "256MiB"  # what people's questions may take together
HELD = "288MiB"  # the limit if they hold all that, and rows wait in memory beside it
ROOM = "320MiB"  # the limit while rows are written: questions that hold all that is theirs don't hold up rows
LEAST = "1MiB"  # less than what it can't do without
PARTING = 1.0  # seconds in which questions may end before the database is closed all the same
BETWEEN = 0.05  # seconds between two interruptions of one question: it may have been between two statements

SETTINGS: Mapping[str, Any] = {
    "memory_limit": QUESTIONS,
    "allowed_configs": ["memory_limit"],  # the rest is locked; if anybody else sets this one, it is set again with the next rows
    "max_temp_directory_size": "0KiB",
    # Rows wait in memory, a little larger than in the log, until that many bytes of log are folded into the file.
    "checkpoint_threshold": "4MiB",
    # So little at a time fills no larger blocks: with DuckDB's own 256 KiB a row takes half as much again on disk.
    "default_block_size": "65536",
    # No merging of what was folded into larger groups of rows: it takes 100 MiB and more at once. Groups that are deleted go all the same.
    "max_vacuum_tasks": "0",
}


class Memory:
    """`rows` around whatever the writer does, `question` around what people ask, in any thread. `close` ends it."""

    def __init__(self) -> None:
        self._lock = Condition()
        self._at_work = 0
        self._asking: list[DuckDBPyConnection] = []

    @property
    def idle(self) -> bool:
        return not self._at_work

    @contextmanager
    def rows(self, connection: DuckDBPyConnection) -> Iterator[None]:
        """There is room for rows, whatever questions hold.

        Raises:
            duckdb.Error: there is no database any more.
        """
        with self._lock:
            connection.execute(f"SET memory_limit = '{ROOM}'")
            self._at_work += 1
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1
                if not self._at_work:
                    _give_back(connection)
                elif not _limit(connection, QUESTIONS):
                    _limit(connection, HELD)

    @contextmanager
    def question(self, connection: DuckDBPyConnection) -> Iterator[DuckDBPyConnection]:
        """A cursor for one question.

        Raises:
            duckdb.Error: there is no database any more.
        """
        with self._lock:
            cursor = connection.cursor()
            self._asking.append(cursor)
            self._at_work += 1
        try:
            yield cursor
        finally:
            self._answered(connection, cursor)

    def close(self, connection: DuckDBPyConnection) -> None:
        """Let go of the database. Questions are interrupted first: as long as one has a cursor, whoever opens the path gets this very
        database again, also where another file lies there by now.

        Raises:
            duckdb.Error: it is broken.
        """
        until = time.monotonic() + PARTING
        with self._lock:
            while self._asking and (left := until - time.monotonic()) > 0:
                for cursor in self._asking:
                    _interrupt(cursor)
                self._lock.wait(min(left, BETWEEN))
            connection.close()

    def _answered(self, connection: DuckDBPyConnection, cursor: DuckDBPyConnection) -> None:
        import duckdb

        with self._lock:
            self._asking = [each for each in self._asking if each is not cursor]
            cursor.close()
            self._at_work -= 1
            self._lock.notify_all()
            # Closed or broken meanwhile: its memory goes with it. A cursor of its own: the writer's may be within a transaction.
            if not self._at_work:
                with suppress(duckdb.ConnectionException, duckdb.FatalException), closing(connection.cursor()) as fresh:
                    _give_back(fresh)


def _interrupt(cursor: DuckDBPyConnection) -> None:
    import duckdb

    with suppress(duckdb.Error):  # whoever asked has closed it
        cursor.interrupt()


def _give_back(connection: DuckDBPyConnection) -> None:
    _limit(connection, LEAST)
    _limit(connection, QUESTIONS)


def _limit(connection: DuckDBPyConnection, limit: str) -> bool:
    """Whether it is met; if not, what isn't in use has gone all the same, and the former limit stands."""
    import duckdb

    try:
        connection.execute(f"SET memory_limit = '{limit}'")
    except duckdb.OutOfMemoryException:
        return False
    return True
