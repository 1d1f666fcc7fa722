"""agent/models/base.py: what a model of one's own has to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    AnthropicChatModel,
    ChatModelBase,
    ChatResponse,
    MiddlewareBase,
    ModelStream,
    NoAnswer,
    OpenAIChatModel,
    ScriptedModel,
    TextBlock,
)


class Own(ChatModelBase):
    async def pieces(self, messages: Any, tools: Any, tool_choice: Any, settings: Any) -> AsyncIterator[ChatResponse]:
        assert settings == {"a": 1, "b": 2}
        yield ChatResponse([TextBlock("on", "b")], is_last=False)
        yield ChatResponse([TextBlock("one", "b")])


async def test_pieces_are_all_it_needs() -> None:
    model = Own("own", settings={"a": 1})
    answer = await model("hi", b=2)
    assert isinstance(answer, ModelStream)
    assert (await answer.response()).text == "one"
    model.stream = False
    assert isinstance(await model("hi", b=2), ChatResponse)
    assert repr(model) == "Own('own')"
    assert not model.takes_reply_labels
    assert not model.is_counted


async def test_a_model_may_do_it_all_by_itself() -> None:
    class Function(ChatModelBase):
        async def __call__(self, messages: Any, tools: Any = None, tool_choice: Any = None, **settings: Any) -> ChatResponse:
            return ChatResponse.of("mine")

    class Nothing(ChatModelBase):
        async def __call__(self, *_: Any, **__: Any) -> Any:
            return None

    class Generates(ChatModelBase):
        async def __call__(self, *_: Any, **__: Any) -> Any:
            async def pieces() -> AsyncIterator[ChatResponse]:
                raise OSError("gone")
                yield

            return pieces()

    class Notes(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            with pytest.raises(OSError, match="gone"):
                await next_handler()
            return ChatResponse.of("caught at the await")

    assert (await Agent("a", None, Generates("g"), middlewares=[Notes()])("go")).text == "caught at the await"
    stream = Agent("a", None, Function("f")).stream("go")
    assert (await stream.result()).text == "mine"
    assert [step.model for step in stream.view.steps] == ["f"]
    with pytest.raises(NoAnswer, match="n gave no answer"):
        await Agent("a", None, Nothing("n"))("go")
    with pytest.raises(NotImplementedError, match=r"ChatModelBase implements pieces\(\) or __call__\(\)"):
        await ChatModelBase("x")("go")


def test_a_model_tells_where_it_is() -> None:
    assert ScriptedModel().address == ""
    assert OpenAIChatModel("gpt", api_key="x", base_url="http://127.0.0.1:1/v1").address == "http://127.0.0.1:1/v1/"
    assert AnthropicChatModel("claude", api_key="x").address == "https://api.anthropic.com/v1/messages"
