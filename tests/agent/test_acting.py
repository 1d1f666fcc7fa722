"""agent/acting.py: which calls run together, and that every call gets exactly one result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
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
    ToolResponse,
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


def leaving(name: str) -> ToolBase:
    """Tools that would take more with them than themselves."""

    def no_more() -> str:
        return next(iter(()))

    def exits() -> str:
        raise SystemExit(3)

    async def exits_here() -> str:
        raise SystemExit(3)

    async def waits_for_what_is_cancelled() -> str:
        other = asyncio.create_task(asyncio.sleep(5))
        other.cancel()
        await other
        return ""

    functions = {each.__name__: each for each in (no_more, exits, exits_here, waits_for_what_is_cancelled)}
    return tool(name=name, description="Leaves.")(functions[name])


LEAVING = {
    "no_more": "no_more failed: RuntimeError: a plain function raised StopIteration",
    "exits": "exits failed: ToolExit: exits tried to end the program.",
    "exits_here": "exits_here failed: ToolExit: exits_here tried to end the program.",
    "waits_for_what_is_cancelled": (
        "waits_for_what_is_cancelled failed: ToolExit: waits_for_what_is_cancelled was cancelled by something that it waited for."
    ),
}


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.parametrize("times", [1, 2])
async def test_a_tool_takes_nothing_with_it_but_itself(name: str, times: int) -> None:
    """Neither the reply, nor the program, nor those who wait."""
    assert await called(*[name] * times, "x", tools=[leaving(name), noting("x", together=True)]) == [LEAVING[name]] * times + ["x"]


class Flow(BaseException):
    """Somebody's control flow."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ODD = {
    Flow: "ToolExit: odd raised Flow.",
    GeneratorExit: "ToolExit: odd raised GeneratorExit.",
    Speechless: "Speechless",
    lambda: BaseExceptionGroup("two", [SystemExit()]): "ToolExit: odd raised BaseExceptionGroup.",
}


@pytest.mark.parametrize("makes", ODD, ids=str)
@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async generator"])
async def test_whatever_a_tool_raises_is_its_result(makes: Any, kind: str) -> None:
    def plain() -> str:
        raise makes()

    async def coroutine() -> str:
        raise makes()

    def generator() -> Iterator[str]:
        yield "a"
        raise makes()

    async def async_generator() -> AsyncIterator[str]:
        yield "a"
        raise makes()

    functions = {"plain": plain, "coroutine": coroutine, "generator": generator, "async generator": async_generator}
    odd = tool(name="odd", description="Odd.")(functions[kind])
    in_thread = makes is GeneratorExit and kind in ("plain", "generator")
    expected = "RuntimeError: a plain function raised GeneratorExit" if in_thread else ODD[makes]
    async with asyncio.timeout(5):
        assert await called("odd", "x", tools=[odd, noting("x", together=True)]) == [f"odd failed: {expected}", "x"]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_layers_control_flow_passes_and_leaves_a_valid_history(times: int) -> None:
    flow = Flow()

    class Leaves(MiddlewareBase):
        async def on_acting(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
            if input_kwargs["tool_call"].name == "y":
                raise flow
            async with aclosing(next_handler()) as chunks:
                async for chunk in chunks:
                    yield chunk

    tools = [noting("y", together=True), noting("x", together=True)]
    model = ScriptedModel.saying({"tool_calls": [{"name": "x"}] + [{"name": "y"}] * times})
    agent = Agent("a", None, model, tools, [Leaves()], thread="t")
    with pytest.raises((Flow, BaseExceptionGroup)) as raised:
        async for _ in agent.stream("go"):
            pass
    assert raised.value is flow if times == 1 else raised.value.exceptions == (flow, flow)  # type: ignore[attr-defined]
    results = [(block.name, block.state) for msg in await agent.history("t") for block in msg.get_content_blocks("tool_result")]
    assert results == [("x", "success")] + [("y", "interrupted")] * times
    assert not agent._running


async def flooded(piece: str, **options: Any) -> tuple[str, float]:
    """What the model is told of a tool that gives this piece for ever and never waits; and how much processor time it took."""

    @tool(**options)
    async def flood() -> AsyncIterator[str]:
        """Flood."""
        while True:
            yield piece

    began = time.process_time()
    [said] = await called("flood", tools=[flood])
    return said, time.process_time() - began


@pytest.mark.fault("AGT-08")
async def test_a_tool_that_gives_for_ever_is_stopped() -> None:
    said, took = await flooded("x" * 1000)
    assert said == "flood failed: ToolOverflow: flood gave more than 16777216 characters and was stopped."
    assert took < 5


@pytest.mark.fault("AGT-08")
async def test_a_tool_that_gives_nothing_for_ever_leaves_the_loop_its_turn() -> None:
    said, _ = await flooded("", time_limit=0.05)
    assert said == "flood failed: ToolTimeout: flood took longer than 0.05 seconds and was stopped."


@pytest.mark.fault("AGT-08")
async def test_many_small_pieces_cost_what_they_weigh() -> None:
    @tool
    async def drip() -> AsyncIterator[str]:
        """5 MB in 20 thousand pieces."""
        for _ in range(20_000):
            yield "y" * 250

    began = time.process_time()
    [said] = await called("drip", tools=[drip])
    assert "[… 4800000 of 5000000 characters were cut out here …]" in said
    assert time.process_time() - began < 2, "a text that grows by each piece, copied by each, takes fifteen"


async def test_a_tools_own_limit_is_the_events_too() -> None:
    @tool(result_limit=100)
    def flood() -> str:
        """Flood."""
        return "x" * 5000

    model = ScriptedModel.saying(calls("flood"), "done")
    events = [event async for event in Agent("a", None, model, [flood]).stream("go")]
    assert sum(len(event.delta) for event in events if event.type == "TOOL_RESULT_TEXT_DELTA") == 100  # type: ignore[attr-defined]
    assert "[… 4900 of 5000 characters were cut out here …]" in model.calls[1]["messages"][-1]["content"]


@pytest.mark.fault("AGT-08")
async def test_data_that_is_too_large_is_left_out_with_a_note() -> None:
    @tool
    def scans() -> list[Any]:
        """Scans."""
        return [DataBlock(Base64Source("A" * size, "image/png"), name) for size, name in ((40, "one"), (4000, "two"), (40, None))]

    model = ScriptedModel.saying(calls("scans"), "done")
    stream = Agent("a", None, model, [scans], context_config=ContextConfig(tool_data_limit=100)).stream("go")
    events = [event async for event in stream]
    assert [len(event.data) for event in events if event.type == "TOOL_RESULT_DATA_DELTA"] == [40, 40]  # type: ignore[attr-defined]
    assert [event.metadata for event in events if event.type == "TOOL_RESULT_END"] == [{"truncated": 4000}]
    said = model.calls[1]["messages"]
    assert said[2]["content"] == "[… two was left out here: 4000 characters of base64 …]"
    assert len(said[3]["content"]) == 3, "what they are, and the two that are left"


async def test_metadata_of_any_kind_does_not_keep_a_conversation_from_being_kept() -> None:
    itself: dict[str, Any] = {}
    itself["itself"] = itself

    @tool
    def odd(of: int) -> ToolResponse:
        """Odd."""
        return ToolResponse("fine", metadata=[{"at": object, "n": float("nan"), 1: "one"}, itself, {("a", "b"): 1}][of])

    model = ScriptedModel.saying(*(calls("odd", of=number) for number in range(3)), "done")
    agent = Agent("a", None, model, [odd], thread="t")
    assert (await agent("go")).text == "done"
    kept = [block.metadata for msg in await agent.history("t") for block in msg.get_content_blocks("tool_result")]
    assert kept == [{"at": "<class 'object'>", "n": None, "1": "one"}, {"unreadable": "dict"}, {"('a', 'b')": 1}]


async def test_a_tool_whose_own_check_fails_has_failed() -> None:
    class Strict(ToolBase):
        name, description = "strict", "Strict."

        def checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
            raise KeyError("of")

    assert await called("strict", tools=[Strict()]) == ["strict failed: KeyError: 'of'"]


async def test_a_name_of_any_length_is_answered_in_few_words() -> None:
    [said] = await called("n" * 1_000_000, tools=[noting("x", together=True)])
    assert said == f"There is no tool called '{'n' * 100}…'. There are: x."
