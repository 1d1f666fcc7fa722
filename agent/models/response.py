"""What a model answers: `ChatResponse`, whole or a piece, and `ModelStream`, the pieces as they come.

Both are read alike: `async for piece in answer`, `await answer.response()`, `answer.then(callback)`. A stream ends with a piece whose
`is_last` is true and whose content is the whole answer. It is **primed**: whoever is given one knows that its first content has
arrived, or its end; what went wrong before that was raised.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, get_args

import msgspec

from ...call.errors import UpstreamIncomplete
from ..errors import NoAnswer
from ..messages.blocks import Block, DataBlock, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from ..messages.msg import ChatUsage
from ..settings import FinishedReason

Callback = Callable[["ChatResponse"], Any]
MOST = 1 << 24
"""Characters of one answer: no model says as much, unless it has lost its mind."""
_BLOCKS = get_args(Block)
_TURN = 64  # pieces after which the loop turns, if the model itself never waits


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

    def __post_init__(self) -> None:
        given: Any = self.content
        if not isinstance(given, list):
            self.content = given = [TextBlock(given)] if isinstance(given, str) else list(given)
        for block in given:
            if not isinstance(block, _BLOCKS):
                raise TypeError(f"the content of a ChatResponse is a text or a list of blocks, and a {type(block).__name__} is none")

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
        self._given = 0
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
        self._given += 1
        if self._given % _TURN == 0:
            await asyncio.sleep(0)
        piece = self._first.popleft() if self._first else a_piece(await anext(self._source))
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

    __slots__ = ("_blocks", "_more", "_size", "usage")

    def __init__(self) -> None:
        self._blocks: dict[str, Block] = {}
        self._more: dict[str, list[str]] = {}
        """What has come of a block since its beginning; joined once, for a text that grows by each piece is copied by each."""
        self._size = 0
        self.usage: ChatUsage | None = None

    def add(self, piece: ChatResponse) -> None:
        """
        Raises:
            UpstreamIncomplete: the answer is too long.
        """
        for block in piece.content:
            self._add(block)
        self.usage = piece.usage or self.usage
        if self._size > MOST:
            raise UpstreamIncomplete(f"The model's answer is longer than {MOST} characters, and was left.")

    def _add(self, block: Block) -> None:
        known = self._blocks.get(block.id)
        if known is None:
            self._blocks[block.id] = msgspec.structs.replace(block, extra=dict(block.extra))
            self._more[block.id] = []
            self._size += len(_words(block))
            return
        if isinstance(known, DataBlock):
            self._blocks[block.id] = block
            return
        if isinstance(known, ToolCallBlock) and isinstance(block, ToolCallBlock):
            known.name = known.name or block.name
        words = _words(block) if type(block) is type(known) else ""
        if words:
            self._more.setdefault(block.id, []).append(words)
            self._size += len(words)
        for dialect, value in block.extra.items():
            known.extra[dialect] = {**known.extra.get(dialect, {}), **value} if isinstance(value, dict) else value

    def __contains__(self, block_id: str) -> bool:
        return block_id in self._blocks

    @property
    def content(self) -> list[Block]:
        for block_id, more in self._more.items():
            block = self._blocks[block_id]
            words = _characters("".join((_words(block), *more)))
            if isinstance(block, TextBlock):
                block.text = words
            elif isinstance(block, ThinkingBlock):
                block.thinking = words
            elif isinstance(block, ToolCallBlock):
                block.input = words
        self._more = {}
        return list(self._blocks.values())


def _words(block: Block) -> str:
    """What grows of a block."""
    if isinstance(block, TextBlock):
        return block.text
    if isinstance(block, ThinkingBlock):
        return block.thinking
    return block.input if isinstance(block, ToolCallBlock) else ""


def _characters(text: str) -> str:
    """The text with its characters whole: pieces may end in the middle of one, and a half that stays alone can't be sent."""
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


Answer = ChatResponse | ModelStream


def as_answer(value: Any) -> Answer | None:
    """What a layer returned, as an answer: a bare generator of pieces becomes a stream. None: it is no answer."""
    if isinstance(value, ChatResponse | ModelStream):
        return value
    return ModelStream(value) if isinstance(value, AsyncIterator) else None


def a_piece(value: Any) -> ChatResponse:
    """
    Raises:
        NoAnswer: it is none.
    """
    if not isinstance(value, ChatResponse):
        raise NoAnswer(f"The model gave a {type(value).__name__} as a piece of its answer; it must give ChatResponse.")
    return value


async def primed(source: AsyncIterator[ChatResponse], *, empty: str = "The model's answer is empty.") -> ModelStream:
    """A stream whose first content, or end, has arrived; what goes wrong before that is raised here, and its source closed.

    Raises:
        NoAnswer: it ended without saying anything.
    """
    held: deque[ChatResponse] = deque(maxlen=_TURN)  # what says nothing may come for ever
    given = 0
    try:
        async for value in source:
            piece, given = a_piece(value), given + 1
            if given % _TURN == 0:
                await asyncio.sleep(0)
            if piece.content or piece.is_last or piece.usage is not None:
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
