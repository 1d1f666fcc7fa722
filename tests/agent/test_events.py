"""agent/events.py: frozen, JSON, and of one type each."""

from __future__ import annotations

import inspect
import json

import pytest

from spangate.agent import AgentEvent, HintBlock, ReplyEndEvent, TextBlockDeltaEvent, events  # type: ignore[attr-defined]
from spangate.agent.events import HintBlockEvent

KINDS = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, AgentEvent) and "type" in vars(kind)]


def test_each_has_a_type_of_its_own() -> None:
    types = [kind.type for kind in KINDS]
    assert len(set(types)) == len(types) >= 25


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_can_be_written_down(kind: type[AgentEvent]) -> None:
    told = json.loads(json.dumps(kind(reply_id="r").to_dict()))
    assert (told["type"], told["reply_id"], told["seq"]) == (kind.type, "r", 0)


def test_they_are_values() -> None:
    event = TextBlockDeltaEvent(reply_id="r", delta="x")
    with pytest.raises(AttributeError):
        event.delta = "y"  # type: ignore[misc]
    assert ReplyEndEvent().finished_reason == "completed"
    block = HintBlock("h", "us")
    assert (HintBlockEvent.of(block, "r").block_id, HintBlockEvent.of(block, "r").source) == (block.id, "us")
