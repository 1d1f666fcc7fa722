"""The cap on how long an answer may be, set or lowered by a rule, and how the caller is told of it: `x-spangate-capped`.

A caller who says no cap, or one that doesn't fit, gets an answer all the same, and a shorter one. Bodies keep the fields that they have;
where there is none, the one that OpenAI's models of today take is added.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.events import Event, Opened

HEADER = "x-spangate-capped"
FIELDS = ("max_completion_tokens", "max_tokens")
_ADDED = {"chat": "max_completion_tokens", "completions": "max_tokens"}


def over(call: Call, most: int) -> bool:
    """Whether the answer may become longer than `most` tokens a choice."""
    return call.op in _ADDED and (call.head.output_cap is None or call.head.output_cap > most)


def capped(call: Call, most: int) -> Call:
    """The same with answers of at most `most` tokens a choice."""
    if not over(call, most):
        return call
    body = call.body
    given = {name: body.get(name) for name in FIELDS if name in body}
    fields = {name: most for name, value in given.items() if isinstance(value, int) and value > most}
    if all(value is None for value in given.values()):
        fields[_ADDED[call.op]] = most
    return replace(call, body=body.changed(**fields), head=replace(call.head, output_cap=most))


async def telling(call: Call, next: Next, most: int) -> AsyncIterator[Event]:
    """The answer, with a header that says where it was capped. A rule inside that capped it lower has said so already."""
    async with pulling(next(call)) as events:
        async for event in events:
            if isinstance(event, Opened) and HEADER not in event.headers:
                yield replace(event, headers={**event.headers, HEADER: str(most)})
            else:
                yield event
