"""agent/middlewares/watched.py: what a watcher is told, and that it is told once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.agent import ChatResponse, ModelStream
from spangate.agent.middlewares.watched import watched


class Note:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.ends: list[tuple[Any, Any]] = []

    def piece(self, piece: ChatResponse) -> None:
        self.pieces.append(piece.text)

    async def ended(self, whole: ChatResponse | None, error: BaseException | None) -> None:
        self.ends.append((whole and whole.text, error))


class View:
    def __init__(self) -> None:
        self.open_streams: list[Any] = []


async def pieces(*texts: str, error: Exception | None = None) -> AsyncIterator[ChatResponse]:
    for text in texts:
        yield ChatResponse.of(text, is_last=False)
    if error is not None:
        raise error
    yield ChatResponse.of("".join(texts))


async def see(answer: Any) -> tuple[Note, Any]:
    note = Note()

    async def following() -> Any:
        return answer

    return note, await watched(View(), following, note)


async def test_a_whole_answer_stays_whole() -> None:
    answer = ChatResponse.of("hi")
    note, given = await see(answer)
    assert given is answer
    assert (note.pieces, note.ends) == (["hi"], [("hi", None)])


async def test_a_stream_stays_a_stream_and_its_callbacks_come_first() -> None:
    source = ModelStream(pieces("a", "b"))
    note, given = await see(source)
    assert isinstance(given, ModelStream)
    seen: list[Any] = []
    given.then(lambda response: seen.append(list(note.ends)))
    assert [piece.text async for piece in given] == ["a", "b", "ab"]
    assert seen == [[]]
    assert (note.pieces, note.ends) == (["a", "b", "ab"], [("ab", None)])
    await given.aclose()
    assert len(note.ends) == 1


async def test_a_failure_is_told_and_raised() -> None:
    error = OSError("gone")
    note, given = await see(ModelStream(pieces("a", error=error)))
    with pytest.raises(OSError, match="gone"):
        await given.response()
    assert (note.pieces, note.ends) == (["a"], [(None, error)])


async def test_a_stream_that_is_left_is_told_even_if_nobody_has_read_it() -> None:
    for read in (0, 1):
        source = pieces("a", "b")
        note, given = await see(ModelStream(source))
        for _ in range(read):
            await anext(given)
        await given.aclose()
        assert note.ends == [(None, None)]


async def test_what_fails_before_the_answer_is_told_too() -> None:
    note, error = Note(), OSError("no")

    async def following() -> Any:
        raise error

    with pytest.raises(OSError, match="no"):
        await watched(View(), following, note)
    assert note.ends == [(None, error)]
