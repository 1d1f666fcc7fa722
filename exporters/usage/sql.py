"""SQL for people: one SELECT over usage, on a cursor of its own that can only read, within limits of time, memory and rows.

An operator sees the tables. A team sees temporary views of its own rows under the same names; its SQL can't name the tables behind
them. Each view ends in a LIMIT that no optimizer moves a condition across, so that a condition of the caller's is never tried on a row
of somebody else's, where an error would tell of it.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from ...call.errors import CallerFault, OurFault
from .schema import TABLES, VIEWS, view_statements
from .sql_guard import check, check_parameters, refused
from .store import Trouble
from .writer import UsageWriter

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SECONDS = 10.0
ROWS = 10_000
LARGEST = 32 * 2**20  # bytes of text in an answer, about
AT_ONCE = 2  # queries that run; others wait

PARSER: dict[str, Any] = {"threads": "1", "memory_limit": "64MiB", "enable_external_access": "false"}
NAMES = frozenset({*TABLES, "budgets", *VIEWS})
_TEAM = re.compile(r"[A-Za-z0-9_.-]{0,64}")  # empty: the callers of a gateway without teams
_FENCE = f"LIMIT (SELECT {2**62})"  # a plain number is optimized away

Parameters = Sequence[Any] | Mapping[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """Columns with DuckDB's names of their types, and rows of JSON's values: decimals are numbers, times are ISO 8601, bytes base64.
    `truncated`: there was more."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


class Sql:
    """Queries on a writer's database. They see every call that ended before they began."""

    def __init__(self, writer: UsageWriter, *, seconds: float = SECONDS, rows: int = ROWS) -> None:
        self._writer = writer
        self._seconds = seconds
        self._rows = rows
        self._threads: ThreadPoolExecutor | None = None
        self._parser: DuckDBPyConnection | None = None
        self._parsing = threading.Lock()
        self._running: set[_Running] = set()

    async def query(self, sql: str, parameters: Parameters = (), *, team: str | None = None) -> Answer:
        """Run it. With `team` it sees the rows of that team alone.

        Raises:
            CallerFault: it may not run, or failed; the message says why.
            OurFault: the database can't be had now.
        """
        check_parameters(parameters)
        if team is not None and not _TEAM.fullmatch(team):
            raise CallerFault("There is no such team.", param="team")
        if not await self._writer.caught_up():
            raise _unavailable(self._writer.state.problem)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(AT_ONCE, "spangate.sql")
        running = _Running(self, sql, parameters, team)
        future: Future[Answer] = self._threads.submit(running)
        self._running.add(running)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            running.stop()
            raise
        finally:
            self._running.discard(running)

    async def aclose(self) -> None:
        """Stop what runs."""
        threads, self._threads = self._threads, None
        for running in self._running:
            running.stop()
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    def check(self, sql: str) -> None:
        """In a thread: whether it may run.

        Raises:
            CallerFault: it may not.
        """
        import duckdb

        with self._parsing:
            if self._parser is None:
                self._parser = duckdb.connect(
                    ":memory:", config={"threads": "1", "memory_limit": "64MiB", "enable_external_access": "false"}
                )
            check(self._parser, sql, NAMES)

    def question(self) -> AbstractContextManager[DuckDBPyConnection]:
        return self._writer.store.question()

    @property
    def limits(self) -> tuple[float, int]:
        return self._seconds, self._rows


class _Running:
    """One query, in a thread."""

    def __init__(self, owner: Sql, sql: str, parameters: Parameters, team: str | None) -> None:
        self._owner = owner
        self._sql = sql
        self._parameters = parameters
        self._team = team
        self._lock = threading.Lock()
        self._cursor: DuckDBPyConnection | None = None
        self._stopped = False

    def __call__(self) -> Answer:
        import duckdb

        began = time.monotonic()
        seconds, rows = self._owner.limits
        timer = threading.Timer(seconds, self.stop)
        timer.daemon = True
        timer.start()
        try:
            self._owner.check(self._sql)
            return self._run(began, rows)
        except duckdb.InterruptException:
            if not self._stopped:
                raise _unavailable("it is being opened again") from None
            raise CallerFault(f"This SQL was stopped after {seconds:g} seconds.", param="sql") from None
        except duckdb.OutOfMemoryException:
            raise CallerFault("This SQL needs more memory than it may have.", param="sql") from None
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            raise _unavailable(str(error)) from None
        except duckdb.Error as error:
            raise self._failed(error) from None
        except Trouble as error:
            raise _unavailable(str(error)) from None
        finally:
            timer.cancel()

    def stop(self) -> None:
        """From another thread: end it soon."""
        with self._lock:
            self._stopped = True
            if self._cursor is not None:
                self._cursor.interrupt()

    def _run(self, began: float, most: int) -> Answer:
        with self._owner.question() as cursor:
            try:
                if self._team is not None:
                    [(database,)] = cursor.execute("SELECT current_database()").fetchall()
                    for statement in team_views(database, self._team):
                        cursor.execute(statement)
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                with self._lock:
                    self._cursor = cursor
                self._check_stopped()
                cursor.execute(self._sql, self._parameters or None)
                columns = tuple(str(each[0]) for each in cursor.description)
                types = tuple(str(each[1]) for each in cursor.description)
                rows, truncated = self._fetched(cursor, most)
                return Answer(columns, types, rows, truncated, round(time.monotonic() - began, 6))
            finally:
                with self._lock:
                    self._cursor = None

    def _fetched(self, cursor: DuckDBPyConnection, most: int) -> tuple[list[list[Any]], bool]:
        """Row by row: each may be large, and what is not fetched takes no memory."""
        rows: list[list[Any]] = []
        size = 0
        while row := cursor.fetchone():
            self._check_stopped()
            plain = [_plain(value) for value in row]
            size += _size(plain)
            if len(rows) == most or size > LARGEST:
                return rows, True
            rows.append(plain)
        return rows, False

    def _check_stopped(self) -> None:
        import duckdb

        if self._stopped:
            raise duckdb.InterruptException

    def _failed(self, error: Exception) -> CallerFault:
        """To a team not in DuckDB's words if they may hold a value."""
        import duckdb

        if self._team is not None and not isinstance(error, duckdb.ProgrammingError):
            return refused("a value in it can't be read as what it should be")
        return refused(str(error).partition("\n\n")[0][:500].rstrip("."))


def _unavailable(problem: str) -> OurFault:
    return OurFault("Usage can't be read now; try again soon.", code="state_unavailable", headers={"retry-after": "3"}, detail=problem)


def team_views(database: str, team: str) -> list[str]:
    """Views of one team's rows under the names of the tables."""
    tables = f'"{database.replace(chr(34), chr(34) * 2)}".main'
    own = f"team = '{team}'"  # of _TEAM's characters
    ids = f"(SELECT id FROM {tables}.calls WHERE {own})"
    within = " OR ".join(f"starts_with(scope, '{per}:{team}/')" for per in ("key", "user", "thread", "reply")) if team else "false"
    tagged = f"(starts_with(scope, 'tag:') AND starts_with(split_part(scope, ':', 3), '{team}/'))" if team else "false"
    return [
        f"CREATE TEMP VIEW calls AS SELECT * FROM {tables}.calls WHERE {own} {_FENCE}",
        f"CREATE TEMP VIEW attempts AS SELECT * FROM {tables}.attempts WHERE call_id IN {ids} {_FENCE}",
        f"CREATE TEMP VIEW decisions AS SELECT * FROM {tables}.decisions WHERE call_id IN {ids} {_FENCE}",
        f"CREATE TEMP VIEW budgets AS SELECT * FROM {tables}.budgets WHERE scope = 'team:{team}' OR {within} OR {tagged} {_FENCE}",
        *view_statements("temp.main.calls", "CREATE TEMP VIEW"),
    ]


def _plain(value: Any) -> Any:
    """As JSON can say it."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(part) for part in value]
    return str(value)


def _size(value: Any) -> int:
    """Of what `_plain` made, with all that is in it."""
    if isinstance(value, str):
        return 16 + len(value)
    if isinstance(value, list):
        return 16 + sum(map(_size, value))
    if isinstance(value, dict):
        return 16 + sum(16 + len(name) + _size(part) for name, part in value.items())
    return 16
