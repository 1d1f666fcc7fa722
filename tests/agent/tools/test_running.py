"""agent/tools/running.py: time and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from spangate.agent import Agent, DataBlock, DeadlineExceeded, ScriptedModel, TextBlock, calls, tool
from spangate.agent.messages.blocks import Base64Source
from spangate.agent.tools import running
from spangate.agent.tools.running import ToolTimeout, cut, ran


async def test_the_outsides_time_is_not_the_tools() -> None:
    @tool(time_limit=10)
    async def two() -> AsyncIterator[str]:
        """Two."""
        yield "a"
        yield "b"

    async with aclosing(ran(two, {})) as pieces:
        seen = []
        async for piece in pieces:
            seen.append(piece.text)
            await asyncio.sleep(0.01)
    assert seen == ["a", "b"]


async def test_a_tools_own_timeout_is_its_own() -> None:
    @tool(time_limit=10)
    async def impatient() -> str:
        """Impatient."""
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine") as caught:
        async with aclosing(ran(impatient, {})) as pieces:
            await anext(pieces)
    assert not isinstance(caught.value, ToolTimeout)


class Stubborn:
    """A tool that nothing ends but its gate."""

    def __init__(self, **options: Any) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.tool = tool(name="stubborn", description="Goes on.", **options)(self._run)

    async def _run(self) -> str:
        self.begun.set()
        while not self.gate.is_set():
            with suppress(asyncio.CancelledError):
                await self.gate.wait()
        return "done"

    async def let_go(self) -> None:
        [left] = running._left
        self.gate.set()
        await asyncio.wait([left], timeout=5)
        await asyncio.sleep(0)  # its callbacks' turn
        assert not running._left

    def agent(self) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel.saying(calls("stubborn"), "fine")
        return Agent("a", None, model, [self.tool]), model


async def test_a_tool_that_is_not_to_be_cancelled_keeps_no_reply(caplog: pytest.LogCaptureFixture) -> None:
    stubborn = Stubborn(time_limit=0.02)
    agent, model = stubborn.agent()
    async with asyncio.timeout(5):
        assert (await agent("go")).text == "fine"
    said = "stubborn failed: ToolTimeout: stubborn took longer than 0.02 seconds and does not let itself be stopped."
    assert model.calls[1]["messages"][-1]["content"] == said
    assert caplog.messages == ["stubborn does not end and is no longer waited for; there are 1 such tools"]
    await stubborn.let_go()


@pytest.mark.parametrize("way", ["interrupt", "deadline", "cancel"])
async def test_neither_does_it_keep_back_an_end(way: str) -> None:
    stubborn = Stubborn()
    stream = stubborn.agent()[0].stream("go", deadline=0.02 if way == "deadline" else None)
    reply = asyncio.create_task(stream.result())
    await stubborn.begun.wait()
    if way != "deadline":
        stream.interrupt() if way == "interrupt" else reply.cancel()
    async with asyncio.timeout(5):
        [outcome] = await asyncio.gather(reply, return_exceptions=True)
    if way == "interrupt":
        assert outcome.finished_reason == "interrupted"  # type: ignore[union-attr]
    else:
        assert isinstance(outcome, DeadlineExceeded if way == "deadline" else asyncio.CancelledError)
    await stubborn.let_go()


async def test_a_generator_is_one_task_from_its_first_piece_to_its_closing() -> None:
    """What belongs to a task, as a timeout does, may be held across its pieces."""
    tasks = set()

    @tool
    async def many() -> AsyncIterator[str]:
        """Many."""
        try:
            async with asyncio.timeout(5):
                for _ in range(9):
                    tasks.add(asyncio.current_task())
                    yield "x"
        finally:
            tasks.add(asyncio.current_task())

    async with aclosing(ran(many, {})) as pieces:
        for _ in range(2):
            await asyncio.create_task(anext(pieces))  # type: ignore[arg-type]
    assert len(tasks) == 1


async def test_a_tool_ends_in_peace_when_it_is_stopped() -> None:
    """It is cancelled once, and has a while."""
    said = []

    @tool(time_limit=0.02)
    async def slow() -> str:
        """Slow."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)
            said.append("closed")
        return ""

    with pytest.raises(ToolTimeout, match="was stopped"):
        async with aclosing(ran(slow, {})) as pieces:
            await anext(pieces)
    assert said == ["closed"]
    assert not running._left


def test_beginning_and_end_stay() -> None:
    assert cut([TextBlock("abc")], 3, 0)[1] == 0
    blocks, removed = cut([TextBlock("a" * 100), DataBlock(Base64Source("AA", "image/png")), TextBlock("z" * 100)], 40, 2)
    assert removed == 160
    assert isinstance(blocks[0], TextBlock)
    assert blocks[0].text == f"{'a' * 30}\n[… 160 of 200 characters were cut out here …]\n{'z' * 10}"
    assert blocks[1].type == "data"
