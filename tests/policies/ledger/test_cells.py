"""Cells, counters and groups, by themselves."""

from __future__ import annotations

import pytest

from spangate.policies.ledger.cells import Cell, Fixed, Group, Momentary, Now, Sliding
from spangate.policies.windows import SECOND, SLOTS, window

from ledgers import START

MINUTE = 60 * SECOND


def now(seconds: float = 0, wall: float | None = None) -> Now:
    at = START + round(seconds * SECOND)
    return Now(at if wall is None else START + round(wall * SECOND), at)


def test_a_cell_tells_its_total_as_long_as_it_is_a_part_of_it() -> None:
    total = Cell()
    cell = Cell(total)
    cell.hold(10)
    cell.settle(4, 3)
    assert (total.reserved, total.used) == (cell.reserved, cell.used) == (6, 3)
    cell.total = None
    cell.settle(6, 6)
    assert (total.reserved, total.used) == (6, 3)


@pytest.mark.parametrize(("when", "kind"), [("hour", Fixed), ("rolling 60s", Sliding), ("in flight", Momentary)])
def test_a_group_makes_counters_of_its_window(when: str, kind: type) -> None:
    group = Group(window(when), 10)
    counter = group.counter("a", now())
    assert isinstance(counter, kind)
    assert group.counter("a", now(1)) is counter
    assert counter.look(now()).used == counter.look(now()).reserved == 0


def test_a_rolling_counter_has_the_slots_of_the_last_length() -> None:
    group = Group(window("rolling 60s"), 1000)
    counter = group.counter("a", now())
    assert isinstance(counter, Sliding)
    for second in range(200):
        counter.cell(now(second)).settle(0, 1)
    assert counter.cells == group.size == SLOTS + 1
    assert counter.look(now(199)).used == SLOTS + 1
    assert counter.fits_after(1, now(199)) == 1
    assert counter.fits_after(61, now(199)) == 61
    assert counter.fits_after(62, now(199)) is None
    assert counter.resets_at(now(199)) == now(199 + 61).wall
    assert counter.look(now(199 + 61)).used == 0
    assert counter.past(now(199 + 61))
    assert group.size == 0


def test_what_was_spent_before_is_put_where_it_belongs() -> None:
    group = Group(window("rolling 60s"), 1000)
    counter = group.counter("a", now())
    assert isinstance(counter, Sliding)
    for second in (-70, -30, -50, -30, 0, 5):
        counter.spent(now(second).wall, 1, now())
    assert [number - START // SECOND for number, _ in counter.slots] == [-50, -30, 0]
    assert counter.look(now()).used == 5
    assert counter.look(now(35)).used == 2


def test_a_counter_of_the_calendar_keeps_the_window_before_this_one() -> None:
    group = Group(window("hour"), 10)
    counter = group.counter("a", now())
    first = counter.look(now())
    first.used = 5
    for _ in range(2):
        assert counter.look(now(3600)).used == 0
        assert counter.look(now()) is first
    assert counter.weight(now()) == 5
    assert counter.look(now(3600)) is not first
    assert counter.weight(now(3600)) == 0
    assert not counter.past(now(3600))
    assert counter.past(now(4 * 3600))


def test_who_is_new_begins_with_what_the_forgotten_had_until_the_windows_end() -> None:
    group = Group(window("hour"), 3)
    for name, used in [("a", 5), ("b", 3), ("c", 9), ("d", 1)]:
        group.counter(name, now()).look(now()).settle(0, used)
    assert set(group.counters) == {"a", "c", "d"}
    assert group.floor(now()) == 3
    assert group.counter("b", now()).look(now()).used == 3
    assert group.blank(now()).look(now()).used == 3
    assert group.floor(now(3600)) == 0
    assert group.blank(now(3600)).look(now(3600)).used == 0
    assert (group.size, group.forgotten) == (3, 2)


@pytest.mark.parametrize("when", ["hour", "rolling 60s", "in flight"])
def test_who_is_settled_holds_it_no_more(when: str) -> None:
    counter = Group(window(when), 2).counter("a", now())
    cell = counter.cell(now())
    for _ in range(2):
        cell.hold(5)
    cell.settle(5, 3, 1)
    assert (counter.look(now()).reserved, counter.weight(now())) == (5, None)
    cell.settle(5, 3, 1)
    assert (counter.look(now()).reserved, counter.weight(now())) == (0, 0 if when == "in flight" else 6)


@pytest.mark.parametrize("when", ["hour", "rolling 60s", "in flight"])
def test_nobody_who_is_held_is_forgotten_though_they_hold_nothing_yet(when: str) -> None:
    group = Group(window(when), 2)
    for number in range(2):
        group.counter(str(number), now()).hold(0, now())
    for number in range(10):
        group.counter(f"more {number}", now()).cell(now()).settle(0, 1)
    assert {"0", "1"} <= set(group.counters)
    assert len(group.counters) <= 4
