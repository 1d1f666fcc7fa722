"""exporters/record.py: who may be a Recorder, and several of them as one."""

from __future__ import annotations

import threading
from io import StringIO

import pytest

from spangate.call.seen import Seen
from spangate.exporters.console import Console
from spangate.exporters.record import Fanout, Recorder, close

from finished import call
from gateway import Kept


def test_the_recorders_there_are() -> None:
    recorders: list[Recorder] = [Console(StringIO()), Kept()]
    for each in recorders:
        each.flush()


class Broken:
    def record(self, seen: Seen) -> None:
        raise ValueError(seen.id)

    def flush(self) -> None:
        raise OSError("gone")


async def test_a_part_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    before, after = Kept(), Kept()
    fanout = Fanout(before, Broken(), after)
    seen = call()
    for _ in range(100):
        fanout.record(seen)
    fanout.flush()
    assert len(before.seen) == len(after.seen) == 100
    assert fanout.failures == {"Broken": 101}
    assert [record.getMessage() for record in caplog.records] == ["Broken failed, 1 times by now: ValueError"]


def test_a_fanout_is_a_recorder() -> None:
    recorder: Recorder = Fanout()
    recorder.record(call())
    recorder.flush()


class Meeting(Kept):
    """Ends when the others do."""

    def __init__(self, all_there: threading.Barrier) -> None:
        super().__init__()
        self._all_there = all_there

    def close(self) -> None:
        self._all_there.wait(5)


def test_all_parts_end_at_once() -> None:
    """Each may wait as long as its collector lets it: one after another they would be waited for together."""
    all_there = threading.Barrier(2)
    fanout = Fanout(Meeting(all_there), Broken(), Meeting(all_there))
    close(fanout)
    assert fanout.failures == {"Broken": 1}
    close(Fanout())


class Answering(Kept):
    def flush(self) -> bool:  # type: ignore[override]
        return True


async def test_what_a_part_returns_is_its_own_affair() -> None:
    fanout = Fanout(Answering())
    fanout.record(call())
    fanout.flush()
    assert fanout.failures == {}
