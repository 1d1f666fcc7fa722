"""agent/tools/tool.py: a function as a tool, and the onion around one tool, in an agent and outside."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from spangate.agent import Agent, ScriptedModel, TextBlock, ToolBase, ToolChunk, ToolMiddlewareBase, ToolResponse, calls, tool
from spangate.agent.tools.arguments import BadArguments


@tool
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


class Out(BaseModel):
    x: int


async def test_a_plain_function_runs_in_a_thread() -> None:
    @tool
    def where() -> str:
        """Where."""
        return threading.current_thread().name

    assert (await where()).text != threading.current_thread().name
    assert (await add(a=1)).text == "3"
    assert (await add(a="1", b=1)).text == "2", "as pydantic reads it"
    with pytest.raises(BadArguments, match="a: Field required"):
        await add()


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), ("x", "x"), (1.5, "1.5"), ({"a": [1]}, '{"a":[1]}'), (Out(x=1), '{"x":1}'), (TextBlock("b"), "b"), ({object}, None)],
)
async def test_whatever_a_tool_returns_is_told(value: Any, text: str | None) -> None:
    @tool
    async def give() -> Any:
        """Give."""
        return value

    told = (await give()).text
    assert told == text if text is not None else "object" in told


async def test_generators_of_both_kinds_stream() -> None:
    @tool
    def plain() -> Iterator[str]:
        """Plain."""
        yield "a"
        yield "b"

    @tool
    async def async_one() -> AsyncIterator[Any]:
        """Async."""
        yield ToolChunk("a")
        yield "b"
        yield ToolResponse("whole")

    assert [chunk.text async for chunk in plain.stream()] == ["a", "b"]
    assert (await plain()).text == "ab"
    assert (await async_one()).text == "whole"


class Notes(ToolMiddlewareBase):
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    async def on_tool_call(self, tool: Any, input_kwargs: dict[str, Any], next_handler: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        self.said.append(f"{self.name} {tool.name} {input_kwargs}")
        async for chunk in next_handler(a=input_kwargs["a"] * 10):
            yield chunk
        self.said.append(f"{self.name} end")


def fresh() -> Any:
    @tool(name="add")
    def add_again(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    return add_again


async def test_a_tools_own_layers_stand_around_it_everywhere() -> None:
    said: list[str] = []
    used = fresh().use(Notes("1", said), Notes("2", said))
    assert (await used(a=1)).text == "102"
    assert said == ["1 add {'a': 1}", "2 add {'a': 10}", "2 end", "1 end"]
    model = ScriptedModel.saying(calls("add", a=1), "done")
    await Agent("a", None, model, [used])("go")
    assert model.calls[1]["messages"][-1]["content"] == "102"
    assert len(said) == 8
    assert (await fresh()(a=1)).text == "3", "another instance has none"
    with pytest.raises(TypeError, match="has no on_tool_call"):
        used.use(object())


async def test_a_layer_that_leaves_early_closes_its_inside() -> None:
    closed = []

    @tool
    async def many() -> AsyncIterator[str]:
        """Many."""
        try:
            for _ in range(9):
                yield "x"
        finally:
            closed.append(True)

    class First(ToolMiddlewareBase):
        async def on_tool_call(self, tool: Any, input_kwargs: dict[str, Any], next_handler: Any) -> AsyncIterator[Any]:  # type: ignore[override]
            async for chunk in next_handler():
                yield chunk
                return

    assert (await many.use(First())()).text == "x"
    assert closed == [True]


async def test_a_class_is_a_tool_too() -> None:
    class Repeat(ToolBase):
        name = "repeat"
        description = "Repeats."
        input_schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}  # noqa: RUF012

        async def call(self, *, text: str) -> str:  # type: ignore[override]
            return text * 2

    assert (await Repeat()(text="x")).text == "xx"
    assert (await Repeat().use(ToolMiddlewareBase())(text="x")).text == "xx"
    with pytest.raises(BadArguments, match="text: must be string, not integer"):
        await Repeat()(text=1)
    with pytest.raises(NotImplementedError, match="ToolBase implements call"):
        await ToolBase()()
