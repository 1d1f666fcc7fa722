"""policies/wrap_up.py: one hint, and no more tools."""

from __future__ import annotations

from spangate.policies.wrap_up import HINT, wrapped_up

from admitting import call


def test_a_hint_is_the_last_message_and_tools_are_forbidden() -> None:
    asked = call("go on", tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="required")
    body = wrapped_up(asked).body.parsed()
    assert body["messages"] == [{"role": "user", "content": "go on"}, {"role": "user", "content": HINT}]
    assert body["tool_choice"] == "none"
    assert body["tools"] == asked.body.get("tools")
    assert "tool_choice" not in wrapped_up(call("go on")).body.parsed()
    assert wrapped_up(call("go on", functions=[{"name": "f"}])).body.get("function_call") == "none"


def test_what_is_no_chat_is_left_alone() -> None:
    asked = call("some text", op="embeddings")
    assert wrapped_up(asked) is asked
    odd = call(messages="no list")
    assert wrapped_up(odd) is odd
