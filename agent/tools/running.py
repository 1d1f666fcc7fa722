"""One run of one tool: within its time, and its result within its size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ..messages.blocks import DataBlock, TextBlock
from .chunks import ToolChunk
from .tool import ToolBase


class ToolTimeout(TimeoutError):
    """A tool took longer than it may."""


async def ran(tool: ToolBase, kwargs: Mapping[str, Any]) -> AsyncGenerator[ToolChunk, None]:
    """The pieces of a tool's result, layers and all.

    Raises:
        ToolTimeout: its time was up. A thread can't be stopped, so what a plain function was doing may still go on.
    """
    pieces = tool.stream(**kwargs)
    ends = None if tool.time_limit is None else asyncio.get_running_loop().time() + tool.time_limit
    try:
        while True:
            # Set anew for each piece: no time limit is held while the outside has its turn.
            limit = asyncio.timeout_at(ends)
            try:
                async with limit:
                    piece = await anext(pieces, None)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise ToolTimeout(f"{tool.name} took longer than {tool.time_limit:g} seconds and was stopped.") from None
            if piece is None:
                return
            yield piece
    finally:
        await pieces.aclose()


def cut(content: Sequence[TextBlock | DataBlock], limit: int) -> tuple[list[TextBlock | DataBlock], int]:
    """The content with at most about `limit` characters of text, its beginning and its end, and how many were taken out."""
    said = sum(len(block.text) for block in content if isinstance(block, TextBlock))
    if said <= limit:
        return list(content), 0
    head, tail = limit - limit // 4, limit // 4
    text = "".join(block.text for block in content if isinstance(block, TextBlock))
    removed = len(text) - head - tail
    shown = f"{text[:head]}\n[… {removed} of {len(text)} characters were cut out here …]\n{text[len(text) - tail :]}"
    return [TextBlock(shown), *(block for block in content if isinstance(block, DataBlock))], removed
