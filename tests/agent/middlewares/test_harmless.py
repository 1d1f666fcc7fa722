"""agent/middlewares/harmless.py: a failure that stays where it is."""

from __future__ import annotations

import asyncio

import pytest

from spangate.agent.middlewares.harmless import attempted, harmless, quietly


async def test_a_failure_is_logged_by_its_kind_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    @harmless
    def tells(what: str) -> None:
        raise LookupError(what)

    async def waits(fails: bool) -> str:
        if fails:
            raise OSError("CANARY")
        return "fine"

    tells("CANARY")
    assert await quietly(waits(False)) == ("fine", True)
    assert await quietly(waits(True), "%s could not: %s", "it") == (None, False)
    assert caplog.messages == ["a span lacks what could not be written: LookupError", "it could not: OSError"]


def test_what_cannot_be_made_is_something_else(caplog: pytest.LogCaptureFixture) -> None:
    assert attempted(0, int, "7") == 7
    assert attempted(0, int, "CANARY") == 0
    assert caplog.messages == ["telemetry lacks what could not be made: ValueError"]


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    async def waits() -> None:
        raise asyncio.CancelledError

    assert await quietly(waits()) == (None, False)


async def test_a_cancellation_is_no_failure() -> None:
    waiting = asyncio.create_task(quietly(asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
