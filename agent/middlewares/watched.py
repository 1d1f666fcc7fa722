"""An answer while somebody watches it: each piece as it is read, and once how it ended. A stream stays a stream, a whole answer whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..models.response import Answer, ChatResponse, ModelStream


class Watcher(Protocol):
    """Who watches. `ended` is told the whole answer, or the error, or neither where the answer was left before its end."""

    def piece(self, piece: ChatResponse) -> None: ...

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None: ...


class Watched(ModelStream):
    """A stream with a watcher."""

    def __init__(self, source: ModelStream, watcher: Watcher) -> None:
        super().__init__(source)
        self._watcher: Watcher | None = watcher

    async def __anext__(self) -> ChatResponse:
        try:
            piece = await super().__anext__()
        except StopAsyncIteration:
            await self._tell(None, None)
            raise
        except BaseException as error:
            await self._tell(None, error)
            raise
        if self._watcher is not None:
            self._watcher.piece(piece)
        if piece.is_last:
            await self._tell(piece, None)
        return piece

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            await self._tell(None, None)

    async def _tell(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await watcher.ended(whole, error)


async def watched(
    agent: Any,
    next_handler: Callable[..., Any],
    watcher: Watcher,
    /,
    _stream: Callable[[ModelStream, Watcher], Watched] = Watched,
    **changed: Any,
) -> Answer:
    """The answer of `next_handler(**changed)` under the eyes of `watcher`, which is told of a failure too."""
    try:
        answer: Answer = await next_handler(**changed)
    except BaseException as error:
        await watcher.ended(None, error)
        raise
    if isinstance(answer, ChatResponse):
        watcher.piece(answer)
        await watcher.ended(answer, None)
        return answer
    answer = _stream(answer, watcher)
    # A layer outside may take another answer and forget this one; the reply closes what is open.
    agent.open_streams.append(answer)
    return answer
