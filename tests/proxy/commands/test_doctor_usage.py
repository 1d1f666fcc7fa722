"""The database, its spool and the disk: as they may lie there, and looked at without leaving a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from spangate.exporters.usage import segments
from spangate.exporters.usage.schema import MIGRATIONS
from spangate.exporters.usage.settings import Usage
from spangate.exporters.usage.store import Store
from spangate.proxy.commands.doctor_findings import Finding
from spangate.proxy.commands.doctor_gateway import Gateway
from spangate.proxy.commands.doctor_usage import disk, file_system_of, remote, spooled, standing, unwritable, usage

from program import left_in

RUNS = Gateway("usage.duckdb.sock", {"status": "ready", "config_version": "1"})


def found(folder: Path, gateway: Gateway | None = None, other: Gateway | None = None, **settings: str | int) -> dict[str, Finding]:
    """By what was looked at; nothing is left."""
    before = left_in(folder) if folder.is_dir() else []
    told = usage(Usage.model_validate({"path": "usage.duckdb"} | settings), folder, gateway, other)
    assert (left_in(folder) if folder.is_dir() else []) == before
    return {finding.check: finding for finding in told}


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Another process that has the database, and its number."""
    code = f"import duckdb; held = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.send_signal(signal.SIGKILL)


def test_before_the_first_start_nothing_is_made(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert {name: finding.level for name, finding in told.items()} == {"database": "ok", "spool": "ok", "disk": "ok"}
    assert told["database"].words.endswith("usage.duckdb can be made")
    assert found(tmp_path / "deep" / "down")["database"].level == "ok"
    assert left_in(tmp_path) == []


def test_none_is_kept(tmp_path: Path) -> None:
    [finding] = usage(Usage(enabled=False), tmp_path, None)
    assert (finding.level, "enabled" in finding.mend) == ("off", True)


def test_a_database_that_fits(tmp_path: Path) -> None:
    store = Store(tmp_path / "usage.duckdb")
    store.open()
    store.close()
    assert found(tmp_path)["database"].words.endswith("usage.duckdb can be written")


def test_an_older_one_is_left_as_it_is(tmp_path: Path) -> None:
    duckdb.connect(tmp_path / "usage.duckdb").close()
    told = found(tmp_path)["database"].words
    assert told.endswith(f"the next start brings it from version 0 to {len(MIGRATIONS)}")


def test_a_newer_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "usage.duckdb")
    store.open()
    store.connection.execute(f"INSERT INTO spangate.version VALUES ({len(MIGRATIONS) + 1}, now()::TIMESTAMP)")
    store.close()
    assert found(tmp_path)["database"].words.endswith("was written by a newer spangate: update this one")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb").write_bytes(b"nothing of the kind" * 1000)
    told = found(tmp_path)["database"]
    assert (told.level, "can't be opened" in told.told) == ("problem", True)


def test_another_process_has_it(tmp_path: Path) -> None:
    with held(tmp_path / "usage.duckdb") as pid:
        told = found(tmp_path)["database"]
        assert (told.level, f"held by process {pid}" in told.told) == ("problem", True)
        assert "leave a gateway alone" in told.mend
        assert found(tmp_path, other=Gateway("http://127.0.0.1:8484", RUNS.told))["database"].level == "ok"


def test_a_gateway_that_nobody_finds_has_it(tmp_path: Path) -> None:
    (spool := tmp_path / "usage.duckdb.spool").mkdir()
    lease = segments.Lease(spool, f"{1:016x}-{2:08x}")
    with held(tmp_path / "usage.duckdb") as pid:
        told = found(tmp_path)["database"]
        assert told.level == "ok"
        assert told.words.endswith(f"process {pid}, as by a gateway that writes the spool and listens elsewhere")
        lease.release()
        assert found(tmp_path)["database"].level == "problem"


def test_a_gateway_that_runs_tells_itself(tmp_path: Path) -> None:
    assert found(tmp_path, RUNS)["database"].level == "ok"
    told = found(tmp_path, Gateway("x", RUNS.told | {"usage": "usage rows wait in usage.duckdb.spool: no space"}))["database"]
    assert (told.level, told.told) == ("problem", "the gateway says: usage rows wait in usage.duckdb.spool: no space")


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way, for root too")
    told = found(tmp_path / "file")
    assert [told[name].level for name in ("database", "spool")] == ["problem", "problem"]
    assert "Not a directory" in told["database"].told
    assert unwritable(tmp_path) is None
    assert standing(tmp_path / "file" / "below") == tmp_path


def test_a_path_without_room_for_a_socket(tmp_path: Path) -> None:
    (folder := tmp_path / ("x" * 90)).mkdir()
    assert found(folder)["socket"].level == "warning"


def test_what_waits_in_the_spool(tmp_path: Path) -> None:
    spool = tmp_path / "usage.duckdb.spool"
    spool.mkdir()
    (spool / f"{1:016x}-{2:08x}-{3:08d}.seg").write_bytes(b"x" * 5000)
    assert found(tmp_path)["spool"].words == "5,000 bytes in 1 segment wait for the next start"
    (spool / f"{1:016x}-{2:08x}-{4:08d}.seg").write_bytes(b"x" * 600_000)
    assert found(tmp_path, max_spool=2**20)["spool"].level == "warning"


def test_what_could_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.bad").write_bytes(b"")
    told = list(spooled(tmp_path, Usage(), None))
    assert [each.level for each in told] == ["ok", "warning"]


def test_room_on_the_disk() -> None:
    assert [disk(Path("x"), free).level for free in (5 << 30, 500 << 20, 50 << 20)] == ["ok", "warning", "problem"]
    assert disk(Path("x"), 50 << 20).told == "50 MiB free where x lies"


MOUNTS = """\
22 1 0:21 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:22 / {folder}/far rw,relatime shared:1 - ext4 /dev/sdb1 rw
24 23 0:23 / {folder}/far rw,relatime shared:1 - nfs4 server:/rows rw
25 22 0:24 / {folder}/a\\040b rw,relatime - fuse.sshfs host: rw
26 22 0:25 / {folder}/farther rw,relatime - xfs /dev/sdc1 rw
a line of another shape
"""


@pytest.mark.parametrize(
    ("path", "kind"), [("far/x.spool", "nfs4"), ("far", "ext4"), ("farther/x", "xfs"), ("a b/deep/er/x", "fuse.sshfs"), ("x", "ext4")]
)
def test_which_file_system_a_path_is_on(path: str, kind: str, tmp_path: Path) -> None:
    for name in ("far", "farther", "a b"):
        (tmp_path / name).mkdir()
    (tmp_path / "mounts").write_text(MOUNTS.format(folder=tmp_path))
    assert file_system_of(tmp_path / path, tmp_path / "mounts") == kind
    assert file_system_of(tmp_path / path, tmp_path / "none") == ""


@pytest.mark.parametrize(("kind", "told"), [("nfs4", 1), ("cifs", 1), ("fuse.s3fs", 1), ("ext4", 0), ("overlay", 0), ("tmpfs", 0), ("", 0)])
def test_what_others_serve_may_hang(kind: str, told: int) -> None:
    findings = list(remote(Path("x.spool"), kind))
    assert [(each.level, f"lies on {kind}" in each.told) for each in findings] == [("warning", True)] * told
