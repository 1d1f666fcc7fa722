"""The seed's two routers: a classifier, or a chat model, chooses for each reply which model makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spangate.agent import Agent, ScriptedModel, calls, tool
from spangate.call.call import Call
from spangate.call.script import Rule, Script

from seeds.sample import run

HARD, EASY = "请用多步推理解答这道复杂的数学任务。", "一个简单的日常问答。"


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(("asked", "chosen"), [(HARD, "strong"), (EASY, "fast")], ids=["hard", "easy"])
async def test_the_classifier_chooses_by_the_descriptions(asked: str, chosen: str) -> None:
    sample = run("agentscope/router_classifier", fast_script=())
    reply = sample.agent.stream(asked)
    assert (await reply.result()).text == asked
    assert {"fast": len(sample.fast.calls), "strong": len(sample.strong.calls)} == {"fast": 0, "strong": 0} | {chosen: 1}
    assert [step.model for step in reply.view.steps] == [getattr(sample, chosen).model]
    assert sample.agent.model is sample.fast, "the agent's own model stays what it is"


async def test_one_choice_for_all_calls_of_a_reply_and_another_for_the_next() -> None:
    sample = run("agentscope/router_classifier", fast_script=())
    sample.strong.script = Script([{"answer": calls("look"), "times": 1}, {"answer": {"text": "Solved."}}])
    sample.agent.toolkit.add(look)
    assert (await sample.agent(HARD)).text == "Solved."
    assert (len(sample.strong.calls), len(sample.fast.calls)) == (2, 0)
    assert (await sample.agent(EASY)).text == EASY
    assert (len(sample.strong.calls), len(sample.fast.calls)) == (2, 1)


def choice(call: Call) -> Rule | None:
    """What a chat model says that is asked to choose: the tool that it is given has the candidates' names as an enum."""
    offered = call.body.parsed().get("tools") or []
    if not offered:
        return None
    function = offered[0]["function"]
    [field] = [name for name, schema in function["parameters"]["properties"].items() if set(enum_of(schema)) == {"fast", "strong"}]
    pick = "strong" if any(HARD in str(message["content"]) for message in call.body.parsed()["messages"]) else "fast"
    return Rule.model_validate({"answer": calls(function["name"], **{field: pick})})


def enum_of(schema: Mapping[str, Any]) -> list[str]:
    return list(schema.get("enum", ()))


@pytest.mark.parametrize(("asked", "chosen"), [(HARD, "strong"), (EASY, "fast")], ids=["hard", "easy"])
async def test_a_chat_model_chooses_by_a_structured_answer(asked: str, chosen: str) -> None:
    sample = run("agentscope/router_chat", fast_script=[choice])
    own = ScriptedModel(model="own")
    reply = Agent("assistant", None, own, middlewares=[sample.router]).stream(asked)
    events = [event async for event in reply]
    assert reply.message is not None
    assert reply.message.text == asked
    assert [step.model for step in reply.view.steps] == [getattr(sample, chosen).model]
    assert not own.calls
    routing = sample.fast.calls[0]
    assert "Select the most suitable chat model for the user input." in str(routing["messages"])
    assert [each.purpose for each in reply.view.attempts] == ["router", "main"]
    assert not any(event.type.startswith("TOOL_CALL") for event in events), "the choice is nobody's business outside"
