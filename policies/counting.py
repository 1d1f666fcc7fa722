"""How many tokens a request is for a model that reads in an encoding: the rules around the texts, as far as they are known.

Pure and slow: milliseconds for a long text, so not for the loop. OpenAI publishes the rule for messages; how tools are written for the
model is known from trials, so that what they count is near and not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..call.body import Body
from ..call.events import dicts

Count = Callable[[str], int]

A_MESSAGE, A_NAME, THE_ANSWER = 3, 1, 3
A_TOOL_CALL = 4
THE_TOOLS, A_TOOL, PROPERTIES, A_PROPERTY, ENUM, A_VALUE = 12, 7, 3, 3, -3, 3

LONGEST = 4 << 20  # bytes of a request that is counted
MOST_PARTS = 8 << 10  # objects and lists in it: more than that is decoded in a step that everybody would notice


def countable(body: Body) -> bool:
    """Whether it is short and simple enough to be counted."""
    raws = [bytes(raw) for name, raw in body.fields.items() if name in _COUNTED]
    return sum(map(len, raws)) <= LONGEST and sum([raw.count(b"{") + raw.count(b"[") for raw in raws]) <= MOST_PARTS


def counted(body: Body, count: Count) -> int:
    """The tokens of its texts and tools. Images and other attachments are not among them."""
    messages = body.get("messages")
    total = sum([count(text) for name in ("prompt", "suffix", "input") for text in _texts(body.get(name))])
    if isinstance(messages, list):
        total += THE_ANSWER + sum([_message(message, count) for message in dicts(messages)])
    tools = [*dicts(body.get("tools")), *dicts(body.get("functions"))]
    return total + (THE_TOOLS + sum([_tool(tool, count) for tool in tools]) if tools else 0)


_COUNTED = frozenset({"messages", "prompt", "suffix", "input", "tools", "functions"})


def _message(message: Mapping[str, Any], count: Count) -> int:
    total = A_MESSAGE + count(_text(message.get("role"))) + sum(map(count, _texts(message.get("content"))))
    if name := _text(message.get("name")):
        total += A_NAME + count(name)
    calls = [_inner(each, "function") for each in dicts(message.get("tool_calls"))]
    return total + sum([A_TOOL_CALL + count(_text(each.get("name"))) + count(_text(each.get("arguments"))) for each in calls])


def _tool(tool: Mapping[str, Any], count: Count) -> int:
    function = _inner(tool, "function") or tool
    total = A_TOOL + count(f"{_text(function.get('name'))}:{_text(function.get('description')).removesuffix('.')}")
    return total + _properties(_inner(function, "parameters"), count)


def _properties(schema: Mapping[str, Any], count: Count) -> int:
    properties = _inner(schema, "properties")
    total = PROPERTIES if properties else 0
    for name, given in properties.items():
        about: Mapping[str, Any] = given if isinstance(given, dict) else {}
        total += A_PROPERTY + count(f"{name}:{_text(about.get('type'))}:{_text(about.get('description')).removesuffix('.')}")
        values = about.get("enum")
        if isinstance(values, list):
            total += ENUM + sum([A_VALUE + count(str(value)) for value in values])
        total += _properties(about, count) + _properties(_inner(about, "items"), count)
    return total


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        text = part if isinstance(part, str) else part.get("text") or part.get("refusal") if isinstance(part, dict) else None
        if isinstance(text, str):
            yield text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _inner(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}
