"""agent/acting.py: which calls run together, and that every call gets exactly one result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from spangate.agent import (
    Agent,
    ContextConfig,
    DataBlock,
    LimitReached,
    MiddlewareBase,
    ScriptedModel,
    TextBlock,
    ToolBase,
    ToolResultState,
    calls,
    tool,
)
from spangate.agent.messages.blocks import Base64Source

log: list[str] = []


def noting(name: str, *, together: bool) -> ToolBase:
    async def run() -> str:
        log.append(f"{name} begins")
        await asyncio.sleep(0)
        log.append(f"{name} ends")
        return name

    return tool(name=name, description="Notes.", is_concurrency_safe=together)(run)


async def called(*names: str, tools: list[ToolBase], **more: Any) -> list[str]:
    """What the model is told after it called these."""
    model = ScriptedModel.saying({"tool_calls": [{"name": name} for name in names]}, "done")
    await Agent("a", None, model, tools, **more)("go")
    return [message["content"] for message in model.calls[1]["messages"] if message["role"] == "tool"]


async def test_neighbours_that_may_run_together_do() -> None:
    log.clear()
    tools = [noting("x", together=True), noting("y", together=True), noting("z", together=False)]
    assert await called("x", "y", "z", "x", "y", tools=tools) == ["x", "y", "z", "x", "y"]
    assert log[:2] == ["x begins", "y begins"]
    assert log[4:6] == ["z begins", "z ends"]
    assert log[6:8] == ["x begins", "y begins"]


@pytest.mark.fault("AGT-08")
async def test_an_unknown_tool_is_a_result_that_says_which_there_are() -> None:
    [said] = await called("nots", tools=[noting("notes", together=True)])
    assert said == "There is no tool called 'nots'. Did you mean 'notes'? There are: notes."


@pytest.mark.fault("AGT-08")
async def test_a_huge_result_is_cut_with_a_mark() -> None:
    @tool
    def flood() -> str:
        """5 MB."""
        return "x" * 5_000_000

    model = ScriptedModel.saying(calls("flood"), "done")
    stream = Agent("a", None, model, [flood], context_config=ContextConfig(tool_result_limit=1000)).stream("go")
    events = [event async for event in stream]
    said = model.calls[1]["messages"][-1]["content"]
    assert len(said) < 1100
    assert "[… 4999000 of 5000000 characters were cut out here …]" in said
    assert sum(len(event.delta) for event in events if event.type == "TOOL_RESULT_TEXT_DELTA") == 1000  # type: ignore[attr-defined]
    assert [event.metadata for event in events if event.type == "TOOL_RESULT_END"] == [{"truncated": 4999000}]


MALFORMED = {
    '{"of": "x"': "no JSON",
    '["x"]': "must be one JSON object, not array",
    '{"fo": "x"}': "of: Field required",
    '{"of": {"x": 1}}': "of: Input should be a valid string",
}


@pytest.mark.parametrize("arguments", MALFORMED)
async def test_arguments_that_cannot_be_used_are_a_result(arguments: str) -> None:
    @tool
    def look(of: str) -> str:
        """Look."""
        raise AssertionError("it ran")

    model = ScriptedModel.saying({"tool_calls": [{"name": "look", "arguments": arguments}]}, "done")
    stream = Agent("a", None, model, [look]).stream("go")
    ends = [event async for event in stream if event.type == "TOOL_RESULT_END"]
    assert [(event.state, event.metadata) for event in ends] == [(ToolResultState.ERROR, {"error_type": "invalid_arguments"})]  # type: ignore[attr-defined]
    assert MALFORMED[arguments] in model.calls[1]["messages"][-1]["content"]


@pytest.mark.parametrize("arguments", ["", "null", "```json\n{}\n```", "{ }", '"{}"'])
async def test_arguments_that_can_be_repaired_are(arguments: str) -> None:
    log.clear()
    model = ScriptedModel.saying({"tool_calls": [{"name": "x", "arguments": arguments}]}, "done")
    await Agent("a", None, model, [noting("x", together=True)])("go")
    assert log == ["x begins", "x ends"]
    assert model.calls[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] in ("{}", "{ }")


async def test_a_tools_failure_is_its_result_and_the_others_go_on() -> None:
    @tool
    def broken() -> str:
        """Broken."""
        raise KeyError("gone")

    said = await called("broken", "x", tools=[broken, noting("x", together=True)])
    assert said == ["broken failed: KeyError: 'gone'", "x"]


async def test_a_layers_failure_ends_the_reply_after_the_others() -> None:
    class Limit(MiddlewareBase):
        async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            if input_kwargs["tool_call"].name != "x":
                raise LimitReached("No more.")
            async with aclosing(next_handler()) as chunks:
                async for chunk in chunks:
                    yield chunk

    log.clear()
    tools = [noting("y", together=True), noting("x", together=True)]
    agent = Agent("a", None, ScriptedModel.saying({"tool_calls": [{"name": "y"}, {"name": "x"}]}), tools, [Limit()], thread="t")
    with pytest.raises(LimitReached) as caught:
        await agent("go")
    assert caught.value.__notes__ == ["raised in Limit.on_acting"]
    assert log == ["x begins", "x ends"]
    results = [(block.name, block.state) for msg in await agent.history("t") for block in msg.get_content_blocks("tool_result")]
    assert sorted(results) == [("x", "success"), ("y", "interrupted")]
    model = ScriptedModel.saying({"tool_calls": [{"name": "y"}, {"name": "y"}]})
    with pytest.raises(ExceptionGroup, match="2 tool calls failed at once"):
        await Agent("a", None, model, tools, [Limit()])("go")


async def test_a_tool_that_is_too_slow_is_stopped() -> None:
    ended = asyncio.Event()

    @tool(time_limit=0.02)
    async def slow() -> str:
        """Slow."""
        try:
            await asyncio.sleep(5)
        finally:
            ended.set()
        return ""

    @tool(time_limit=0.02)
    def slow_thread() -> str:
        """Slow, and in a thread."""
        time.sleep(0.1)
        return ""

    said = await called("slow", "slow_thread", tools=[slow, slow_thread])
    assert said[0] == "slow failed: ToolTimeout: slow took longer than 0.02 seconds and was stopped."
    assert "slow_thread took longer" in said[1]
    assert ended.is_set()


async def test_pieces_go_out_as_they_come() -> None:
    gate = asyncio.Event()

    @tool
    async def count() -> AsyncIterator[str]:
        """Count."""
        yield "one "
        await gate.wait()
        yield "two"

    model = ScriptedModel.saying(calls("count"), "done")
    deltas = []
    async for event in Agent("a", None, model, [count]).stream("go"):
        if event.type == "TOOL_RESULT_TEXT_DELTA":
            deltas.append(event.delta)  # type: ignore[attr-defined]
            gate.set()
    assert deltas == ["one ", "two"]
    assert model.calls[1]["messages"][-1]["content"] == "one two"


async def test_data_reaches_the_reader_and_the_model() -> None:
    @tool
    def picture() -> list[Any]:
        """A picture."""
        return [TextBlock("here"), DataBlock(Base64Source("AA==", "image/png"))]

    model = ScriptedModel.saying(calls("picture"), "done")
    events = [event async for event in Agent("a", None, model, [picture]).stream("go")]
    assert [event.media_type for event in events if event.type == "TOOL_RESULT_DATA_DELTA"] == ["image/png"]  # type: ignore[attr-defined]
    assert model.calls[1]["messages"][-1]["content"][1]["image_url"]["url"] == "data:image/png;base64,AA=="


async def test_calls_without_an_id_or_with_one_twice_get_their_own() -> None:
    two = {"tool_calls": [{"name": "x", "id": "same"}, {"name": "x", "id": "same"}]}
    model = ScriptedModel.saying(two, {"tool_calls": [{"name": "x", "id": "same"}]}, "done")
    await Agent("a", None, model, [noting("x", together=True)])("go")
    said = model.calls[2]["messages"]
    asked = [call["id"] for message in said for call in message.get("tool_calls", ())]
    assert len(set(asked)) == len(asked) == 3
    assert asked == [message["tool_call_id"] for message in said if message["role"] == "tool"]


async def test_a_tool_may_see_the_state() -> None:
    @tool
    def who(_agent_state: Any) -> str:
        """Who."""
        return str(_agent_state.session_id)

    assert await called("who", tools=[who], thread="ann") == ["ann"]
    assert who.input_schema["properties"] == {}
