"""exporters/gathered.py: calls told of some at a time, once each, whoever tells."""

from __future__ import annotations

import threading
import time

from spangate.exporters.gathered import LOOK, SLICE, TOGETHER, Gathered


def nothing() -> None:
    """No rest is needed."""


def test_a_few_wait_for_more() -> None:
    told: list[int] = []
    gathered = Gathered(told.append)
    for number in range(TOGETHER - 1):
        gathered.add(number)
    assert told == []
    gathered.add(TOGETHER - 1)
    assert told == [*range(TOGETHER)]
    assert len(gathered) == 0


def test_who_asks_gets_the_rest_and_may_look_undisturbed() -> None:
    told: list[int] = []
    gathered = Gathered(told.append, together=2)
    gathered.add(1)
    with gathered.told(nothing):
        assert told == [1]
        for number in (2, 3, 4):
            gathered.add(number)
        assert told == [1]
    gathered.add(5)
    assert told == [1, 2, 3, 4, 5]


def test_a_slice_ends_and_the_next_goes_on() -> None:
    told: list[int] = []

    def slowly(number: int) -> None:
        told.append(number)
        until = time.perf_counter() + SLICE
        while time.perf_counter() < until:
            pass

    gathered = Gathered(slowly, together=4 * LOOK)
    for number in range(4 * LOOK):
        gathered.add(number)
    assert told == [*range(LOOK)]
    gathered.catch_up(nothing)
    assert told == [*range(4 * LOOK)]


def test_what_is_pushed_out_is_not_told() -> None:
    told: list[int] = []
    gathered = Gathered(told.append)
    for number in range(3):
        gathered.add(number)
    assert gathered.push_out() == 0
    gathered.catch_up(nothing)
    assert told == [1, 2]
    assert gathered.push_out() is None


def test_each_is_told_once_while_others_ask() -> None:
    told: list[int] = []
    gathered = Gathered(told.append, together=5)
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            gathered.catch_up(nothing)

    thread = threading.Thread(target=ask)
    thread.start()
    for number in range(5000):
        gathered.add(number)
    over.set()
    thread.join(10)
    gathered.catch_up(nothing)
    assert told == [*range(5000)]
