"""From the spool into the database: once each, whatever happens in between."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spangate.call.clock import SYSTEM, Clock
from spangate.call.seen import Seen
from spangate.exporters.usage import segments
from spangate.exporters.usage.prices import Prices
from spangate.exporters.usage.rows import Rows
from spangate.exporters.usage.spool import Spool
from spangate.exporters.usage.store import Mark, Store, Trouble
from spangate.exporters.usage.writer import BATCH, UsageWriter

from .test_store import holder
from accounts import Accounts, accounts, ended

IDS = "SELECT id, outcome FROM calls ORDER BY id"


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - threads and files give no events
            await asyncio.sleep(0.01)


def begun(**fields: Any) -> Seen:
    """A call that is under way."""
    seen = ended(**fields)
    seen.outcome, seen.attempts[0].outcome = None, None
    return seen


async def test_a_row_within_seconds_without_being_asked(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        usage.record(ended())
        await until(lambda: usage.state.moved == 1)
        assert usage.state.phase == "ready"
        await until(lambda: usage.spooling.bytes == 0)
        assert await usage.value("SELECT count(*) FROM calls") == 1


class Vouched(Spool):
    """Tells when the disk is asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked = threading.Event()

    def sync(self) -> None:
        super().sync()
        self.asked.set()


async def test_the_disk_is_asked_while_lines_gather(tmp_path: Path) -> None:
    """`usage.fsync` says what a power failure may take, however seldom rows are moved."""
    spool = Vouched(tmp_path / "usage.duckdb.spool")
    writer = UsageWriter(spool, Store(tmp_path / "usage.duckdb"), Prices(()), fsync=0.01)
    writer.start()
    spool.closed(ended())
    assert await asyncio.to_thread(spool.asked.wait, 10)
    assert (writer.state.moved, spool.active != "") == (0, True)
    assert await writer.caught_up()
    assert writer.state.moved == 1
    await writer.aclose()
    spool.close()


class Busy(Spool):
    """Another call ends whenever the writer looks for the segment that is being written."""

    calls = 0

    @property
    def active(self) -> str:
        name = super().active
        self.closed(ended())
        return name

    def closed(self, seen: Seen) -> None:
        self.calls += 1
        super().closed(seen)


async def test_a_segment_that_is_begun_while_the_writer_looks_is_not_taken_away(tmp_path: Path) -> None:
    """Its file would be gone under the calls that are still written to it."""
    spool = Busy(tmp_path / "usage.duckdb.spool")
    writer = UsageWriter(spool, Store(tmp_path / "usage.duckdb"), Prices(()))
    writer.start()
    for _ in range(5):
        spool.closed(ended())
        assert await writer.caught_up()
    await writer.aclose()
    spool.close()
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == spool.calls > 10


async def test_a_restart_loses_and_doubles_nothing(tmp_path: Path) -> None:
    calls = []
    for _ in range(3):
        async with accounts(tmp_path) as usage:
            for _ in range(5):
                calls.append(ended())
                usage.opened(calls[-1])
                usage.record(calls[-1])
    async with accounts(tmp_path) as usage:
        assert await usage.rows(IDS) == sorted([seen.id, "completed"] for seen in calls)
        assert usage.state.interrupted == 0


async def test_calls_longer_than_a_segment(tmp_path: Path) -> None:
    """Opened in one segment, closed in a later one."""
    async with accounts(tmp_path) as usage:
        calls = [begun() for _ in range(20)]
        for seen in calls:
            usage.opened(seen)
        assert await usage.value("SELECT count(*) FROM calls") == 0
        assert len(usage.plainly("SELECT * FROM spool.opened")) == 20
        for seen in calls:
            seen.outcome = "completed"
            usage.record(seen)
        assert await usage.value("SELECT count(DISTINCT id) FROM calls") == 20
        assert usage.plainly("SELECT * FROM spool.opened") == []


async def test_what_is_under_way_when_the_process_goes_is_interrupted(tmp_path: Path) -> None:
    lost, found = begun(team="a"), begun(team="b")
    async with accounts(tmp_path) as usage:
        usage.opened(lost, {"input": 7, "output": 500})
        usage.opened(found)
        assert await usage.writer.caught_up()
    async with accounts(tmp_path) as usage:
        await until(lambda: usage.state.interrupted == 2)
        rows = await usage.rows(
            "SELECT team, outcome, status, input_tokens, output_tokens, usage_source, ended_at FROM calls ORDER BY team"
        )
        assert rows == [["a", "interrupted", None, 7, 500, "estimated", None], ["b", "interrupted", None, 0, 0, "estimated", None]]
        assert await usage.value("SELECT count(*) FROM attempts") == 0
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == 2


@pytest.mark.fault("STO-02")
async def test_segments_that_a_killed_process_left(tmp_path: Path) -> None:
    """Its last line is torn; its other lines count."""
    spool = Spool(tmp_path / "usage.duckdb.spool")
    whole, open_call, torn = ended(), begun(), ended()
    for seen in (whole, open_call, torn):
        spool.opened(seen)
    spool.closed(whole)
    spool.closed(torn)
    [segment] = segments.found(spool.folder)
    segment.path.write_bytes(segment.path.read_bytes()[:-10])
    assert spool._lease is not None
    spool._lease.release()  # as a kill does
    async with accounts(tmp_path) as usage:
        assert await usage.rows(IDS) == sorted([[whole.id, "completed"], [open_call.id, "interrupted"], [torn.id, "interrupted"]])
        assert (usage.state.broken, usage.state.interrupted) == (0, 2)
        assert segments.found(spool.folder) == []


async def test_broken_lines_cost_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "usage.duckdb.spool"
    spool = Spool(folder)
    calls = [ended() for _ in range(10)]
    for seen in calls:
        spool.closed(seen)
    spool.close()
    [segment] = segments.found(folder)
    data = bytearray(segment.path.read_bytes())
    data[20] ^= 1
    segment.path.write_bytes(data)
    (folder / segment.path.name.replace("-00000001", "-00000002")).write_bytes(b"\x00\xff junk\n" * 3)
    with caplog.at_level(logging.ERROR):
        async with accounts(tmp_path) as usage:
            assert await usage.value("SELECT count(*) FROM calls") == 9
            assert usage.state.broken == 4
            assert len(list(folder.glob("*.bad"))) == 2
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == 9
    assert "it is kept as .bad" in caplog.text


class Odd(Store):
    """A store with a will of its own: what `before` and `after` do to each batch."""

    def __init__(self, path: Path, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        super().__init__(path)
        self.before = before
        self.after = after
        self.batches: list[int] = []

    def move(self, rows: Rows, mark: Mark) -> None:
        self.batches.append(len(rows))
        self.before()
        super().move(rows, mark)
        self.after()


def odd(usage: Accounts, **what: Callable[[], None]) -> Odd:
    """The same usage with an odd store."""
    store = Odd(usage.path, **what)
    usage.writer.store = store
    return store


class Once:
    """Raises the first time."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise self.error


@pytest.mark.fault("STO-08")
@pytest.mark.parametrize(
    "error", [Trouble("the answer was lost"), OSError("I/O error"), KeyError("a defect")], ids=lambda e: type(e).__name__
)
async def test_a_commit_that_seems_to_have_failed(tmp_path: Path, error: Exception) -> None:
    """It was committed, and the writer heard otherwise: nothing is counted twice, after the retry or a restart."""
    async with accounts(tmp_path, start=False) as usage:
        once = Once(error)
        odd(usage, after=once)
        calls = [begun() for _ in range(5)]
        for seen in calls:
            usage.opened(seen)
        for seen in calls[:4]:
            seen.outcome = "completed"
            usage.record(seen)
        await usage.start()
        await until(lambda: once.asked > 0 and usage.state.phase == "failed")
        assert await usage.value("SELECT count(*) FROM calls") == 4
    async with accounts(tmp_path) as usage:
        outcomes = await usage.rows("SELECT outcome, count(*) FROM calls GROUP BY outcome ORDER BY outcome")
        assert outcomes == [["completed", 4], ["interrupted", 1]]
        assert await usage.value("SELECT count(DISTINCT id) FROM calls") == 5


async def test_a_batch_that_fails_is_kept(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        store = odd(usage, before=Once(Trouble("no space")))
        usage.record(ended())
        await usage.start()
        await until(lambda: usage.state.phase == "failed")
        assert (usage.state.problem, usage.problem) == ("no space", "usage rows wait in usage.duckdb.spool: no space")
        assert await usage.value("SELECT count(*) FROM calls") == 1
        assert (store.batches, usage.problem) == ([1, 1], "")


async def test_batches_are_bounded(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        store = odd(usage)
        for _ in range(2 * BATCH + 500):
            usage.record(ended())
        await usage.start()
        assert await usage.value("SELECT count(DISTINCT id) FROM calls") == 2 * BATCH + 500
        assert store.batches == [BATCH, BATCH, 500]


async def test_a_row_that_duckdb_refuses_costs_itself(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        for number in range(40):
            seen = ended()
            if number in (3, 17):
                seen.status = -1
            usage.record(seen)
        assert await usage.value("SELECT count(*) FROM calls") == 38
        assert usage.state.broken == 2
        assert len(list(usage.spool.folder.glob("*.bad"))) == 1


async def test_a_database_that_refuses_every_row_is_to_blame(tmp_path: Path) -> None:
    """Someone changed a table: no row is thrown away for that."""
    async with accounts(tmp_path) as usage:
        assert await usage.writer.caught_up()
        usage.plainly("ALTER TABLE calls ALTER COLUMN status TYPE TINYINT")
        calls = [ended() for _ in range(30)]
        for seen in calls:
            usage.record(seen)
        assert not await usage.writer.caught_up()
        assert "refuses every row" in usage.state.problem
        assert len(segments.found(usage.spool.folder)) == 1


@pytest.mark.fault("STO-01")
async def test_another_process_holds_the_database(tmp_path: Path) -> None:
    with holder(tmp_path / "usage.duckdb") as pid:
        async with accounts(tmp_path) as usage:
            for _ in range(10):
                usage.record(ended())
            assert not await usage.writer.caught_up()
            assert (usage.state.phase, usage.state.holder) == ("locked", pid)
            assert usage.problem == f"usage rows wait in usage.duckdb.spool: process {pid} holds it"
            assert usage.spooling.problem == ""
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == 10


async def test_a_database_that_is_let_go_is_taken_without_being_asked(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        with holder(tmp_path / "usage.duckdb"):
            await usage.start()
            usage.record(ended())
            await until(lambda: usage.state.phase == "locked")
        await until(lambda: usage.state.phase == "ready")
        assert await usage.value("SELECT count(*) FROM calls") == 1


@pytest.mark.fault("STO-01")
async def test_two_gateways_on_one_database(tmp_path: Path) -> None:
    """The one that has it moves the other's segments too, and takes what is under way there for what it is."""
    async with accounts(tmp_path) as first:
        assert await first.writer.caught_up()
        program = SECOND.format(tests=str(Path(__file__).parents[2]), folder=str(tmp_path))
        with subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-P", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        ) as second:
            assert second.stdin is not None
            assert second.stdout is not None
            assert second.stdout.readline().split() == ["locked"]
            first.record(ended(team="first"))
            while await first.value("SELECT count(*) FROM calls WHERE team = 'second'") < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert await first.value("SELECT count(*) FROM calls WHERE outcome = 'interrupted'") == 0
            second.kill()
            second.wait()
        first.writer._looked = -100.0
        assert await first.rows("SELECT outcome, count(*) FROM calls WHERE team = 'second' GROUP BY outcome ORDER BY outcome") == [
            ["completed", 3],
            ["interrupted", 1],
        ]
        assert await first.value("SELECT count(*) FROM calls") == 5


SECOND = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from accounts import accounts, ended
async def main():
    async with accounts(Path({folder!r})) as usage:
        while usage.state.phase == "starting":
            await asyncio.sleep(0.01)
        print(usage.state.phase, flush=True)
        usage.opened(ended(team="second"))
        for _ in range(3):
            usage.record(ended(team="second"))
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.fault("STO-06")
async def test_a_slow_store_delays_nobody(tmp_path: Path) -> None:
    """Each batch takes half a second; calls don't notice, and what doesn't fit into the spool is lost and counted."""
    most, calls = 2**20, 3000
    async with accounts(tmp_path, start=False, max_spool=most) as usage:
        odd(usage, before=lambda: time.sleep(0.5))
        await usage.start()
        slowest, largest = 0.0, 0
        for number in range(calls):
            before = time.perf_counter()
            usage.record(ended(user="u" * 1000))
            slowest = max(slowest, time.perf_counter() - before)
            if number % 100 == 0:
                largest = max(largest, segments.size_of(usage.spool.folder))
            await asyncio.sleep(0)
        lost = usage.spooling.lost
        print(f"slowest: {slowest * 1000:.1f} ms; {lost} lost; {largest} bytes at most")
        assert slowest < 0.25
        assert most * 0.9 < largest <= most
        assert 0 < lost < calls
        assert "usage.max_spool" in usage.problem
        assert await usage.writer.caught_up()
        assert await usage.value("SELECT count(*) FROM calls") == calls - lost
        usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == calls - lost + 1
        assert (usage.problem, usage.spooling.lost) == ("", lost)


class Opened(Store):
    """A store that soon wears out, and counts how often it is opened."""

    times = 0

    def open(self) -> None:
        super().open()
        self.times += 1


async def test_a_handle_that_has_written_much_is_replaced(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        usage.writer.store = store = Opened(usage.path, lasts=100)
        await usage.start()
        long = ended()
        usage.opened(long)
        for _ in range(6):
            for _ in range(60):
                usage.record(ended())
            assert await usage.writer.caught_up()
        assert 2 <= store.times <= 4
        with store.question() as cursor:
            before = store.times
            for _ in range(3):
                for _ in range(60):
                    usage.record(ended())
                assert await usage.writer.caught_up()
            assert store.times == before, "not from under a question"
            assert cursor.execute("SELECT count(*) FROM calls").fetchall() == [(540,)]
        usage.record(long)
        assert await usage.value("SELECT count(DISTINCT id) FROM calls WHERE outcome = 'completed'") == 541
        assert store.times == before + 1
        assert await usage.value("SELECT count(*) FROM calls") == 541


async def test_old_rows_are_deleted(tmp_path: Path) -> None:
    now = [time.time_ns()]
    async with accounts(tmp_path, retention=86400.0, clock=Clock(wall=lambda: now[0])) as usage:
        usage.record(ended(started_ns=now[0] - 3 * 86400 * 10**9))
        usage.record(ended(started_ns=now[0]))
        assert await usage.value("SELECT count(*) FROM calls") == 2
        usage.writer._kept = -10_000.0
        assert await usage.value("SELECT count(*) FROM calls") == 1
        assert await usage.value("SELECT count(*) FROM attempts") == 1


async def test_a_spool_that_is_deleted_costs_what_lay_in_it_and_no_more(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        for _ in range(5):
            usage.record(ended())
        usage.writer._sealed |= usage.spool.seal(sync=False)
        for _ in range(5):
            usage.record(ended())
        shutil.rmtree(usage.spool.folder)
        await usage.start()
        assert await usage.value("SELECT count(*) FROM calls") == 0
        assert (usage.spooling.lost, usage.state.broken) == (10, 0)
        for _ in range(5):
            usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == 5
        assert (usage.spooling.lost, usage.problem) == (10, "")


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_database_that_goes_while_it_is_in_use(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Rows go into the one that is there, what was under way as well; those in the old one are whoever's that took it."""
    async with accounts(tmp_path) as usage:
        under_way = begun()
        usage.opened(under_way)
        for _ in range(5):
            usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == 5
        if how == "replaced":
            other = Store(tmp_path / "other.duckdb")
            other.open()
            other.close()
            other.path.replace(usage.path)
        else:
            usage.path.unlink()
        with caplog.at_level(logging.ERROR):
            usage.record(ended())
            assert await usage.value("SELECT count(*) FROM calls") == 1
        assert f"was {how} while it was in use, with the 5 calls that were in it" in caplog.text
        assert (usage.state.phase, usage.problem) == ("ready", "")
    async with accounts(tmp_path) as usage:
        await until(lambda: usage.state.interrupted == 1)
        assert await usage.rows("SELECT outcome FROM calls WHERE id = '" + under_way.id + "'") == [["interrupted"]]
        assert await usage.value("SELECT count(*) FROM calls") == 2


async def test_a_database_that_goes_between_a_commit_and_the_end_of_its_segment(tmp_path: Path) -> None:
    """The segment is not deleted for a database that nobody will read."""
    async with accounts(tmp_path, start=False) as usage:
        gone: list[Path] = []

        def go() -> None:
            if not gone:
                gone.append(usage.path.rename(tmp_path / "aside.duckdb"))

        odd(usage, after=go)
        for _ in range(5):
            usage.record(ended())
        await usage.start()
        assert await usage.value("SELECT count(*) FROM calls") == 5
        assert len(gone) == 1


async def test_a_pipe_in_the_place_of_the_database(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "usage.duckdb")
    async with accounts(tmp_path) as usage:
        usage.record(ended())
        assert not await usage.writer.caught_up()
        assert "no regular file" in usage.problem
    (tmp_path / "usage.duckdb").unlink()
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == 1


async def test_a_disk_that_answers_no_more_holds_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    answers = threading.Event()
    spool = Spool(tmp_path / "usage.duckdb.spool")
    writer = UsageWriter(spool, Odd(tmp_path / "usage.duckdb", before=lambda: bool(answers.wait()) and None), Prices(()), patience=0.05)
    spool.closed(ended())
    writer.start()
    thread = writer._thread
    assert thread is not None
    assert thread.daemon
    with caplog.at_level(logging.ERROR):
        await asyncio.wait_for(writer.aclose(), 5)
    assert "answers no more" in caplog.text
    answers.set()
    await asyncio.to_thread(thread.join)
    spool.close()


async def test_a_slow_end_is_waited_for(tmp_path: Path) -> None:
    """As long as rows are moved."""
    spool = Spool(tmp_path / "usage.duckdb.spool", segment=1)
    store = Odd(tmp_path / "usage.duckdb", after=lambda: time.sleep(0.15))
    writer = UsageWriter(spool, store, Prices(()), patience=1.0)
    for _ in range(10):
        spool.closed(ended())
    writer.start()
    await writer.aclose()
    assert (writer.state.phase, writer.state.moved) == ("stopped", 10)
    assert store.batches == [1] * 10, "each took a part of the patience, all of them more than all of it"
    spool.close()


async def test_nobody_waits_for_a_writer_that_has_ended(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        await usage.writer.aclose()
        assert usage.state.phase == "stopped"
        assert not await asyncio.wait_for(usage.writer.caught_up(), 1)
        await usage.writer.aclose()


async def test_an_idle_writer_does_nothing(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        assert await usage.writer.caught_up()
        [thread] = [thread for thread in threading.enumerate() if thread.name == "spangate.usage"]
        await asyncio.sleep(1.2)
        before = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().split()[13:15]  # noqa: ASYNC240
        await asyncio.sleep(0.5)
        assert Path(f"/proc/self/task/{thread.native_id}/stat").read_text().split()[13:15] == before  # noqa: ASYNC240


async def test_whoever_asks_and_leaves_disturbs_nobody(tmp_path: Path) -> None:
    async with accounts(tmp_path) as usage:
        task = asyncio.create_task(usage.writer.caught_up())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == 1


@pytest.mark.fault("STO-03")
def test_a_full_disk(tmp_path: Path) -> None:
    """In a child whose files may not grow: calls go on, losses are counted, and when there is space again no restart is needed."""
    program = FULL.format(tests=str(Path(__file__).parents[2]), folder=str(tmp_path))
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["failed", "ready", "0", "True"]


FULL = """
import asyncio, resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from accounts import accounts, ended
async def main():
    async with accounts(Path({folder!r})) as usage:
        for _ in range(500):
            usage.record(ended())
        assert await usage.value("SELECT count(*) FROM calls") == 500
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = Path({folder!r}, "usage.duckdb.wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, hard))  # room for some lines of the spool, not for the log
        for _ in range(60):
            usage.record(ended())
        written = usage.spooling.lost
        assert not await usage.writer.caught_up()
        print(usage.state.phase)
        assert usage.problem.startswith("usage rows wait"), usage.problem
        for _ in range(20):
            usage.record(ended())
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await usage.writer.caught_up(), usage.state
        print(usage.state.phase, usage.spooling.lost)
        print(await usage.value("SELECT count(*) FROM calls") == 580 - usage.spooling.lost)
asyncio.run(main())
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """48 MiB of memory as a disk: for root on Linux."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.soak
@pytest.mark.mount
@pytest.mark.fault("STO-03")
async def test_a_disk_that_fills_up_and_is_freed(small_disk: Path) -> None:
    """Over and over, at whatever it was doing: no restart, nothing lost that was not counted, nothing twice."""
    async with accounts(small_disk) as usage:
        calls, ballast = 0, small_disk / "ballast"
        for left in (8 << 20, 4 << 20, 2 << 20, 1 << 20, 300_000, 50_000, 0):
            there = os.statvfs(small_disk)
            with suppress(OSError):
                ballast.write_bytes(bytes(there.f_bavail * there.f_bsize - left))
            for _ in range(40):
                for _ in range(200):
                    usage.record(ended())
                    calls += 1
                await asyncio.sleep(0.02)
            await usage.writer.caught_up()
            ballast.unlink()
            while not await usage.writer.caught_up():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert await usage.rows("SELECT count(*), count(DISTINCT id) FROM calls") == [[calls - usage.spooling.lost] * 2]
        print(f"{calls} calls, {usage.spooling.lost} lost and counted")
        assert 0 < usage.spooling.lost < calls
        usage.record(ended())
        assert (usage.state.phase, usage.problem) == ("ready", "")


MILLION = 1_000_000


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_million_calls(tmp_path: Path) -> None:
    from random import Random

    random = Random(5)
    store, prices = Store(tmp_path / "usage.duckdb"), Prices()
    spool = Spool(tmp_path / "spool", most=4 * 2**30)
    writer = UsageWriter(spool, store, prices, clock=SYSTEM)
    started = time.time_ns() - 30 * 86400 * 10**9
    for number in range(MILLION):
        seen = ended(
            team=f"team-{number % 40}",
            key=f"key-{number % 7}",
            user=f"user-{random.randrange(3000)}",
            model=random.choice(["fast", "strong"]),
        )
        seen.started_ns = seen.attempts[0].started_ns = started + number * 2_592_000_000
        seen.trace_id, seen.attempts[0].span_id = random.getrandbits(128), random.getrandbits(64)
        seen.ended = seen.started + random.random() * 5
        seen.attempts[0].ended = seen.ended - random.random() / 1000
        seen.first_content = seen.started + random.random()
        seen.attempts[0].target_model = seen.target_model = "gpt-5-mini"
        seen.attempts[0].upstream_request_id = f"req_{random.getrandbits(128):032x}"
        spool.opened(seen)
        spool.closed(seen)
    began = time.perf_counter()
    writer.start()
    assert await writer.caught_up()
    seconds = time.perf_counter() - began
    times = {}
    with store.question() as connection:  # as people ask: the writer renews its handle after a million calls, but not meanwhile
        for view in ("usage_daily", "usage_by_team", "usage_by_model", "spend_forecast"):
            began = time.perf_counter()
            assert connection.execute(f"SELECT * FROM {view}").fetchall()
            times[view] = round((time.perf_counter() - began) * 1000)
    await writer.aclose()
    spool.close()
    size = store.path.stat().st_size / MILLION
    print(f"{MILLION / seconds:,.0f} calls/s, {2 * MILLION / seconds:,.0f} rows/s, {size:.0f} bytes a call, views in ms: {times}")
    assert 2 * MILLION / seconds >= 20_000
    assert size <= 300
    assert max(times.values()) <= 300
