"""exporters/pace.py: long work leaves room for others."""

from __future__ import annotations

import threading
import time

from spangate.exporters.pace import Pace


def test_others_get_their_turn() -> None:
    turns, over = 0, threading.Event()

    def other() -> None:
        nonlocal turns
        while not over.is_set():
            time.sleep(0)
            turns += 1

    thread = threading.Thread(target=other)
    thread.start()
    pace, until = Pace(slice=0.0005, breath=0.0005), time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pace.rest()
    over.set()
    thread.join()
    assert turns > 10


def test_a_short_work_rests_once() -> None:
    pace = Pace(slice=5.0, breath=0.001)
    began = time.perf_counter()
    for _ in range(1000):
        pace.rest()
    assert time.perf_counter() - began < 1.0


def test_a_long_one_rests_between_slices() -> None:
    pace = Pace(slice=0.0, breath=0.002)
    began = time.perf_counter()
    for _ in range(10):
        time.sleep(0.003)
        pace.rest()
    assert time.perf_counter() - began > 0.045
