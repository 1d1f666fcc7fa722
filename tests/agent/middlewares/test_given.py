"""agent/middlewares/given.py: functions and numbers that users give."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spangate.agent.middlewares.given import number, said_by


async def test_a_coroutine_function_runs_here_a_plain_one_in_a_thread() -> None:
    async def here() -> threading.Thread:
        return threading.current_thread()

    assert await said_by(here) is threading.main_thread()
    assert await said_by(threading.current_thread) is not threading.main_thread()


async def test_what_it_gives_is_awaited_where_it_can_be() -> None:
    async def later() -> str:
        return "later"

    assert await said_by(lambda: later()) == "later"  # noqa: PLW0108 - a plain function that gives a coroutine


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: (), ()),
        (lambda one: (one,), (1,)),
        (lambda one, two: (one, two), (1, 2)),
        (lambda *all: all, (1, 2)),
        (lambda one, own="own": (one, own), (1, "own")),
        (lambda *, own="own": (own,), ("own",)),
    ],
)
async def test_it_gets_as_many_arguments_as_it_asks_for(function: Any, said: tuple[Any, ...]) -> None:
    assert await said_by(function, 1, 2) == said


async def test_one_that_nobody_can_look_into_gets_all() -> None:
    assert await said_by(max, 1, 2) == 2


async def test_its_failure_is_its_own() -> None:
    def fails() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await said_by(fails)


@pytest.mark.parametrize("wrong", [True, "1", None, float("nan"), float("inf"), -1])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="size must be a number of at least 0"):
        number("size", wrong)


def test_a_number_above_another() -> None:
    assert number("size", 2, least=1, above=True) == 2.0
    with pytest.raises(ValueError, match="size must be a number above 1, not 1"):
        number("size", 1, least=1, above=True)
