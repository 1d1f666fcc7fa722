"""The seed's ReplyBudgetControlMiddleware: a reply that has used up its budget is told to finish, and may call no more tools."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import ReplyFinishedReason, ScriptedModel, Toolkit, calls, tool

from seeds.sample import run

# By the sample's weights 1 × 4000 + 2 × 3000: to the token what it allows.
ALL_OF_IT = {"input": 4000, "output": 3000}
looked: list[str] = []


@tool
def look(of: str) -> str:
    """Look."""
    looked.append(of)
    return "seen"


def budgeted(usage: dict[str, int], stream: bool) -> tuple[Any, ScriptedModel]:
    rules = [
        {"when": {"contains": "first"}, "answer": calls("look", of="it"), "usage": usage, "times": 1},
        {"answer": {"text": "Done."}, "usage": {"input": 10, "output": 10}},
    ]
    model = ScriptedModel(rules, stream=stream)
    return run("agentscope/reply_budget", model=model, toolkit=Toolkit([look])).agent, model


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_used_up_ends_with_an_answer_and_without_tools(stream: bool) -> None:
    looked.clear()
    agent, model = budgeted(ALL_OF_IT, stream)
    answer = await agent("first")
    assert (answer.text, answer.finished_reason) == ("Done.", ReplyFinishedReason.COMPLETED)
    assert looked == ["it"], "the round in which it is used up still runs its tools"
    before, after = model.calls
    assert before.get("tool_choice") in (None, "auto")
    assert after["tool_choice"] == "none"
    assert [message["role"] for message in after["messages"]] == ["system", "user", "assistant", "tool", "user"], "with one hint at its end"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_token_less_is_within(stream: bool) -> None:
    agent, model = budgeted({"input": 3999, "output": 3000}, stream)
    await agent("first")
    assert model.calls[1].get("tool_choice") in (None, "auto")
    assert model.calls[1]["messages"][-1]["role"] == "tool"


async def test_each_reply_counts_from_zero() -> None:
    agent, model = budgeted(ALL_OF_IT, True)
    await agent("first", thread="t")
    await agent("second", thread="t")
    assert len(model.calls) == 3
    assert model.calls[2].get("tool_choice") in (None, "auto")
