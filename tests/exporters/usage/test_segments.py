"""The files of the spool, and whether their writers live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spangate.call.clock import SYSTEM, Clock
from spangate.exporters.usage import segments
from spangate.exporters.usage.segments import (
    KEPT,
    LARGEST,
    NAME,
    Lease,
    content,
    found,
    instances,
    is_alive,
    new_instance,
    seal,
    segment_path,
)

ONE = "0000000000000001-00000001"
TWO = "0000000000000002-00000001"


def test_names_sort_by_start_then_by_writing(tmp_path: Path) -> None:
    early, late = (new_instance(Clock(wall=lambda at=at: at)) for at in (10**18, 2 * 10**18))
    for instance, number in ((late, 1), (early, 10), (early, 9), (early, 2)):
        segment_path(tmp_path, instance, number).touch()
    assert [(segment.instance, segment.name[-2:]) for segment in found(tmp_path)] == [
        (early, "02"),
        (early, "09"),
        (early, "10"),
        (late, "01"),
    ]
    assert NAME.fullmatch(segment_path(tmp_path, new_instance(SYSTEM), 1).name)
    assert new_instance(SYSTEM) != new_instance(SYSTEM)


def test_what_else_lies_there_is_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", f"{ONE}-00000001.bad", f"{ONE}.lock", "x.seg", f"{ONE}-1.seg", f"../{ONE}-00000001.seg".replace("/", "_")):
        (tmp_path / name).touch()
    assert found(tmp_path) == []
    assert found(tmp_path / "nowhere") == []
    assert segments.size_of(tmp_path / "nowhere") == 0


def test_a_sealed_segment_keeps_its_name(tmp_path: Path) -> None:
    path = segment_path(tmp_path, ONE, 1)
    path.write_bytes(b"abc")
    [written] = found(tmp_path)
    seal(path)
    [sealed] = found(tmp_path)
    assert (written.name, written.sealed, sealed.name, sealed.sealed) == (sealed.name, False, written.name, True)
    assert content(sealed) == b"abc"
    assert segments.size_of(tmp_path) == 3


def test_what_can_not_be_ours(tmp_path: Path) -> None:
    path = segment_path(tmp_path, ONE, 1)
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    assert content(found(tmp_path)[0]) is None
    path.unlink()
    path.mkdir()
    assert content(found(tmp_path)[0]) is None


def test_of_broken_ones_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        segment_path(tmp_path, ONE, number).touch()
    for segment in found(tmp_path):
        segments.set_aside(segment)
    assert found(tmp_path) == []
    assert sorted(path.name[26:34] for path in tmp_path.glob("*.bad")) == [f"{number:08d}" for number in range(5, KEPT + 5)]


def test_a_process_lives_as_long_as_its_lock(tmp_path: Path) -> None:
    lease = Lease(tmp_path, ONE)
    assert is_alive(tmp_path, ONE)
    assert not is_alive(tmp_path, TWO)
    segment_path(tmp_path, TWO, 1).touch()
    assert instances(tmp_path) == {ONE, TWO}
    lease.release()
    assert not is_alive(tmp_path, ONE)
    assert instances(tmp_path) == {TWO}


def test_a_killed_process_lives_no_more(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from spangate.exporters.usage import segments
from spangate.exporters.usage.segments import Lease, found
lease = Lease(Path({str(tmp_path)!r}), {ONE!r})
print("locked", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert is_alive(tmp_path, ONE)
        child.kill()
        child.wait()
    assert not is_alive(tmp_path, ONE)
    assert instances(tmp_path) == {ONE}
    segments.bury(tmp_path, [ONE])
    assert instances(tmp_path) == set()


def test_a_lock_that_was_taken_away(tmp_path: Path) -> None:
    lease = Lease(tmp_path, ONE)
    assert lease.stands()
    lease.path.unlink()
    assert not lease.stands()
    again = Lease(tmp_path, ONE)
    assert (lease.stands(), again.stands()) == (False, True)
    again.release()
    lease.release()


def test_a_lock_is_let_go_where_no_folder_is(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    lease = Lease(tmp_path / "spool", ONE)
    lease.path.unlink()
    lease.path.parent.rmdir()
    lease.path.parent.write_text("in the way")
    lease.release()


def test_a_lock_that_can_not_be_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Lease(tmp_path / "nowhere", ONE)
