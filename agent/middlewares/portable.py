"""A request made fit for a model of another provider, and how large it is about. Pure: what it was made of stays as it was.

Blocks need nothing: what only one provider knows stands in their `extra` under its dialect, and goes to no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..messages.blocks import texts_of
from ..messages.msg import Msg
from ..models.base import ChatModelBase

_CHARACTERS_A_TOKEN = 4


def tools_for(model: ChatModelBase, tools: Sequence[Mapping[str, Any]], *, instead_of: ChatModelBase) -> Sequence[Mapping[str, Any]]:
    """The tools as `model` takes them: without another provider's marks, and without the tools that another provider runs itself."""
    if getattr(model, "provider", "") == getattr(instead_of, "provider", ""):
        return tools
    return [_unmarked(tool) for tool in tools if tool.get("type", "function") == "function"]


def _unmarked(tool: Mapping[str, Any]) -> dict[str, Any]:
    made = {name: value for name, value in tool.items() if name != "cache_control"}
    if isinstance(made.get("function"), Mapping):
        made["function"] = {name: value for name, value in made["function"].items() if name != "cache_control"}
    return made


def estimated_tokens(messages: Iterable[Msg], tools: Iterable[Mapping[str, Any]] = ()) -> int:
    """About how many tokens a request is."""
    said = sum(len(text) for msg in messages for block in msg.content for text in texts_of(block))
    return tokens_in(said + sum(len(str(tool)) for tool in tools))


def tokens_in(characters: int) -> int:
    """About how many tokens a text of this length is; never none."""
    return characters // _CHARACTERS_A_TOKEN + 1


def fits(model: ChatModelBase, tokens: int) -> bool:
    """Whether a request of about so many tokens fits; a model that doesn't tell its window takes any."""
    size = getattr(model, "context_size", None)
    return size is None or tokens <= size
