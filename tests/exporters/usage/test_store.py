"""One file, one holder, one transaction a batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from spangate.exporters.usage import spool_lines
from spangate.exporters.usage.prices import Prices
from spangate.exporters.usage.rows import Rows
from spangate.exporters.usage.schema import MIGRATIONS
from spangate.exporters.usage.spool_lines import Closing
from spangate.exporters.usage.store import FORGET, Displaced, Locked, Mark, Store, Trouble, Unfit, version_of

from accounts import ended

HOLDER = """
import duckdb, sys
connection = duckdb.connect({path!r})
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[int]:
    """Another process has the database."""
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER.format(path=str(path))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child.pid
        child.kill()
        child.wait()


def rows_of(count: int, **fields: object) -> Rows:
    rows = Rows(Prices())
    for _ in range(count):
        line = spool_lines.read(spool_lines.closing(ended(**fields))[:-1])
        assert isinstance(line, Closing)
        rows.add(line)
    return rows


def count(store: Store, table: str = "calls") -> int:
    [(number,)] = store.connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(number)


def test_rows_and_how_far_they_are_moved_go_together(store: Store) -> None:
    store.move(rows_of(3), Mark("one", 100, opened=[("i", "req_1", b"line \xff\x00")]))
    assert (count(store), count(store, "attempts"), store.progress()) == (3, 3, {"one": 100})
    assert store.opened() == {"req_1": ("i", b"line \xff\x00")}
    store.move(rows_of(2), Mark("one", 200, closed=["req_1"]))
    assert (store.progress(), store.opened()) == ({"one": 200}, {})
    store.move(rows_of(1), Mark("two", 50, gone=["one"]))
    assert store.progress() == {"two": 50}


def test_what_is_refused_leaves_nothing(store: Store) -> None:
    rows = rows_of(2)
    rows.calls[1] = (*rows.calls[1][:17], -5, *rows.calls[1][18:])  # no status
    with pytest.raises(Unfit, match="out of range"):
        store.move(rows, Mark("one", 100))
    assert (count(store), store.progress()) == (0, {})
    rows = rows_of(2)
    rows.calls[1] = ("\ud800", *rows.calls[1][1:])
    with pytest.raises(Unfit):
        store.move(rows, Mark("one", 100))
    store.move(rows_of(1), Mark("one", 100))
    assert count(store) == 1


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    for number in range(3):
        store = Store(tmp_path / "usage.duckdb")
        store.open()
        assert count(store) == number
        store.move(rows_of(1), Mark("one", number))
        store.close()
        store.close()


def test_texts_of_every_kind(store: Store) -> None:
    texts = ["", "é", "\x00", "a\nb", "'; DROP TABLE calls; --", '"', "\U0001f600" * 50]
    rows = Rows(Prices())
    for text in texts:
        line = spool_lines.read(spool_lines.closing(ended(user=text, tags={"k": text}))[:-1])
        assert isinstance(line, Closing)
        rows.add(line)
    store.move(rows, Mark("one", 1))
    assert store.connection.execute("SELECT \"user\", tags['k'] FROM calls").fetchall() == [(text, text) for text in texts]


@pytest.mark.parametrize("name", ["spangate.duckdb", "spool.duckdb", "calls.duckdb", "main.duckdb", "temp.duckdb", 'a "b".duckdb'])
def test_a_file_may_have_any_name(name: str, tmp_path: Path) -> None:
    """DuckDB calls a database after its file, and finds no schema of the same name unless it is told where."""
    for _ in range(2):
        store = Store(tmp_path / name)
        store.open()
        store.move(Rows(Prices()), Mark("a", 7, [("i", "req_1", b"{}")], ["req_1"], ["b"]))
        assert (store.progress(), store.opened()) == ({"a": 7}, {"req_1": ("i", b"{}")})
        store.close()
        assert version_of(tmp_path / name) == len(MIGRATIONS)


def test_a_version_is_read_without_changing_anything(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "usage.duckdb"
    duckdb.connect(path).close()
    before = path.read_bytes()
    assert version_of(path) == 0
    assert (path.read_bytes(), [each.name for each in tmp_path.iterdir()]) == (before, ["usage.duckdb"])
    with holder(path) as pid, pytest.raises(Locked) as locked:
        version_of(path)
    assert locked.value.pid == pid
    path.write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(Trouble):
        version_of(path)


def test_another_process_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "usage.duckdb"
    store = Store(path)
    with holder(path) as pid:
        with pytest.raises(Locked, match=f"process {pid} holds it") as locked:
            store.open()
        assert locked.value.pid == pid
    store.open()
    assert count(store) == 0
    store.close()


def test_what_can_not_be_opened(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"this is no database" * 500)
    with pytest.raises(Trouble, match="not a valid DuckDB database"):
        Store(tmp_path / "text").open()
    with pytest.raises(Trouble, match="its folder can't be made"):
        Store(tmp_path / "text" / "x").open()
    with pytest.raises(Trouble, match="not open"):
        Store(tmp_path / "x").progress()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """DuckDB would wait for whoever writes to the pipe, for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "folder", tmp_path / "link", Path("/dev/null")):
        with pytest.raises(Trouble, match="no regular file"):
            Store(path).open()
        with pytest.raises(Trouble, match="no regular file"):
            version_of(path)


@pytest.mark.parametrize("instead", ["deleted", "replaced", "folder"])
def test_a_file_that_lies_at_its_path_no_more(store: Store, tmp_path: Path, instead: str) -> None:
    store.move(rows_of(3), Mark("s", 1))
    store.look()
    store.path.rename(tmp_path / "aside.duckdb")
    if instead == "replaced":
        other = Store(tmp_path / "other.duckdb")
        other.open()
        other.close()
        other.path.rename(store.path)
    elif instead == "folder":
        store.path.mkdir()
    with pytest.raises(Displaced, match=f"was {instead.replace('folder', 'deleted')} while it was in use, with the 3 calls"):
        store.look()
    store.close()
    aside = Store(tmp_path / "aside.duckdb")
    aside.open()
    assert count(aside) == 3, "whoever moved it away has all of it"
    aside.close()
    if instead != "folder":
        store.open()
        store.look()
        assert count(store) == 0


def test_nothing_outside_is_in_reach(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for statement in (
        f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
        f"COPY calls TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.duckdb' AS other",
        "SET enable_external_access = true",
        "SET allowed_configs = ['threads']",
        "SET threads = 8",
        "SET max_temp_directory_size = '100GB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_text('/etc/passwd')",
    ):
        with pytest.raises(Exception, match=r"Permission|configuration|[Aa]ccess|disabled|locked|Invalid"):
            store.connection.execute(statement).fetchall()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "usage.duckdb", "usage.duckdb.wal"]


def test_python_is_out_of_reach(store: Store) -> None:
    visible = [1, 2, 3]
    with pytest.raises(Exception, match="visible does not exist"):
        store.connection.execute("SELECT * FROM visible").fetchall()
    assert visible


def test_old_rows_go_with_all_that_is_theirs(store: Store) -> None:
    old, new = 1_000_000_000, 2_000_000_000
    for at, number in ((old, 30), (new, 20)):
        rows = rows_of(number, started_ns=at * 10**9)
        rows.decisions += [(row[0], "p", "", "k", "", "enforce", "{}", "") for row in rows.calls]
        store.move(rows, Mark(str(at), 1))
    assert store.forget(1_500_000_000 * 10**6) == 30
    assert store.forget(1_500_000_000 * 10**6) == 0
    assert [count(store, table) for table in ("calls", "attempts", "decisions")] == [20, 20, 20]


def test_old_rows_go_a_few_at_a_time(store: Store) -> None:
    random = Random(1)
    rows = rows_of(1)
    call, tried = rows.calls[0], rows.attempts[0]
    ids = [f"req_{random.getrandbits(128):032x}" for _ in range(FORGET + 500)]
    rows.calls, rows.attempts = [(id, *call[1:]) for id in ids], [(id, *tried[1:]) for id in ids]
    store.move(rows, Mark("one", 1))
    later = 2_000_000_000 * 10**6
    assert [store.forget(later), store.forget(later), store.forget(later)] == [FORGET, 500, 0]
    assert (count(store), count(store, "attempts")) == (0, 0)


STUMP = """
import resource, sys
from pathlib import Path
from spangate.exporters.usage.store import Store, Trouble
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
store = Store(Path({path!r}))
try:
    store.open()
except Trouble as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
store.open()
store.close()
print("opened")
"""


@pytest.mark.fault("STO-03")
def test_a_disk_that_is_full_when_the_database_is_made(tmp_path: Path) -> None:
    """What of the new file was written is no database, and is not kept."""
    program = STUMP.format(path=str(tmp_path / "usage.duckdb"))
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert "File too large" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "opened"
