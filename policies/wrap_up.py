"""wrap_up: a call whose budget is used up is told to come to an end: one hint to the model, and no more tools. Pure.

A gateway sees each call by itself: a caller that goes on gets the hint again, once a call, and within `grace`.
"""

from __future__ import annotations

from typing import Any

from ..call.call import Call

HINT = "The budget for this is used up. Finish now: answer with what you have, and call no more tools."


def wrapped_up(call: Call, hint: str = HINT) -> Call:
    """The same with the hint as its last message, and with tools forbidden where any were offered."""
    if call.op != "chat":
        return call
    body = call.body
    messages = body.get("messages")
    if not isinstance(messages, list):
        return call
    changes: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": hint}]}
    if body.size("tools") > 2:
        changes["tool_choice"] = "none"
    if body.size("functions") > 2:
        changes["function_call"] = "none"
    return call.with_body(body.changed(**changes))
