"""agent/steps.py: what completed steps add up to."""

from __future__ import annotations

from spangate.agent import ChatUsage, Step
from spangate.agent.steps import total


def test_a_step_without_usage_adds_nothing() -> None:
    steps = [Step(0, usage=ChatUsage(1, 2)), Step(1), Step(2, usage=ChatUsage(3, 4, source="estimated"))]
    assert total(steps) == ChatUsage(4, 6, source="estimated")
    assert total([]) == ChatUsage()
