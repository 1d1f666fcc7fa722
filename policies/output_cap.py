"""The cap on how long an answer may be, set or lowered by a rule, and how the caller is told of it: `x-spangate-capped`.

A caller who says no cap, or one that doesn't fit, gets an answer all the same, and a shorter one. Bodies keep the fields that they have;
where there is none, the one that OpenAI's models of today take is added, and providers whose servers read another put that in its place. A
server's own names for a cap go, since they would hold in place of ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from ..call.call import Call
from ..call.chain import Next, pulling
from ..call.events import Event, Opened

HEADER = "x-spangate-capped"
FIELDS = {"chat": ("max_completion_tokens", "max_tokens"), "completions": ("max_tokens",)}
"""What an operation reads."""
OWN_FIELDS = ("n_predict", "num_predict", "max_output_tokens", "max_new_tokens")
"""What some servers read besides, or rather."""
_ADDED = {"chat": "max_completion_tokens", "completions": "max_tokens"}


def over(call: Call, most: int) -> bool:
    """Whether the answer may become longer than `most` tokens a choice."""
    return call.op in _ADDED and (call.head.output_cap is None or call.head.output_cap > most)


def capped(call: Call, most: int) -> Call:
    """The same with answers of at most `most` tokens a choice."""
    if not over(call, most):
        return call
    body = call.body
    given = {name: body.get(name) for name in FIELDS[call.op] if name in body}
    fields: dict[str, int | None] = {name: most for name, value in given.items() if isinstance(value, int) and value > most}
    fields |= dict.fromkeys([name for name in OWN_FIELDS if name in body])
    if all(value is None for value in given.values()):
        fields[_ADDED[call.op]] = most
    return replace(call, body=body.changed(**fields), head=replace(call.head, output_cap=most, capped=True))


async def telling(call: Call, next: Next, most: int) -> AsyncIterator[Event]:
    """The answer, with a header that says where it was capped. A rule inside that capped it lower has said so already."""
    async with pulling(next(call)) as events:
        async for event in events:
            if isinstance(event, Opened) and HEADER not in event.headers:
                yield replace(event, headers={**event.headers, HEADER: str(most)})
            else:
                yield event
