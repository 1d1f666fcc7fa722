"""agent/events.py: frozen, JSON, and of one type each."""

from __future__ import annotations

import inspect
import json

import pytest

import spangate.agent
from spangate.agent import AgentEvent, HintBlock, ReplyEndEvent, TextBlockDeltaEvent, events  # type: ignore[attr-defined]
from spangate.agent.events import HintBlockEvent

KINDS = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, AgentEvent) and "type" in vars(kind)]


def test_each_has_a_type_of_its_own() -> None:
    types = [kind.type for kind in KINDS]
    assert len(set(types)) == len(types) >= 25


def test_the_words_are_agentscopes() -> None:
    """Whoever reads events over a wire reads these."""
    assert {getattr(spangate.agent, name).type for name in spangate.agent.__all__ if name.endswith("Event")} == {
        *("EVENT", "CUSTOM", "HINT_BLOCK", "REPLY_START", "REPLY_END", "MODEL_CALL_START", "MODEL_CALL_END", "USER_INTERRUPT"),
        *(f"{block}_BLOCK_{part}" for block in ("TEXT", "THINKING", "DATA") for part in ("START", "DELTA", "END")),
        *("TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END"),
        *("TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_DATA_DELTA", "TOOL_RESULT_END"),
        *("REQUIRE_USER_CONFIRM", "REQUIRE_EXTERNAL_EXECUTION", "USER_CONFIRM_RESULT", "EXTERNAL_EXECUTION_RESULT"),
    }


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
