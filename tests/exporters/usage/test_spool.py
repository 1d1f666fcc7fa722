"""The appending side: two writes a call, and never a failed one."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.exporters.usage import segments, spool_lines
from spangate.exporters.usage.spool import Spool
from spangate.exporters.usage.spool_lines import Closing, Opening

from accounts import ended
from finished import call


def written(folder: Path) -> list[spool_lines.Line | None]:
    """What all segments say, in order."""
    return [spool_lines.read(line) for segment in segments.found(folder) for _, line in spool_lines.lines(segments.content(segment) or b"")]


def test_two_lines_a_call(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    seen = ended()
    spool.opened(seen, {"input": 5})
    spool.closed(seen)
    first, second = written(spool.folder)
    assert isinstance(first, Opening)
    assert isinstance(second, Closing)
    assert first.id == second.id == seen.id
    assert spool.state.bytes == segments.size_of(spool.folder)
    spool.close()


def test_each_line_is_there_at_once(tmp_path: Path) -> None:
    """One write, no buffer of ours: what a killed process wrote is kept by the kernel."""
    spool = Spool(tmp_path / "spool")
    for number in range(1, 5):
        spool.closed(ended())
        assert len(written(spool.folder)) == number
    spool.close()


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.closed(ended())
    assert spool.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in spool.folder.iterdir()} == {0o600}
    spool.close()


def test_segments_by_size(tmp_path: Path) -> None:
    woken: list[int] = []
    spool = Spool(tmp_path / "spool", segment=2000)
    spool.wake = lambda: woken.append(1)
    for _ in range(40):
        spool.closed(ended())
    spool.seal(sync=True)
    sealed = segments.found(spool.folder)
    assert len(sealed) > 5
    assert all(segment.sealed for segment in sealed)
    assert all(2000 <= segment.path.stat().st_size < 3000 for segment in sealed[:-1])
    assert len(woken) >= len(sealed)
    assert len(written(spool.folder)) == 40
    spool.close()


def test_sealing_by_time_gives_the_writer_what_there_is(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.seal(sync=True)
    assert segments.found(spool.folder) == []
    spool.closed(ended())
    assert spool.active == segments.found(spool.folder)[0].name
    spool.seal(sync=False)
    assert spool.active == ""
    assert [segment.sealed for segment in segments.found(spool.folder)] == [True]
    spool.closed(ended())
    assert len(segments.found(spool.folder)) == 2
    spool.close()
    assert all(segment.sealed for segment in segments.found(spool.folder))
    assert not list(spool.folder.glob("*.lock"))


def test_certainty_before_a_segment_is_sealed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = Spool(tmp_path / "spool", segment=300)
    spool.sync()  # nothing is written yet
    spool.closed(ended())
    assert spool.active == "", "full, and not sealed yet"
    spool.sync()
    spool.closed(ended())
    spool.sync()
    assert not caplog.records
    retired, _, _ = spool._retired[0]
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, retired)  # a disk whose word can't be had: what lies there knows no fsync
    os.close(other)
    spool.sync()
    assert ["doesn't vouch" in record.message for record in caplog.records] == [True]
    spool.seal(sync=False)
    assert len(written(spool.folder)) == 2
    spool.close()


def test_lines_are_not_mixed_by_a_thread_that_seals(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", segment=5000)
    stop = threading.Event()

    def seal() -> None:
        while not stop.is_set():
            spool.seal(sync=False)
            spool.measure()

    thread = threading.Thread(target=seal)
    thread.start()
    calls = [ended() for _ in range(300)]
    for seen in calls:
        spool.closed(seen)
    stop.set()
    thread.join()
    spool.close()
    assert [line.id for line in written(spool.folder) if line] == [seen.id for seen in calls]


def test_a_folder_that_can_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "spool")
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            spool.opened(ended())
            spool.closed(ended())
    assert spool.state.lost == 50, "calls, not lines"
    assert "Not a directory" in spool.state.problem
    assert len(caplog.records) == 1, "told once, not a hundred times"
    spool.seal(sync=True)
    spool.close()


def test_a_folder_that_can_be_written_again(tmp_path: Path) -> None:
    now = [0.0]
    from spangate.call.clock import Clock

    (tmp_path / "spool").write_text("in the way")
    spool = Spool(tmp_path / "spool", clock=Clock(mono=lambda: now[0]))
    spool.closed(ended())
    (tmp_path / "spool").unlink()
    spool.closed(ended())
    assert spool.state.lost == 2, "not tried with every call"
    now[0] += 1
    spool.closed(ended())
    assert (spool.state.lost, spool.state.problem) == (2, "")
    assert len(written(spool.folder)) == 1
    spool.close()


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_folder_that_goes_while_it_is_written(tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """What lay in it is counted; what follows lies in a folder that is made again, under a lock that others see."""
    spool = Spool(tmp_path / "spool", segment=2000)
    lost = 0
    with caplog.at_level(logging.ERROR):
        for round in range(3):
            for _ in range(10):
                spool.closed(ended())
            if how == "deleted":
                shutil.rmtree(spool.folder)
            else:
                spool.folder.rename(tmp_path / f"aside{round}")
            spool.closed(ended())
            assert spool.seal(sync=True) == {segment.name: 1 for segment in segments.found(spool.folder)}
            lost += 11 - len(written(spool.folder))
            assert (spool.state.lost, spool.state.problem) == (lost, "")
            for segment in segments.found(spool.folder):  # a writer took them
                segment.path.unlink()
    assert lost >= 30
    assert len(caplog.records) == 1, "told once, not with each segment"
    assert "segments were deleted" in caplog.text
    spool.closed(ended())
    assert len(written(spool.folder)) == 1
    assert segments.is_alive(spool.folder, spool.instance)
    spool.close()


def test_what_is_lost_is_counted_in_calls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A call has lost its row with the line of its end; without the other line alone it has one."""
    spool = Spool(tmp_path / "spool")
    one, two = ended(), ended()
    (tmp_path / "spool").write_text("in the way")
    spool.opened(one)
    assert (spool.state.lost, spool.state.problem, caplog.messages) == (0, "File exists", [])
    (tmp_path / "spool").unlink()
    spool._next_try = 0.0
    spool.closed(one)
    spool.opened(two)
    spool.closed(two)
    spool.opened(ended())
    shutil.rmtree(spool.folder)
    assert spool.seal(sync=False) == {}
    assert spool.state.lost == 2, "two ends, of the four lines that lay there"
    spool.opened(ended())
    shutil.rmtree(spool.folder)
    assert spool.seal(sync=False) == {}
    assert (spool.state.lost, len(caplog.messages)) == (2, 1)
    spool.close()


def test_it_holds_so_much_and_no_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", most=10_000, segment=2000)
    for _ in range(100):
        spool.closed(ended())
    assert segments.size_of(spool.folder) <= 10_000
    assert spool.state.lost == 100 - len(written(spool.folder)) > 50
    assert "usage.max_spool" in spool.state.problem
    spool.seal(sync=False)
    for segment in segments.found(spool.folder):  # a writer took them
        segment.path.unlink()
    spool.measure()
    spool.closed(ended())
    assert (spool.state.problem, len(written(spool.folder))) == ("", 1)
    spool.close()


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from accounts import ended
from spangate.exporters.usage.spool import Spool
spool = Spool(Path({folder!r}))
spool.closed(ended())
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (spool.state.bytes + 100, hard))
for _ in range(20):
    spool.closed(ended())
lost = spool.state
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
for _ in range(5):
    spool.closed(ended())
print(lost.lost, repr(lost.problem), spool.state.lost, repr(spool.state.problem))
spool.close()
"""


@pytest.mark.fault("STO-03")
def test_a_disk_that_fills_up_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """The piece of a line that still fitted is taken back: what is lost is counted, and nothing is broken."""
    program = FULL.format(tests=str(Path(__file__).parents[2]), folder=str(tmp_path / "spool"))
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "20 'File too large' 20 ''\n"  # in the system's words: it wasn't the disk
    lines = written(tmp_path / "spool")
    assert [isinstance(line, Closing) for line in lines] == [True] * 6


@given(st.lists(st.tuples(st.integers(0, 4000), st.binary(min_size=1, max_size=40)), max_size=4))
def test_what_is_broken_costs_itself_alone(harm: list[tuple[int, bytes]]) -> None:
    """Bytes are overwritten anywhere: each line that they miss is read."""
    calls = [call(id=f"req_{number}", team="search") for number in range(12)]
    lines = [spool_lines.closing(seen) for seen in calls]
    data = bytearray(b"".join(lines))
    hurt = set()
    for anywhere, bytes_of in harm:
        at = anywhere % len(data)
        junk = bytes_of[: len(data) - at]
        end = 0
        for number, line in enumerate(lines):
            start, end = end, end + len(line)
            if start < at + len(junk) and at < end and data[at : at + len(junk)] != junk:
                hurt |= {number, number + 1} if at < end <= at + len(junk) else {number}
        data[at : at + len(junk)] = junk
    read = {line.id for _, raw in spool_lines.lines(bytes(data)) if (line := spool_lines.read(raw))}
    assert {f"req_{number}" for number in range(12) if number not in hurt} <= read <= {seen.id for seen in calls}


def test_a_call_pays_for_two_writes(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    seen = ended()
    spool.opened(seen)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(2000):
        spool.opened(seen)
        spool.closed(seen)
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 2000
    print(f"spool: {spent * 1e6:.1f} µs a call, {os.fspath(spool.folder)}")
    assert spent < 100e-6
    spool.close()
