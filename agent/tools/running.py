"""One run of one tool: within its time, its result within its size, and nothing ended but itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ..messages.blocks import DataBlock, TextBlock
from .chunks import ToolChunk, weight
from .threads import Clock, clock_now
from .tool import ToolBase

logger = logging.getLogger(__name__)
MOST = 1 << 24
"""Characters that a tool may give piece by piece; none that a model reads is as long."""
GRACE = 1.0
"""Seconds that a tool has to end once it is stopped; then nobody waits for it any more."""


class ToolTimeout(TimeoutError):
    """A tool took longer than it may."""


class ToolOverflow(RuntimeError):
    """A tool gave piece after piece, and more than anyone will keep."""


class ToolExit(RuntimeError):
    """A tool meant to end more than itself: it raised what is no `Exception`, or a cancellation that nobody had asked for."""


async def ran(tool: ToolBase, kwargs: Mapping[str, Any]) -> AsyncGenerator[ToolChunk, None]:
    """The pieces of a tool's result, layers and all.

    Raises:
        ToolTimeout: its time was up, or no thread was free. A thread can't be stopped, so what a plain function was doing may still go on.
        ToolOverflow: it gave too much.
        ToolExit: it would have ended the reply, or the program.
    """
    size = 0
    async with aclosing(_Run(tool, tool.stream(**kwargs))) as run:
        while (piece := await run.next()) is not None:
            if size > MOST:
                raise ToolOverflow(f"{tool.name} gave more than {MOST} characters and was stopped.")
            size += sum(map(weight, piece.content))
            yield piece


Turn = asyncio.Future[tuple[ToolChunk | None, BaseException | None]]
_left: set[asyncio.Task[None]] = set()
"""Tools that were stopped and go on: a task that nobody holds may vanish."""


class _Run:
    """One run of a tool in a task of its own, which goes on by one piece whenever one is asked for. A tool that doesn't let itself be
    cancelled keeps that task, and not the reply."""

    def __init__(self, tool: ToolBase, pieces: AsyncGenerator[ToolChunk, None]) -> None:
        self._tool, self._pieces = tool, pieces
        self._clock = None if tool.time_limit is None else Clock(tool.time_limit)
        self._turns: asyncio.Queue[Turn | None] = asyncio.Queue()
        self._turn: Turn | None = None
        self._is_left = False
        self._task = asyncio.create_task(self._serve())

    async def next(self) -> ToolChunk | None:
        """None after the last."""
        turn: Turn = asyncio.get_running_loop().create_future()
        self._turn = turn
        self._turns.put_nowait(turn)
        if self._clock is None:
            piece, error = await turn
        else:
            # Looked at anew: the clock stands still while the tool waits for a thread. Nothing stops a tool while the outside has its turn.
            while not turn.done() and (left := self._clock.left()) > 0:
                await asyncio.wait((turn,), timeout=left)
            if not turn.done():
                raise await self._late(self._clock)
            piece, error = turn.result()
            # Who never waits is never interrupted.
            if piece is not None and self._clock.left() <= 0:
                raise await self._late(self._clock)
        if error is not None:
            raise error
        return piece

    async def _late(self, clock: Clock) -> ToolTimeout:
        if clock.is_queueing:
            return ToolTimeout(f"{self._tool.name} found no free thread within {clock.limit:g} seconds.")
        await self.aclose()
        does = "does not let itself be stopped" if self._is_left else "was stopped"
        return ToolTimeout(f"{self._tool.name} took longer than {clock.limit:g} seconds and {does}.")

    async def _serve(self) -> None:
        clock_now.set(self._clock)
        try:
            while (turn := await self._turns.get()) is not None:
                piece, error = await self._piece(turn)
                if not turn.done():
                    turn.set_result((piece, error))
                if piece is None:
                    return
        finally:
            await self._pieces.aclose()

    async def _piece(self, turn: Turn) -> tuple[ToolChunk | None, BaseException | None]:
        name = self._tool.name
        try:
            return await anext(self._pieces, None), None
        except KeyboardInterrupt:
            raise
        except asyncio.CancelledError as error:
            if turn.done():  # it was we who cancelled
                raise
            return None, _exit(f"{name} was cancelled by something that it waited for.", error)
        except SystemExit as error:
            return None, _exit(f"{name} tried to end the program.", error)
        except Exception as error:  # noqa: BLE001 - it is raised again, where it is waited for
            return None, error
        except BaseException as error:  # noqa: BLE001 - the same
            return None, _exit(f"{name} raised {type(error).__name__}.", error)

    async def aclose(self) -> None:
        """The tool is closed where it stands, or cancelled if it is at work. Whoever is cancelled meanwhile waits no longer."""
        if self._task.done() or self._is_left:
            return
        is_at_work = self._turn is not None and (self._turn.cancelled() or self._turn.cancel())
        if is_at_work:
            self._task.cancel()
        self._turns.put_nowait(None)
        try:
            await asyncio.wait((self._task,), timeout=GRACE)
        finally:
            if self._task.done():
                _silently(self._task)
            else:
                self._leave(is_cancelled=is_at_work)

    def _leave(self, *, is_cancelled: bool) -> None:
        self._is_left = True
        _left.difference_update([each for each in _left if each.get_loop().is_closed()])
        _left.add(self._task)
        self._task.add_done_callback(_left.discard)
        self._task.add_done_callback(_silently)
        if not is_cancelled:
            self._task.cancel()
        logger.warning("%s does not end and is no longer waited for; there are %d such tools", self._tool.name, len(_left))


def _silently(task: asyncio.Task[None]) -> None:
    """Nobody waits for how it ended."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a tool failed to close: %s", type(error).__name__)


def _exit(words: str, cause: BaseException) -> ToolExit:
    error = ToolExit(words)
    error.__cause__ = cause
    return error


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
