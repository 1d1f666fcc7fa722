"""The seed's two lists `[mw1, mw2]`: the order that it says they are run in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from spangate.agent import Agent, MiddlewareBase, ScriptedModel, TextBlockDeltaEvent

from seeds.sample import run


class Around(MiddlewareBase):
    """Says when it is before, after, and when a piece of text passes it."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    async def on_reply(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        self.said.append(f"{self.name}_pre")
        async with aclosing(next_handler()) as events:
            async for event in events:
                if isinstance(event, TextBlockDeltaEvent):
                    self.said.append(f"{self.name}_event")
                yield event
        self.said.append(f"{self.name}_post")

    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        self.said.append(f"{self.name} before")
        answer = await next_handler()
        self.said.append(f"{self.name} after")
        return answer


class Adds(MiddlewareBase):
    def __init__(self, word: str) -> None:
        self.word = word

    async def on_system_prompt(self, agent: Any, current_prompt: str) -> str:
        return f"{current_prompt} → {self.word}"


async def test_the_first_of_an_onion_is_outermost() -> None:
    said: list[str] = []
    middlewares = run("agentscope/onion_order", mw1=Around("mw1", said), mw2=Around("mw2", said)).middlewares
    await Agent("assistant", None, ScriptedModel.saying("Hi"), middlewares=middlewares)("Go.")
    model_call = ["mw1 before", "mw2 before", "mw2 after", "mw1 after"]
    assert said == ["mw1_pre", "mw2_pre", *model_call, "mw2_event", "mw1_event", "mw2_post", "mw1_post"]


async def test_transformers_run_left_to_right() -> None:
    model = ScriptedModel()
    middlewares = run("agentscope/prompt_order", mw1=Adds("first"), mw2=Adds("second")).middlewares
    await Agent("assistant", "original", model, middlewares=middlewares)("Go.")
    assert model.calls[0]["messages"][0]["content"] == "original → first → second"
