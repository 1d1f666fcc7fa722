"""The seed's FullObservabilityMiddleware: every place is seen, in the order of the agent's life."""

from __future__ import annotations

import pytest

from spangate.agent import Agent, ScriptedModel, calls, collect_tools, tool

from seeds.sample import run


@tool
def look() -> str:
    """Look."""
    print("[tool]")
    return "seen"


@pytest.mark.parametrize("stream", [True, False])
async def test_every_place_speaks_in_its_turn(stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    observer = run("agentscope/full_observability").FullObservabilityMiddleware()
    model = ScriptedModel.saying(calls("look"), "Done.", model="qwen-plus", stream=stream)
    agent = Agent("assistant", "Be kind.", model, [look], [observer])
    assert (await agent("Go.")).text == "Done."
    one_round = [
        "[compress_context] checking context for assistant",
        "[compress_context] done",
        "[reasoning] start",
        "[system_prompt] length=8",
        "[model_call] qwen-plus",
        "[model_call] done",
        "[reasoning] end",
    ]
    said = capsys.readouterr().out.splitlines()
    assert said == ["[reply] start for assistant", *one_round, "[tool]", *one_round, "[reply] end for assistant"]


async def test_it_changes_nothing() -> None:
    observer = run("agentscope/full_observability").FullObservabilityMiddleware()
    told = []
    for middlewares in ([observer], []):
        agent = Agent("assistant", "Be kind.", ScriptedModel.saying(calls("look"), "Done."), [look], middlewares)
        told.append([(event.type, event.seq) async for event in agent.stream("Go.")])
    assert told[0] == told[1]


async def test_its_tools_are_had_by_asking_for_them() -> None:
    observer = run("agentscope/full_observability").FullObservabilityMiddleware()
    assert await collect_tools([observer]) == []
