"""agent/tools/toolkit.py: tools by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spangate.agent import Agent, MiddlewareBase, ScriptedModel, ToolBase, Toolkit


def search(query: str) -> str:
    """Search."""
    return query


def test_functions_become_tools() -> None:
    kit = Toolkit([search])
    assert [tool.name for tool in kit] == ["search"]
    assert "search" in kit
    assert len(kit) == 1
    assert kit.definitions()[0]["function"]["parameters"]["required"] == ["query"]


def test_names_are_unique_and_there() -> None:
    with pytest.raises(ValueError, match="two tools called 'search'"):
        Toolkit([search, search])
    with pytest.raises(ValueError, match="ToolBase has no name"):
        Toolkit([ToolBase()])


def test_an_unknown_name_is_answered_with_those_that_are_there() -> None:
    assert Toolkit([search]).unknown("serch") == "There is no tool called 'serch'. Did you mean 'search'? There are: search."
    assert Toolkit().unknown("x") == "There is no tool called 'x'. There are: none."


async def test_the_tools_of_middlewares_are_there_before_the_first_reply() -> None:
    class Offers(MiddlewareBase):
        async def list_tools(self) -> Any:
            await asyncio.sleep(0)
            return [Toolkit([search]).get("search")]

    offers, model = Offers(), ScriptedModel()
    agent = Agent("a", None, model, Toolkit(middlewares=[offers]), [offers])
    await asyncio.gather(agent("go"), agent("go"))
    assert [[each["function"]["name"] for each in call["tools"]] for call in model.calls] == [["search"], ["search"]]


async def test_tools_of_one_name_are_refused_each_time() -> None:
    class Offers(MiddlewareBase):
        async def list_tools(self) -> Any:
            return [Toolkit([search]).get("search")]

    agent = Agent("a", None, ScriptedModel(), Toolkit([search], middlewares=[Offers()]))
    for _ in range(2):
        with pytest.raises(ValueError, match="two tools called 'search'"):
            await agent("go")


@pytest.mark.parametrize("tool", [3, None, "lookup", ToolBase])
def test_what_is_no_tool_is_refused(tool: Any) -> None:
    with pytest.raises(TypeError, match="is no tool: give a function, or an instance of ToolBase"):
        Toolkit([tool])
