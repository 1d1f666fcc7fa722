"""agent/sugar.py: before and after, in LangChain's order."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import Agent, HintBlock, Jump, MiddlewareBase, MiddlewareFault, ReplyFinishedReason, ScriptedModel, calls, tool


@tool
def look() -> str:
    """Look."""
    return "seen"


class Notes(MiddlewareBase):
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    async def before_reply(self, agent: Any) -> Any:
        self.said.append(f"{self.name} before reply")
        return {"n": 0}

    def before_model(self, agent: Any) -> Any:
        self.said.append(f"{self.name} before model")
        return {"n": agent.state.of(self)["n"] + 1}

    async def after_model(self, agent: Any, response: Any) -> Any:
        self.said.append(f"{self.name} after {response.text or response.tool_calls[0].name}")

    async def after_reply(self, agent: Any, end: Any) -> Any:
        self.said.append(f"{self.name} after reply {agent.state.of(self)['n']}")


async def test_before_runs_in_order_and_after_in_reverse() -> None:
    said: list[str] = []
    model = ScriptedModel.saying(calls("look"), "done")
    await Agent("a", None, model, [look], [Notes("1", said), Notes("2", said)])("go")
    once = ["1 before model", "2 before model", "2 after {}", "1 after {}"]
    rounds = [line.format(what) for what in ("look", "done") for line in once]
    assert said == ["1 before reply", "2 before reply", *rounds, "2 after reply 2", "1 after reply 2"]


async def test_a_jump_to_the_end_before_the_model() -> None:
    class Ends(MiddlewareBase):
        async def before_model(self, agent: Any) -> Any:
            return Jump.END if agent.steps else None

    model = ScriptedModel.saying(calls("look"), "never")
    answer = await Agent("a", None, model, [look], [Ends()])("go")
    assert (answer.text, answer.finished_reason, len(model.calls)) == ("", ReplyFinishedReason.COMPLETED, 1)


async def test_a_jump_past_the_tools_answers_their_calls() -> None:
    class Past(MiddlewareBase):
        def __init__(self, where: Any) -> None:
            self.where = where

        async def after_model(self, agent: Any, response: Any) -> Any:
            return self.where if response.tool_calls else None

    model = ScriptedModel.saying(calls("look"), "done")
    assert (await Agent("a", None, model, [look], [Past("model")])("go")).text == "done"
    assert model.calls[1]["messages"][-1]["content"] == "This call was not made."
    ended = Agent("a", None, ScriptedModel.saying(calls("look"), "never"), [look], [Past(Jump.END)], thread="t")
    assert (await ended("go")).text == ""
    assert [block.type for block in (await ended.history("t"))[1].content] == ["tool_call", "tool_result"]
    through = ScriptedModel.saying(calls("look"), "done")
    await Agent("a", None, through, [look], [Past(Jump.TOOLS)])("go")
    assert through.calls[1]["messages"][-1]["content"] == "seen"


async def test_a_reply_may_go_on_after_its_end() -> None:
    class Again(MiddlewareBase):
        async def after_reply(self, agent: Any, end: Any) -> Any:
            if len(agent.steps) > 1:
                return None
            agent.state.append_context(agent.name, [HintBlock("Check it.")])
            return Jump.MODEL

    model = ScriptedModel.saying("first", "second")
    assert (await Agent("a", None, model, middlewares=[Again()])("go")).text == "second"


async def test_anything_else_is_a_fault_that_names_it() -> None:
    class Odd(MiddlewareBase):
        async def before_model(self, agent: Any) -> Any:
            return "elsewhere"

    with pytest.raises(MiddlewareFault, match=r"Odd\.before_model returned 'elsewhere'; it must return None, a dict or a Jump"):
        await Agent("a", None, ScriptedModel(), middlewares=[Odd()])("go")

    class Breaks(MiddlewareBase):
        async def after_model(self, agent: Any, response: Any) -> Any:
            raise LookupError("mine")

    with pytest.raises(LookupError) as caught:
        await Agent("a", None, ScriptedModel(), middlewares=[Breaks()])("go")
    assert caught.value.__notes__ == ["raised in Breaks.after_model"]
