"""The usage database: one DuckDB file that this process alone holds, written by columns in one transaction a batch.

Together with its rows a batch commits how far their segment has been moved, so that nothing is moved twice, however the process ends.
What DuckDB says becomes one of two things: `Trouble` (not now; the rows are kept) or `Unfit` (these rows never).
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from . import schema
from .arrow import VARIES, Batch
from .memory import SETTINGS, Memory
from .rows import Rows
from .schema import TABLES, Columns, NewerDatabase, migrate

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

WORN = 1_000_000  # calls that one handle writes: it remembers where it put each few thousand, in 14 MiB by then
FORGET = 5000  # rows that one transaction of retention deletes
OPENING = 1.0  # seconds for which a question waits for a database that is being opened again

_HOLDER = re.compile(r"PID (\d+)")


class Trouble(Exception):
    """The database can't be used just now."""


class Locked(Trouble):
    """Another process holds it; `pid` if that is known."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class Displaced(Trouble):
    """What is open lies at its path no more: it was deleted, or another file was put there."""


class Unfit(Exception):
    """DuckDB refuses these rows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a batch commits beside its rows: up to where `segment` is moved, calls opened and closed in it, segments that are gone."""

    segment: str
    upto: int
    opened: Sequence[tuple[str, str, bytes]] = ()
    closed: Sequence[str] = ()
    gone: Sequence[str] = ()


class Store:
    """`open`, then anything, then `close`. After Trouble: close and open again before believing it. `question` is for other threads."""

    def __init__(self, path: Path, *, lasts: int = WORN) -> None:
        self.path = path
        self._lasts = lasts
        self._spool = "spool"
        self._file: tuple[int, int] | None = None
        self._connection: DuckDBPyConnection | None = None
        self._memory = Memory()
        self._ready = Event()
        self._written = 0

    @property
    def connection(self) -> DuckDBPyConnection:
        """
        Raises:
            Trouble: it isn't open.
        """
        if self._connection is None:
            raise Trouble("it is not open")
        return self._connection

    def open(self) -> None:
        """
        Raises:
            Locked: another process has it.
            Trouble: it can't be opened.
        """
        try:
            self._open()
        except Unfit as error:  # there are no rows yet that it could be about
            raise Trouble(str(error)) from error
        self._ready.set()

    def _open(self) -> None:
        import duckdb

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Trouble(f"its folder can't be made ({error.strerror})") from error
        self._written = 0
        with _told():
            fresh = _file_at(self.path) is None
            try:
                self._connection = duckdb.connect(str(self.path), config=_settings())
            except duckdb.Error as error:
                if fresh and "lock on file" not in str(error):  # what a full disk took of a new file would never be opened again
                    self.path.unlink(missing_ok=True)
                raise
            if fresh:
                self.path.chmod(0o600)  # it names teams and users
            self._file = _file_at(self.path)
            try:
                migrate(self._connection)
                self._spool = f"{schema.catalog_of(self._connection)}.spool"
                if not _is_locked(self._connection):  # it is, where a question has kept it open
                    self._connection.execute("SET lock_configuration = true")
            except NewerDatabase as error:
                self.close()
                raise Trouble(str(error)) from None
            except duckdb.Error:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file. A second time does nothing."""
        self._ready.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            import duckdb

            try:
                self._memory.close(connection)
            except duckdb.Error:
                return  # broken already: what it had committed stands in its log

    @property
    def worn(self) -> bool:
        """Whether to close it and open it again, for the memory that comes back in no other way."""
        return self._written >= self._lasts and self._memory.idle

    def question(self) -> AbstractContextManager[DuckDBPyConnection]:
        """In any thread but the writer's: a cursor for what a person asks. It waits a moment for a database that is being opened again.

        Raises:
            Trouble: it isn't open.
        """
        self._ready.wait(OPENING)
        return self._memory.question(self.connection)

    @contextmanager
    def _work(self) -> Iterator[DuckDBPyConnection]:
        """The writer's own connection, with memory for what it does.

        Raises:
            Trouble: later, perhaps.
            Unfit: never.
        """
        connection = self.connection
        with _told(), self._memory.rows(connection):
            yield connection

    def look(self) -> None:
        """Whether the file that is open still lies at its path: what is written to one that doesn't is read by nobody.

        Raises:
            Displaced: it doesn't.
        """
        try:
            there = _file_at(self.path)
        except Trouble:  # what lies there now is no database; opening it will say so
            there = None
        if there != self._file:
            with self._work() as connection:
                [(calls,)] = connection.execute("SELECT count(*) FROM calls").fetchall()
            what = "deleted" if there is None else "replaced"
            raise Displaced(f"it was {what} while it was in use, with the {calls} calls that were in it")

    def progress(self) -> dict[str, int]:
        """Up to where each segment has been moved."""
        with self._work() as connection:
            return dict(connection.execute(f"SELECT name, max(upto) FROM {self._spool}.segments GROUP BY name").fetchall())

    def opened(self) -> dict[str, tuple[str, bytes]]:
        """Calls that were opened in segments which are gone, and not closed: instance and line by id."""
        with self._work() as connection:
            rows = connection.execute(f"SELECT id, instance, line FROM {self._spool}.opened").fetchall()
        return {id: (instance, line) for id, instance, line in rows}

    def known(self, ids: Sequence[str]) -> set[str]:
        """Which of these calls have a row."""
        with self._work() as connection:
            rows = connection.execute("SELECT id FROM calls WHERE id IN (SELECT unnest($1::VARCHAR[]))", [list(ids)]).fetchall()
        return {id for (id,) in rows}

    def move(self, rows: Rows, mark: Mark) -> None:
        """All of it or nothing.

        Raises:
            Unfit: DuckDB refuses the rows.
            Trouble: it can't be written.
        """
        rows.gather()
        if rows.unfit is not None:
            raise Unfit(_first_line(rows.unfit)) from rows.unfit
        with self._work() as connection:
            connection.execute("BEGIN")
            try:
                for table, columns in TABLES.items():
                    self._insert(table, columns, rows.batches[table])
                rows.budgets.write(connection)
                self._mark(mark)
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        self._written += len(rows)

    def _roll_back(self) -> None:
        import duckdb

        try:
            self.connection.execute("ROLLBACK")
            self.connection.unregister("incoming")  # DuckDB must let go of a batch before the batch is
        except (duckdb.Error, Trouble):
            return  # there is nothing left to roll back

    def _insert(self, table: str, columns: Columns, batch: Batch) -> None:
        """By columns; one that says the same in every row is said once."""
        if not len(batch):
            return
        same: list[Any] = []
        selected = [
            _typed(f'"{column.name}"', type) if column.same is VARIES else _constant(column.same, type, same)
            for column, (_, _, type) in zip(batch.columns, columns, strict=True)
        ]
        connection = self.connection
        connection.register("incoming", batch)
        connection.execute(f"INSERT INTO {table} SELECT {', '.join(selected)} FROM incoming", same)
        connection.unregister("incoming")

    def _mark(self, mark: Mark) -> None:
        execute = self.connection.execute
        if mark.closed:
            execute(f"DELETE FROM {self._spool}.opened WHERE id IN (SELECT unnest($1::VARCHAR[]))", [list(mark.closed)])
        if mark.opened:
            instances, ids, lines = (list(column) for column in zip(*mark.opened, strict=True))
            execute(f"DELETE FROM {self._spool}.opened WHERE id IN (SELECT unnest($1::VARCHAR[]))", [ids])  # a call that holds more by now
            execute(
                f"INSERT INTO {self._spool}.opened SELECT unnest($1::VARCHAR[]), unnest($2::VARCHAR[]), unnest($3::BLOB[])",
                [instances, ids, lines],
            )
        execute(f"DELETE FROM {self._spool}.segments WHERE name IN (SELECT unnest($1::VARCHAR[]))", [[mark.segment, *mark.gone]])
        if mark.segment:
            execute(f"INSERT INTO {self._spool}.segments VALUES ($1, $2)", [mark.segment, mark.upto])

    def forget(self, before_us: int) -> int:
        """Delete some of the calls that began before this time, the oldest, with all that belongs to them; how many."""
        with self._work() as connection:
            connection.execute("BEGIN")
            try:
                connection.execute(
                    "CREATE OR REPLACE TEMP TABLE forgotten AS SELECT id FROM calls WHERE started_at < make_timestamp($1) LIMIT $2",
                    [before_us, FORGET],
                )
                [(count,)] = connection.execute("SELECT count(*) FROM forgotten").fetchall()
                if count:
                    for table, column in (("attempts", "call_id"), ("decisions", "call_id"), ("calls", "id")):
                        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT id FROM forgotten)")
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            return int(count)


def version_of(path: Path) -> int:
    """The version of a database as it lies there, read without changing anything; 0: it has none yet.

    Raises:
        Locked: another process has it.
        Trouble: it can't be read.
        Unfit: it is no database.
    """
    import duckdb

    _file_at(path)
    with _told(), closing(duckdb.connect(str(path), read_only=True, config=_settings())) as connection:
        try:
            return schema.version_of(connection)
        except duckdb.CatalogException:
            return 0


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file lies there; None: none.

    Raises:
        Trouble: something that is no file. DuckDB would wait for ever for the other end of a pipe.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Trouble(f"it can't be looked at ({error.strerror})") from error
    if not stat.S_ISREG(found.st_mode):
        raise Trouble("it is no regular file: let usage.path name one, or a file that isn't there yet")
    return found.st_dev, found.st_ino


def _settings() -> dict[str, Any]:
    """One thread, bounded memory, and nothing outside this one file: no other file, no network, no extension, no Python variable."""
    return {
        **SETTINGS,
        "threads": "1",
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
    }


def _is_locked(connection: DuckDBPyConnection) -> bool:
    [(locked,)] = connection.execute("SELECT current_setting('lock_configuration')").fetchall()
    return str(locked).lower() == "true"


def _constant(value: Any, type: str, parameters: list[Any]) -> str:
    """What planning costs least, which it does anew for each statement."""
    if value is None:
        return "NULL"
    if value == "" and type != "JSON":
        return f"MAP {{}}::{type}" if type.startswith("MAP") else "''"
    parameters.append(value)
    return _typed(f"${len(parameters)}", type)


def _typed(value: str, type: str) -> str:
    if type.startswith("MAP"):
        return f"CASE WHEN {value} = '' THEN MAP {{}}::{type} ELSE {value}::JSON::{type} END"
    return f"{value}::{type}" if type == "JSON" else value


@contextmanager
def _told() -> Iterator[None]:
    """DuckDB's errors in our words.

    Raises:
        Trouble: later, perhaps.
        Unfit: never.
    """
    import duckdb

    try:
        yield
    except (duckdb.DataError, duckdb.InvalidInputException, OverflowError, UnicodeError) as error:
        raise Unfit(_first_line(error)) from error
    except duckdb.IOException as error:
        if "Could not set lock" not in str(error):
            raise Trouble(_first_line(error)) from error
        holder = _HOLDER.search(str(error))
        pid = int(holder[1]) if holder else None
        raise Locked(f"process {pid or 'unknown'} holds it", pid) from error
    except duckdb.Error as error:
        raise Trouble(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:300]
