"""The system's clock tells the time, and a test can give another."""

from __future__ import annotations

import time

from spangate.call.clock import SYSTEM, Clock


def test_the_system_clock_tells_both_times() -> None:
    before, after = (time.time_ns(), time.monotonic()), (SYSTEM.wall(), SYSTEM.mono())
    assert abs(after[0] - before[0]) < 60e9, "nanoseconds since the epoch"
    assert 0 <= after[1] - before[1] < 60, "seconds that only go forward"


def test_a_clock_is_two_hands() -> None:
    clock = Clock(wall=lambda: 5, mono=lambda: 0.5)
    assert (clock.wall(), clock.mono()) == (5, 0.5)
