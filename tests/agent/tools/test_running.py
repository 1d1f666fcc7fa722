"""agent/tools/running.py: time and size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from spangate.agent import DataBlock, TextBlock, tool
from spangate.agent.messages.blocks import Base64Source
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


def test_beginning_and_end_stay() -> None:
    assert cut([TextBlock("abc")], 3, 0)[1] == 0
    blocks, removed = cut([TextBlock("a" * 100), DataBlock(Base64Source("AA", "image/png")), TextBlock("z" * 100)], 40, 2)
    assert removed == 160
    assert isinstance(blocks[0], TextBlock)
    assert blocks[0].text == f"{'a' * 30}\n[… 160 of 200 characters were cut out here …]\n{'z' * 10}"
    assert blocks[1].type == "data"
