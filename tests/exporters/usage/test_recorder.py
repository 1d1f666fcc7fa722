"""Usage put together: what the gateway is given."""

from __future__ import annotations

from pathlib import Path

from spangate.exporters.record import Fanout, Recorder
from spangate.exporters.usage.recorder import SpoolRecorder
from spangate.exporters.usage.settings import Price, Usage

from accounts import accounts, ended


async def test_a_call_from_its_opening_to_its_row(tmp_path: Path) -> None:
    async with accounts(tmp_path, prices=[Price.model_validate({"model": "m-big", "input": 1, "output": 2})]) as usage:
        recorder: Recorder = Fanout(usage)
        seen = ended()
        usage.opened(seen, {"input": 13})
        recorder.record(seen)
        recorder.flush()
        assert await usage.rows("SELECT id, cost, cost_source FROM calls") == [[seen.id, 0.000053, "override"]]
        assert (usage.problem, usage.state.phase, usage.spooling.lost) == ("", "ready", 0)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_the_database_lies_beside_the_configuration(tmp_path: Path) -> None:
    recorder = SpoolRecorder(Usage(path="deep/er/u.duckdb"), folder=tmp_path)
    assert recorder.path == tmp_path / "deep/er/u.duckdb"
    await recorder.start()
    recorder.record(ended())
    await recorder.aclose()
    assert sorted(names(tmp_path / "deep/er")) == ["u.duckdb", "u.duckdb.spool"]
    assert names(tmp_path / "deep/er/u.duckdb.spool") == []
    absolute = SpoolRecorder(Usage(path=str(tmp_path / "a.duckdb")), folder=tmp_path / "elsewhere")
    assert absolute.path == tmp_path / "a.duckdb"


async def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "usage.duckdb.spool").write_text("in the way")
    async with accounts(tmp_path) as usage:
        usage.record(ended())
        assert usage.problem == "usage rows are lost: File exists"
        assert usage.spooling.lost == 1


async def test_one_that_never_started_keeps_all_for_the_next(tmp_path: Path) -> None:
    async with accounts(tmp_path, start=False) as usage:
        usage.record(ended())
    async with accounts(tmp_path) as usage:
        assert await usage.value("SELECT count(*) FROM calls") == 1
