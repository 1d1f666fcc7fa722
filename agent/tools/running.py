"""One run of one tool: within its time, its result within its size, and nothing ended but itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import is_cancelled
from ..messages.blocks import DataBlock, TextBlock
from .chunks import ToolChunk, weight
from .tool import ToolBase

MOST = 1 << 24
"""Characters that a tool may give piece by piece; none that a model reads is as long."""
_TURN = 64  # pieces after which the loop turns, if the tool itself never waits


class ToolTimeout(TimeoutError):
    """A tool took longer than it may."""


class ToolOverflow(RuntimeError):
    """A tool gave piece after piece, and more than anyone will keep."""


class ToolExit(RuntimeError):
    """A tool meant to end more than itself: it raised SystemExit, or a cancellation that nobody had asked for."""


async def ran(tool: ToolBase, kwargs: Mapping[str, Any]) -> AsyncGenerator[ToolChunk, None]:
    """The pieces of a tool's result, layers and all.

    Raises:
        ToolTimeout: its time was up. A thread can't be stopped, so what a plain function was doing may still go on.
        ToolOverflow: it gave too much.
        ToolExit: it would have ended the reply, or the program.
    """
    pieces = tool.stream(**kwargs)
    ends = None if tool.time_limit is None else asyncio.get_running_loop().time() + tool.time_limit
    given = size = 0
    try:
        while (piece := await _next(tool, pieces, ends)) is not None:
            given += 1
            if given % _TURN == 0:
                await asyncio.sleep(0)
            if size > MOST:
                raise ToolOverflow(f"{tool.name} gave more than {MOST} characters and was stopped.")
            size += sum(map(weight, piece.content))
            yield piece
    finally:
        await pieces.aclose()


async def _next(tool: ToolBase, pieces: AsyncGenerator[ToolChunk, None], ends: float | None) -> ToolChunk | None:
    # Set anew for each piece: no time limit is held while the outside has its turn.
    limit = asyncio.timeout_at(ends)
    try:
        async with limit:
            piece = await anext(pieces, None)
    except TimeoutError:
        if not limit.expired():
            raise
        raise _late(tool) from None
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise ToolExit(f"{tool.name} was cancelled by something that it waited for.") from error
    except SystemExit as error:
        raise ToolExit(f"{tool.name} tried to end the program.") from error
    # Who never waits is never interrupted.
    if ends is not None and piece is not None and asyncio.get_running_loop().time() > ends:
        raise _late(tool)
    return piece


def _late(tool: ToolBase) -> ToolTimeout:
    return ToolTimeout(f"{tool.name} took longer than {tool.time_limit:g} seconds and was stopped.")


def cut(content: Sequence[TextBlock | DataBlock], limit: int, data_limit: int) -> tuple[list[TextBlock | DataBlock], int]:
    """The content with at most about `limit` characters of text, its beginning and its end, and `data_limit` characters of base64;
    and how many characters were taken out. Notes in it say so."""
    kept, notes, removed = _within(content, data_limit)
    said = sum(len(block.text) for block in content if isinstance(block, TextBlock))
    if said <= limit:
        return kept, removed
    head, tail = limit - limit // 4, limit // 4
    text = "".join(block.text for block in content if isinstance(block, TextBlock))
    gone = len(text) - head - tail
    shown = f"{text[:head]}\n[… {gone} of {len(text)} characters were cut out here …]\n{text[len(text) - tail :]}"
    return [TextBlock(shown), *notes, *(block for block in kept if isinstance(block, DataBlock))], removed + gone


def _within(content: Sequence[TextBlock | DataBlock], data_limit: int) -> tuple[list[TextBlock | DataBlock], list[TextBlock], int]:
    """The content without data that is too large, the notes that stand in its place, and how many characters it was."""
    kept: list[TextBlock | DataBlock] = []
    notes: list[TextBlock] = []
    left, removed = data_limit, 0
    for block in content:
        size = weight(block)
        if isinstance(block, TextBlock) or size <= left:
            left -= 0 if isinstance(block, TextBlock) else size
            kept.append(block)
        else:
            removed += size
            what = block.name or block.source.media_type or "data"
            notes.append(TextBlock(f"[… {what} was left out here: {size} characters of base64 …]"))
            kept.append(notes[-1])
    return kept, notes, removed


def plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON values: what JSON hasn't is told as text, so that no tool keeps a conversation from being kept."""
    if not metadata:
        return {}
    try:
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(metadata, enc_hook=str))
    except (TypeError, ValueError, RecursionError):
        return {"unreadable": type(metadata).__name__}
    return value
