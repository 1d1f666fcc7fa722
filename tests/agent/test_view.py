"""agent/view.py: what a hook is given as `agent`."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import Agent, CustomEvent, MiddlewareBase, ReplyView, ScriptedModel, calls, tool


@tool
def secret() -> str:
    """Known to one reply."""
    return "42"


async def test_a_reply_may_change_its_view_and_nothing_else() -> None:
    views: list[ReplyView] = []
    other = ScriptedModel.saying(calls("secret"), "done", model="other")

    class Changes(MiddlewareBase):
        async def on_compress_context(self, agent: Any, input_kwargs: Any, next_handler: Any) -> None:
            if agent not in views:
                views.append(agent)
            agent.model, agent.system_prompt = other, "changed"
            agent.extra_tools["secret"] = secret
            agent.emit(CustomEvent(reply_id=agent.reply_id, name="changed"))
            await next_handler()

    agent = Agent("a", "p", ScriptedModel(model="mine"), middlewares=[Changes()])
    events = [event.type async for event in agent.stream("go", thread="t")]
    assert events[1] == "CUSTOM"
    assert other.calls[0]["messages"][0]["content"] == "changed"
    assert other.calls[0]["tools"] == [secret.definition()]
    assert other.calls[1]["messages"][-1]["content"] == "42"
    [view] = views
    assert (view.thread_id, view.name, view.purpose, view.usage.output_tokens) == ("t", "a", "main", 1)
    assert (agent.model.model, agent.system_prompt, len(agent.toolkit)) == ("mine", "p", 0)
    assert repr(view) == f"ReplyView('a', reply={view.reply_id[:8]})"


PICK = {"type": "object", "properties": {"name": {"enum": ["fast", "strong"]}}, "required": ["name"]}


@pytest.mark.parametrize(
    ("said", "picked"),
    [
        (calls("generate_structured_output", name="fast"), {"name": "fast"}),
        ('```json\n{"name": "strong"}\n```', {"name": "strong"}),
        (calls("generate_structured_output", name="slow"), None),
        ("I would take the fast one.", None),
    ],
)
async def test_an_internal_question_may_want_a_form(said: Any, picked: dict[str, str] | None) -> None:
    from spangate.agent.tools.arguments import BadArguments

    found: list[Any] = []

    class Asks(MiddlewareBase):
        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            try:
                found.append(await agent.ask_structured("which?", PICK, purpose="router", by=self, model=other))
            except BadArguments:
                found.append(None)
            return await next_handler()

    other = ScriptedModel.saying(said)
    await Agent("a", None, ScriptedModel(), middlewares=[Asks()])("go")
    assert found == [picked]
    assert other.calls[0]["tool_choice"]["function"]["name"] == "generate_structured_output"


async def test_it_knows_whether_the_caller_named_the_thread() -> None:
    agent = Agent("a", None, ScriptedModel(), description="says what you say")
    assert [agent.stream("go", thread=thread).view.has_thread for thread in (None, "t")] == [False, True]
    assert agent.stream("go").view.description == "says what you say"
    assert agent.stream("go").view.labels == {}
