"""What a model answers: `ChatResponse`, whole or a piece, and `ModelStream`, the pieces as they come.

Both are read alike: `async for piece in answer`, `await answer.response()`, `answer.then(callback)`. A stream ends with a piece whose
`is_last` is true and whose content is the whole answer. It is **primed**: whoever is given one knows that its first content has
arrived, or its end; what went wrong before that was raised.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec

from ..errors import NoAnswer
from ..messages.blocks import Block, DataBlock, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from ..messages.msg import ChatUsage
from ..settings import FinishedReason

Callback = Callable[["ChatResponse"], Any]


class ChatResponse(msgspec.Struct):
    """An answer, or a piece of one. `model` is the model as the provider names it, `finish` its own word for the end, `stop` set where
    a middleware ended the step instead of a model."""

    content: list[Block] = msgspec.field(default_factory=list)
    is_last: bool = True
    id: str = msgspec.field(default_factory=new_id)
    usage: ChatUsage | None = None
    finished_reason: FinishedReason = FinishedReason.COMPLETED
    finish: str | None = None
    model: str = ""
    metadata: dict[str, Any] = {}
    stop: str = ""

    @classmethod
    def of(cls, text: str, **fields: Any) -> ChatResponse:
        """An answer that says this."""
        return cls(content=[TextBlock(text)], **fields)

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_calls(self) -> list[ToolCallBlock]:
        return [block for block in self.content if isinstance(block, ToolCallBlock)]

    @property
    def says_something(self) -> bool:
        return any(_says(block) for block in self.content)

    async def response(self) -> ChatResponse:
        """Itself: it is whole."""
        return self

    def then(self, callback: Callback) -> ChatResponse | ModelStream:
        """Run `callback` with the whole answer, before its tools. It is whole already, so a plain function runs now."""
        if self.stop:
            return self
        if inspect.iscoroutinefunction(callback):
            return ModelStream.of(self).then(callback)
        callback(self)
        return self

    async def aclose(self) -> None:
        """Nothing to close."""

    def __aiter__(self) -> AsyncIterator[ChatResponse]:
        return _Once(self)


class _Once(AsyncIterator["ChatResponse"]):
    """One whole answer, once. No generator: whoever leaves it has nothing to close."""

    __slots__ = ("_response",)

    def __init__(self, response: ChatResponse) -> None:
        self._response: ChatResponse | None = response

    async def __anext__(self) -> ChatResponse:
        response, self._response = self._response, None
        if response is None:
            raise StopAsyncIteration
        return response


def _says(block: Block) -> bool:
    if isinstance(block, TextBlock):
        return bool(block.text)
    return not isinstance(block, ThinkingBlock) or bool(block.thinking)


class ModelStream(AsyncGenerator[ChatResponse, None]):
    """The pieces of one answer, once. Closing it closes its source."""

    def __init__(self, source: AsyncIterator[ChatResponse], first: Iterable[ChatResponse] = ()) -> None:
        """`first`: pieces that were taken from the source already."""
        self._source = source
        self._first = deque(first)
        self._callbacks: list[Callback] = []
        self._last: ChatResponse | None = None
        self._ended = False

    @classmethod
    def of(cls, response: ChatResponse) -> ModelStream:
        """A stream of one whole answer."""
        return cls(_Once(response))

    @staticmethod
    def stop(reason: str = "cancelled") -> ChatResponse:
        """What a middleware returns to end the reply before this call: no model is asked."""
        return ChatResponse(stop=reason, finished_reason=FinishedReason.CANCELLED)

    def then(self, callback: Callback) -> ModelStream:
        """Run `callback` with the whole answer once it is here, before its tools. Never on a stop, a failure, or a stream that was
        left early. It may be a coroutine function."""
        self._callbacks.append(callback)
        return self

    async def response(self) -> ChatResponse:
        """The whole answer; reads what is left of the stream.

        Raises:
            NoAnswer: the stream ended without one.
        """
        try:
            async for _ in self:
                pass
        finally:
            await self.aclose()
        if self._last is None:
            raise NoAnswer("The model's stream ended without its last piece.")
        return self._last

    async def __anext__(self) -> ChatResponse:
        if self._ended:
            raise StopAsyncIteration
        piece = self._first.popleft() if self._first else await anext(self._source)
        if piece.is_last:
            self._last = piece
            if not piece.stop:
                for callback in self._callbacks:
                    said = callback(piece)
                    if inspect.isawaitable(said):
                        await said
        return piece

    async def asend(self, value: None) -> ChatResponse:
        return await self.__anext__()

    async def athrow(
        self, typ: Any, val: BaseException | object = None, tb: TracebackType | None = None, /
    ) -> ChatResponse:  # pragma: no cover - the protocol asks for it, nobody calls it
        await self.aclose()
        raise typ

    async def aclose(self) -> None:
        self._ended = True
        close: Callable[[], Awaitable[None]] | None = getattr(self._source, "aclose", None)
        if close is not None:
            await close()


class Gathered:
    """Pieces put together: what the last piece of a stream has to say."""

    __slots__ = ("blocks", "usage")

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.usage: ChatUsage | None = None

    def add(self, piece: ChatResponse) -> None:
        for block in piece.content:
            self._add(block)
        self.usage = piece.usage or self.usage

    def _add(self, block: Block) -> None:
        known = self.blocks.get(block.id)
        if known is None:
            self.blocks[block.id] = msgspec.structs.replace(block, extra=dict(block.extra))
            return
        if isinstance(known, TextBlock) and isinstance(block, TextBlock):
            known.text += block.text
        elif isinstance(known, ThinkingBlock) and isinstance(block, ThinkingBlock):
            known.thinking += block.thinking
        elif isinstance(known, ToolCallBlock) and isinstance(block, ToolCallBlock):
            known.input += block.input
        elif isinstance(known, DataBlock):
            self.blocks[block.id] = block
            return
        for dialect, value in block.extra.items():
            known.extra[dialect] = {**known.extra.get(dialect, {}), **value} if isinstance(value, dict) else value

    @property
    def content(self) -> list[Block]:
        return list(self.blocks.values())


Answer = ChatResponse | ModelStream


def as_answer(value: Any) -> Answer | None:
    """What a layer returned, as an answer: a bare generator of pieces becomes a stream. None: it is no answer."""
    if isinstance(value, ChatResponse | ModelStream):
        return value
    return ModelStream(value) if isinstance(value, AsyncIterator) else None


async def primed(source: AsyncIterator[ChatResponse], *, empty: str = "The model's answer is empty.") -> ModelStream:
    """A stream whose first content, or end, has arrived; what goes wrong before that is raised here, and its source closed.

    Raises:
        NoAnswer: it ended without saying anything.
    """
    held: list[ChatResponse] = []
    try:
        async for piece in source:
            held.append(piece)
            if piece.is_last or piece.says_something:
                break
        last = held[-1] if held else None
        cut = last is not None and last.is_last and last.finish not in (None, "stop", "tool_calls")
        if last is None or not (last.says_something or last.stop or cut):
            nothing = NoAnswer(empty)
            nothing.usage = next((piece.usage for piece in reversed(held) if piece.usage is not None), None)
            raise nothing
    except BaseException:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
        raise
    return ModelStream(source, held)
