"""The seed's ContinueOnceMiddleware: the first end is swallowed, a hint goes in, and one more round is made."""

from __future__ import annotations

import pytest

from spangate.agent import Agent, ReActConfig, ReplyEndEvent, ReplyFinishedReason, ReplyStartEvent, ScriptedModel, calls, tool

from seeds.sample import run

HINT = {"role": "user", "content": "结束前请再检查一遍结果。"}


@tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_completed_reply_makes_one_more_round(stream: bool) -> None:
    again = run("agentscope/continue_once").ContinueOnceMiddleware()
    model = ScriptedModel.saying("First.", "Second.", "Never.", stream=stream)
    reply = Agent("assistant", None, model, middlewares=[again]).stream("Go.")
    events = [event async for event in reply]
    assert reply.message is not None
    assert reply.message.text == "Second."
    assert len(model.calls) == 2
    assert model.calls[1]["messages"] == [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "First."}, HINT]
    assert [type(event) for event in events if isinstance(event, ReplyStartEvent | ReplyEndEvent)] == [ReplyStartEvent, ReplyEndEvent]
    assert len({event.reply_id for event in events}) == 1


async def test_a_reply_that_ran_out_of_rounds_gets_one_back() -> None:
    again = run("agentscope/continue_once").ContinueOnceMiddleware()
    model = ScriptedModel.saying(calls("look"), "Out of rounds.", "Checked.", "Never.")
    answer = await Agent("assistant", None, model, [look], [again], react_config=ReActConfig(max_iters=1))("Go.")
    assert (answer.text, answer.finished_reason) == ("Checked.", ReplyFinishedReason.COMPLETED)
    assert len(model.calls) == 3
    assert model.calls[2]["messages"][-1] == HINT


async def test_an_interrupted_reply_ends() -> None:
    again = run("agentscope/continue_once").ContinueOnceMiddleware()
    model = ScriptedModel.saying("one two three", "Never.")
    reply = Agent("assistant", None, model, middlewares=[again]).stream("Go.")
    async for event in reply:
        if event.type == "TEXT_BLOCK_DELTA":
            reply.interrupt()
    assert reply.message is not None
    assert reply.message.finished_reason is ReplyFinishedReason.INTERRUPTED
    assert len(model.calls) == 1


async def test_one_instance_serves_every_reply_anew() -> None:
    again = run("agentscope/continue_once").ContinueOnceMiddleware()
    model = ScriptedModel.saying("a", "b", "c", "d")
    agent = Agent("assistant", None, model, middlewares=[again])
    assert [(await agent("Go.")).text for _ in range(2)] == ["b", "d"]
