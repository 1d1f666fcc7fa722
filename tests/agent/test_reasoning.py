"""agent/reasoning.py: from a model's pieces to events, and what is kept of an answer that broke off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    ChatModelBase,
    ChatResponse,
    DataBlock,
    MiddlewareBase,
    NoAnswer,
    ScriptedModel,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from spangate.agent.messages.blocks import Base64Source
from spangate.agent.messages.msg import ChatUsage
from spangate.call.errors import UpstreamIncomplete


class Pieces(ChatModelBase):
    def __init__(self, *pieces: ChatResponse) -> None:
        super().__init__("m")
        self.said = pieces

    async def pieces(self, *_: Any) -> AsyncIterator[ChatResponse]:
        for piece in self.said:
            yield piece


def piece(*blocks: Any, last: bool = False) -> ChatResponse:
    return ChatResponse(list(blocks), is_last=last)


async def told(model: ChatModelBase) -> list[str]:
    return [f"{event.type} {getattr(event, 'delta', '')}".strip() async for event in Agent("a", None, model).stream("go")][2:-2]


async def test_blocks_that_take_turns_begin_and_end_in_turn() -> None:
    picture = DataBlock(Base64Source("AA", "image/png"), id="d")
    pieces = [piece(ThinkingBlock("hm", "x")), piece(TextBlock("a", "t")), piece(TextBlock("b", "t")), piece(picture)]
    model = Pieces(*pieces, piece(ThinkingBlock("hm", "x"), TextBlock("ab", "t"), picture, last=True))
    assert await told(model) == [
        *("THINKING_BLOCK_START", "THINKING_BLOCK_DELTA hm", "THINKING_BLOCK_END"),
        *("TEXT_BLOCK_START", "TEXT_BLOCK_DELTA a", "TEXT_BLOCK_DELTA b", "TEXT_BLOCK_END"),
        *("DATA_BLOCK_START", "DATA_BLOCK_DELTA", "DATA_BLOCK_END"),
    ]


async def test_a_stream_without_its_last_piece_is_an_error() -> None:
    with pytest.raises(NoAnswer, match="without its last piece"):
        await Agent("a", None, Pieces(piece(TextBlock("a", "t"))))("go")


async def test_an_answer_that_breaks_off_keeps_its_text_and_no_half_call() -> None:
    class Breaks(ChatModelBase):
        async def pieces(self, *_: Any) -> AsyncIterator[ChatResponse]:
            yield piece(TextBlock("so far", "t"))
            yield piece(ToolCallBlock("c", "f", '{"half'))
            raise UpstreamIncomplete("gone")

    agent = Agent("a", None, Breaks("m"), thread="t")
    with pytest.raises(UpstreamIncomplete):
        await agent("go")
    assert [[block.type for block in msg.content] for msg in await agent.history("t")] == [["text"], ["text"]]
    assert (await agent.history("t"))[1].text == "so far"


async def test_a_layer_that_wraps_the_stream_sees_every_piece() -> None:
    class Shouts(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            answer = await next_handler()

            async def loud() -> AsyncIterator[ChatResponse]:
                async for each in answer:
                    for block in each.content:
                        block.text = block.text.upper()
                    yield each

            return loud()

    stream = Agent("a", None, ScriptedModel.saying("one two"), middlewares=[Shouts()]).stream("go")
    deltas = [event.delta async for event in stream if event.type == "TEXT_BLOCK_DELTA"]  # type: ignore[attr-defined]
    assert deltas == ["ONE", " TWO"]
    assert stream.message is not None
    assert stream.message.text == "ONE TWO"


async def test_an_attempt_knows_what_it_used_and_how_it_failed() -> None:
    class Breaks(ScriptedModel):
        async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Any) -> AsyncIterator[ChatResponse]:
            yield ChatResponse.of("half", is_last=False, usage=ChatUsage(5, 1))
            raise UpstreamIncomplete("It broke.")

    stream = Agent("a", None, Breaks(model="m")).stream("go")
    with pytest.raises(UpstreamIncomplete):
        await stream.result()
    [attempt] = stream.view.attempts
    assert (attempt.model, attempt.usage, attempt.error) == ("m", ChatUsage(5, 1), "UpstreamIncomplete")
