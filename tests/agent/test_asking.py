"""agent/asking.py: whoever sends a request knows for which reply; afterwards nobody does."""

from __future__ import annotations

from typing import Any

from spangate.agent import Agent, ChatModelBase, ChatResponse, MiddlewareBase
from spangate.agent.asking import NOBODY, Asking, asking


async def test_it_is_known_while_a_request_is_sent_and_only_then() -> None:
    seen: list[Asking] = []

    class Looks(ChatModelBase):
        async def __call__(self, messages: Any, tools: Any = None, tool_choice: Any = None, **settings: Any) -> ChatResponse:
            seen.append(asking.get())
            return ChatResponse.of("x")

    class Asks(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            await agent.ask("?", purpose="router", by=self)
            assert asking.get() is NOBODY
            return await next_handler()

    stream = Agent("a", None, Looks("m"), middlewares=[Asks()]).stream("go", thread="t", deadline=60)
    await stream.result()
    assert [(each.reply, each.thread, each.agent, each.purpose, each.step) for each in seen] == [
        (stream.reply_id, "t", "a", purpose, 0) for purpose in ("router", "main")
    ]
    assert all(each.deadline is not None for each in seen)
    assert asking.get() is NOBODY
