"""agent/agent.py: an agent as its user has it: text in, a message out, threads, many at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    AssistantMsg,
    FileStore,
    HintBlock,
    MemoryStore,
    MiddlewareBase,
    ReActConfig,
    ReplyFinishedReason,
    ScriptedModel,
    SQLiteStore,
    Store,
    ToolCallBlock,
    Toolkit,
    UserMsg,
    calls,
    tool,
)


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"It is sunny in {city}."


async def test_the_first_conversation() -> None:
    model = ScriptedModel.saying(calls("get_weather", city="Rome"), "Sunny, in Rome.")
    answer = await Agent("assistant", "You are helpful.", model, Toolkit([get_weather]))("What's the weather in Rome?")
    assert answer.text == "Sunny, in Rome."
    assert answer.finished_reason is ReplyFinishedReason.COMPLETED
    assert answer.usage is not None
    assert answer.usage.output_tokens == 3
    first, second = model.calls
    assert first["tools"] == [get_weather.definition()]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][3]["content"] == "It is sunny in Rome."


@pytest.mark.parametrize("stream", [True, False])
async def test_streaming_or_not_makes_no_difference(stream: bool) -> None:
    model = ScriptedModel.saying(calls("get_weather", city="Rome"), "Sunny, in Rome.", stream=stream)
    answer = await Agent("assistant", None, model, [get_weather])("?")
    assert (answer.text, answer.usage.total_tokens if answer.usage else 0) == ("Sunny, in Rome.", 10)


async def test_messages_may_be_several_or_none() -> None:
    model = ScriptedModel()
    agent = Agent("assistant", "s", model)
    await agent([UserMsg("a"), AssistantMsg("b"), UserMsg("c")])
    assert [message["content"] for message in model.calls[0]["messages"]] == ["s", "a", "b", "c"]
    given = UserMsg("x")
    await agent(given)
    assert [block.type for block in given.content] == ["text"], "what the caller holds is not written to"
    with pytest.raises(TypeError, match="given a text, a Msg or a list of them, not int"):
        await agent(7)


async def test_an_agent_needs_a_model() -> None:
    with pytest.raises(TypeError, match="needs a model"):
        Agent("assistant", "s")


async def test_without_a_thread_nothing_is_remembered() -> None:
    model = ScriptedModel()
    agent = Agent("assistant", None, model)
    await agent("My name is Ann.")
    await agent("Who am I?")
    assert [message["content"] for message in model.calls[1]["messages"]] == ["Who am I?"]


def stores(folder: Path) -> list[Store]:
    return [MemoryStore(), FileStore(folder / "files"), SQLiteStore(folder / "state.db")]


@pytest.mark.parametrize("number", range(3), ids=["memory", "file", "sqlite"])
async def test_a_thread_remembers_even_in_another_process(number: int, tmp_path: Path) -> None:
    store = stores(tmp_path)[number]
    model = ScriptedModel.saying(calls("get_weather", city="Rome"), "Sunny.", "You asked about Rome.")
    await Agent("assistant", None, model, [get_weather], store=store)("Rome?", thread="ann")
    again = store if number == 0 else stores(tmp_path)[number]
    agent = Agent("assistant", None, model, [get_weather], store=again, thread="ann")
    assert (await agent("What did I ask?")).text == "You asked about Rome."
    assert [message["role"] for message in model.calls[2]["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert [msg.role for msg in await agent.history("ann")] == ["user", "assistant", "user", "assistant"]
    assert await agent.history("bob") == []
    assert await agent.forget("ann")
    assert await agent.history("ann") == []


async def test_two_replies_of_one_thread_at_once_both_stay() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await gate.wait()
        return "waited"

    model = ScriptedModel([{"when": {"contains": "slow"}, "answer": {"tool_calls": [{"name": "wait"}]}, "times": 1}])
    agent = Agent("assistant", None, model, [wait], thread="t")
    slow = asyncio.create_task(agent("slow"))
    await begun.wait()
    await agent("quick")
    gate.set()
    await slow
    said = [(msg.role, msg.text) for msg in await agent.history("t")]
    assert said == [("user", "quick"), ("assistant", "quick"), ("user", "slow"), ("assistant", "slow")]


class Marks(MiddlewareBase):
    """Writes into every scope of a reply and into its context, and notes what it finds there."""

    def __init__(self) -> None:
        self.strangers: list[Any] = []

    async def on_reply(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Any) -> AsyncIterator[Any]:
        mine = input_kwargs["inputs"]
        found = [agent.state.of(self), agent.state.middle_context, agent.extra_tools, agent.steps, agent.state.context]
        self.strangers += [str(each) for each in found if each]
        agent.state.of(self)["mine"] = mine
        async with aclosing(next_handler()) as events:
            async for event in events:
                yield event
        if agent.state.of(self) != {"mine": mine}:
            self.strangers.append(str(agent.state.of(self)))

    async def on_reasoning(self, agent: Any, input_kwargs: dict[str, Any], next_handler: Any) -> AsyncIterator[Any]:
        agent.react_config.max_iters = 7
        agent.state.append_context(agent.name, [HintBlock(f"hint for {agent.state.of(self)['mine']}")])
        async with aclosing(next_handler()) as events:
            async for event in events:
                yield event


async def test_100_replies_of_10_agents_with_one_middleware_share_nothing() -> None:
    chance = random.Random(7)

    @tool
    async def look(of: str) -> str:
        """Look."""
        await asyncio.sleep(chance.random() / 200)
        return f"seen {of}"

    def answer(call: Any) -> Any:
        from spangate.call.rules import Rule

        messages = call.body.get("messages")
        mine = messages[0]["content"]
        if any(message["role"] == "tool" for message in messages):
            return Rule.model_validate({"answer": {"text": f"answer to {mine}"}})
        return Rule.model_validate({"answer": {"tool_calls": [{"name": "look", "arguments": {"of": mine}}]}})

    shared = Marks()
    model = ScriptedModel([answer])
    agents = [Agent(f"agent {number}", None, model, [look], [shared]) for number in range(10)]
    answers = await asyncio.gather(*(agents[number % 10](f"<{number}>") for number in range(100)))
    assert [each.text for each in answers] == [f"answer to <{number}>" for number in range(100)]
    assert shared.strangers == []
    assert all(agent.react_config == ReActConfig() and not agent._running for agent in agents)
    for call in model.calls:
        mine = call["messages"][0]["content"]
        assert all(mine in str(message) for message in call["messages"]), "no word of another reply"


class Plan(MiddlewareBase):
    async def on_system_prompt(self, agent: Any, current_prompt: str) -> str:
        return f"{current_prompt}!"


async def test_global_middlewares_stand_around_those_of_a_part() -> None:
    seen: list[str] = []

    class Note(MiddlewareBase):
        def __init__(self, name: str) -> None:
            self.name = name

        async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
            seen.append(f"{self.name} model")
            return await next_handler()

        async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            seen.append(f"{self.name} acting")
            async with aclosing(next_handler()) as chunks:
                async for chunk in chunks:
                    yield chunk

    model = ScriptedModel.saying(calls("get_weather", city="Rome"), "Sunny.")
    attached = {"model": [Note("m")], "tools": [Note("t")]}
    await Agent("a", None, model, [get_weather], attached, global_middlewares=[Note("g")])("?")
    assert seen == ["g model", "m model", "g acting", "t acting", "g model", "m model"]
    with pytest.raises(ValueError, match="attach to model or tools, not to 'modle'"):
        Agent("a", None, model, middlewares={"modle": []})
    with pytest.raises(TypeError, match="Note is no middleware: give an instance"):
        Agent("a", None, model, middlewares=[Note])


async def test_interrupt_by_thread() -> None:
    began = asyncio.Event()

    @tool
    async def forever() -> str:
        """Never ends."""
        began.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel.saying(calls("forever"), "hello again")
    agent = Agent("a", None, model, [forever], thread="t")
    task = asyncio.create_task(agent("go"))
    await began.wait()
    assert agent.interrupt(thread="other") == 0
    assert agent.interrupt(thread="t") == 1
    answer = await task
    assert answer.finished_reason is ReplyFinishedReason.INTERRUPTED
    assert agent.interrupt() == 0
    assert (await agent("still there?")).text == "hello again"
    assert "interrupted" in model.calls[1]["messages"][2]["content"]
    assert any(isinstance(block, ToolCallBlock) for msg in await agent.history("t") for block in msg.content)


async def test_no_tenant_is_called_what_anothers_agents_are_kept_under() -> None:
    store = MemoryStore()
    one = Agent("b/threads/c", None, ScriptedModel(), store=store, tenant="a")
    other = Agent("c", None, ScriptedModel(), store=store, tenant="a/threads/b")
    await one("mine", thread="t")
    assert await other.history("t") == []
    assert [msg.text for msg in await one.history("t")] == ["mine", "mine"]
    for wrong in ("", " "):
        with pytest.raises(ValueError, match="needs a tenant"):
            Agent("a", None, ScriptedModel(), tenant=wrong)


async def test_a_layer_is_told_the_tenant() -> None:
    class Notes(MiddlewareBase):
        async def before_reply(self, agent: Any) -> None:
            await agent.store.put(f"{agent.tenant}/notes", "last", agent.name)

    store = MemoryStore()
    await Agent("a", None, ScriptedModel(), middlewares=[Notes()], store=store, tenant="ann")("hi")
    record = await store.get("ann/notes", "last")
    assert record is not None
    assert record.value == "a"
