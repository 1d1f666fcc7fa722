"""The seed's TimingMiddleware: one line for each model call, with the agent, the model and the time."""

from __future__ import annotations

import re

import pytest

from spangate.agent import Agent, ScriptedModel, calls, tool

from seeds.sample import run


@tool
def look() -> str:
    """Look."""
    return "seen"


async def test_a_line_for_each_model_call(capsys: pytest.CaptureFixture[str]) -> None:
    timing = run("agentscope/timing").TimingMiddleware()
    model = ScriptedModel([
        {"answer": {"first": 0.06, **calls("look")}, "times": 1},
        {"answer": {"text": "Done."}, "times": 1},
    ], model="qwen-plus", stream=False)  # fmt: skip
    assert (await Agent("assistant", None, model, [look], [timing])("Go.")).text == "Done."
    lines = capsys.readouterr().out.splitlines()
    took = [float(re.fullmatch(r"\[timing\] assistant → qwen-plus: (\d+\.\d\d)s", line).group(1)) for line in lines]  # type: ignore[union-attr]
    assert len(took) == 2
    assert took[0] >= 0.05
