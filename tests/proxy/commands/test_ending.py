"""proxy/commands/ending.py: the first signal counts, and no other spoils what it began."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from spangate.proxy.commands.ending import SIGNALS, Ending


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, each in before.items():
        signal.signal(number, each)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
async def test_the_first_counts(number: signal.Signals, code: int) -> None:
    called: list[str] = []
    came = asyncio.Event()
    with Ending() as ending:
        ending.calls(lambda: called.append("nothing: something else was said last"))
        ending.calls(lambda: (called.append("once"), came.set()))
        for each in (number, *SIGNALS):
            send(each)
        await asyncio.wait_for(came.wait(), 5)
        assert (called, ending.came, ending.code) == (["once"], number, code)
    assert {signal.getsignal(each) for each in SIGNALS} == {signal.SIG_IGN}


async def test_one_that_came_too_early_is_not_forgotten() -> None:
    called: list[int] = []
    with Ending() as ending:
        send(signal.SIGTERM)
        ending.calls(lambda: called.append(1))
    assert called == [1]


async def test_one_that_comes_at_the_end_changes_nothing() -> None:
    called: list[int] = []
    with Ending() as ending:
        ending.calls(lambda: called.append(1))
        ending.begun()
        send(signal.SIGTERM)
        await asyncio.sleep(0)
    assert (called, ending.came) == ([], signal.SIGTERM)


def test_without_a_signal_all_is_as_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Ending():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
