"""agent/middlewares/continue_once.py: its options. Its promises are in tests/agent/test_acceptance.py."""

from __future__ import annotations

from typing import Any

import pytest

from spangate.agent import ContinueOnceMiddleware, HintBlockEvent, ReActConfig, ReplyFinishedReason, ScriptedModel

from acceptance.lines import agent, endless, told


async def test_it_counts_in_the_reply() -> None:
    layer, model = ContinueOnceMiddleware(max_continues=2), ScriptedModel()
    bot = agent(model, layer, thread="t")
    for _ in range(2):
        stream = bot.stream("hi")
        events = await told(stream)
        assert stream.view.state.of(layer) == {"continued": 2}
        assert [event.source for event in events if isinstance(event, HintBlockEvent)] == ["continue_once"] * 2
    assert len(model.calls) == 6


async def test_only_for_the_reasons_that_are_given() -> None:
    model = ScriptedModel()
    await agent(model, ContinueOnceMiddleware(reasons={"exceed_max_iters"}))("hi")
    assert len(model.calls) == 1
    full = endless()
    layer = ContinueOnceMiddleware(reasons={ReplyFinishedReason.COMPLETED})
    await agent(full, layer, react_config=ReActConfig(max_iters=1))("hi")
    assert len(full.calls) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_continues": -1}, "max_continues must be a number of at least 0"),
        ({"max_continues": 1.5}, "max_continues must be a whole number"),
        ({"reasons": {"interrupted"}}, "a reply that ended as interrupted can't go on"),
        ({"reasons": {"whenever"}}, "'whenever' is no reason to end; reasons are completed, exceed_max_iters"),
    ],
)
def test_options_are_checked_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ContinueOnceMiddleware(**options)
