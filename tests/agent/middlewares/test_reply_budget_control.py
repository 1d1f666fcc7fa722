"""agent/middlewares/reply_budget_control.py: what counts, and how much. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import (
    LimitReached,
    MiddlewareBase,
    ModelFallbackMiddleware,
    ReplyBudgetControlMiddleware,
    ScriptedModel,
    calls,
)
from spangate.agent.messages.msg import ChatUsage

from acceptance.lines import Half, agent, endless, stepping


@pytest.mark.parametrize(
    ("weights", "cost"),
    [
        ({}, 100 + 10),
        ({"input_token_weight": 0.5, "output_token_weight": 3}, 50 + 30),
        ({"cache_read_weight": 0.1}, 60 + 3 + 10 + 10),
        ({"cache_creation_weight": 2, "cache_read_weight": 0}, 60 + 0 + 20 + 10),
    ],
)
def test_what_usage_weighs(weights: dict[str, float], cost: float) -> None:
    usage = ChatUsage(input_tokens=100, output_tokens=10, cache_input_tokens=30, cache_creation_input_tokens=10)
    assert ReplyBudgetControlMiddleware(1000, **weights).cost(usage) == pytest.approx(cost)


class Asks(MiddlewareBase):
    async def before_model(self, agent: Any) -> None:
        await agent.ask("?", purpose="guard", by=self)


async def test_calls_for_the_agents_own_ends_count_unless_told_otherwise() -> None:
    for count, used in ((True, 14), (False, 7)):
        budget = ReplyBudgetControlMiddleware(1000, count_internal=count)
        stream = agent(stepping(0, usage={"input": 3, "output": 4}), budget, Asks()).stream("go")
        await stream.result()
        assert stream.view.state.of(budget) == {"used": used}


async def test_what_a_model_does_not_tell_is_estimated() -> None:
    budget = ReplyBudgetControlMiddleware(1000)
    model = ScriptedModel([{"answer": {"text": "x" * 40}, "usage": "omit"}])
    stream = agent(model, budget, tools=()).stream("y" * 40)
    await stream.result()
    assert stream.view.state.of(budget) == {"used": 11 + 11, "usage_estimated": True}


@pytest.mark.fault("USE-12")
@pytest.mark.parametrize("unknown", ["input", "output"])
async def test_of_half_a_usage_the_other_half_is_estimated(unknown: Any) -> None:
    budget = ReplyBudgetControlMiddleware(1000)
    model = Half([{"answer": {"text": "x" * 40}}])
    model.unknown = unknown
    stream = agent(model, budget, tools=()).stream("y" * 40)
    await stream.result()
    assert stream.view.state.of(budget) == {"used": 7 + 11, "usage_estimated": True}


async def test_each_request_counts_wherever_it_stands_in_the_list() -> None:
    """A model that was paid for and then failed to answer is behind a fallback."""
    budget = ReplyBudgetControlMiddleware(1000)
    broken = ScriptedModel([{"fault": {"status": 503}}], model="broken")
    stream = agent(broken, budget, ModelFallbackMiddleware(stepping(0, usage={"input": 3, "output": 4}))).stream("go")
    await stream.result()
    assert stream.view.state.of(budget) == {"used": 7}


async def test_a_hard_budget_ends_at_twice_its_size() -> None:
    model = ScriptedModel([{"answer": calls("look"), "usage": {"input": 60, "output": 0}}])
    with pytest.raises(LimitReached, match="has used 240 tokens, 2 times its budget of 100"):
        await agent(model, ReplyBudgetControlMiddleware(100, hard=True))("go")
    assert len(model.calls) == 4


async def test_hints_may_be_ones_own() -> None:
    model = endless({"input": 60, "output": 0})
    await agent(model, ReplyBudgetControlMiddleware(50, 1, 1, "wrap up"))("go")
    assert model.calls[1]["messages"][-1]["content"] == "wrap up"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token_budget": 0}, "token_budget must be a number above 0"),
        ({"token_budget": True}, "token_budget must be a number"),
        ({"token_budget": float("nan")}, "token_budget must be a number"),
        ({"token_budget": 1, "output_token_weight": -1}, "output_token_weight must be a number of at least 0"),
        ({"token_budget": 1, "cache_read_weight": "x"}, "cache_read_weight must be a number"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ReplyBudgetControlMiddleware(**options)
