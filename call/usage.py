"""Usage as OpenAI's answers tell it, read with distrust. Pure.

Providers differ and lie; whatever has the wrong type is as good as absent, and nothing here raises on what a provider sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec.structs import replace

from .events import Usage

NOTHING = Usage(source="none")
MOST_TOKENS = 2**31  # of one answer: no figure beyond is believed


def usage_of(value: Any) -> Usage | None:
    """Usage as counts; None if there is none worth the name. Details are parts of their totals, so they never exceed them. A total
    that is absent or makes no sense follows from `total_tokens`, or is `unknown`: never nought, which would be a gift."""
    if not isinstance(value, dict):
        return None
    tokens_in, tokens_out = _count(value.get("prompt_tokens")), _count(value.get("completion_tokens"))
    if tokens_in is None and tokens_out is None:
        return None
    total = _count(value.get("total_tokens"))
    unknown: Literal["", "input", "output"] = ""
    if tokens_in is None:
        tokens_in, unknown = _rest(total, tokens_out), "input"
    elif tokens_out is None:
        tokens_out, unknown = _rest(total, tokens_in), "output"
    if tokens_in is not None and tokens_out is not None:
        unknown = ""
    input_details, output_details = _object(value, "prompt_tokens_details"), _object(value, "completion_tokens_details")
    tokens_in, tokens_out = tokens_in or 0, tokens_out or 0
    cached = min(_count(input_details.get("cached_tokens")) or 0, tokens_in)
    return Usage(
        input=tokens_in,
        output=tokens_out,
        cached=cached,
        cache_write=min(_count(input_details.get("cache_write_tokens")) or 0, tokens_in - cached),
        reasoning=min(_count(output_details.get("reasoning_tokens")) or 0, tokens_out),
        unknown=unknown,
    )


def billed(usage: Usage | None, asked: Callable[[], int], said: Callable[[], int], *, worked: bool, vectors: bool = False) -> Usage:
    """What an attempt counts for: what its provider told, as far as that can be; the rest as it was `asked` and `said`, and flagged.
    NOTHING where none was told and the provider hasn't `worked`. `vectors`: the answer has no tokens."""
    if usage is not None and not usage.unknown and max(usage.input, usage.output) <= MOST_TOKENS:
        return usage
    if usage is None:
        return Usage(asked(), 0 if vectors else said(), source="estimated") if worked else NOTHING
    if usage.unknown == "output" and vectors:
        return replace(usage, input=believed(usage.input), unknown="")
    input = asked() if usage.unknown == "input" else believed(usage.input)
    output = said() if usage.unknown == "output" else believed(usage.output)
    cached = min(usage.cached, input)
    details = {"cached": cached, "cache_write": min(usage.cache_write, input - cached), "reasoning": min(usage.reasoning, output)}
    return replace(usage, input=input, output=output, **details, source="estimated", unknown="")


def believed(tokens: int) -> int:
    """A count as far as it can be: not below 0, and not beyond what any answer has."""
    return tokens if 0 <= tokens <= MOST_TOKENS else 0 if tokens < 0 else MOST_TOKENS


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40 else None


def _rest(total: int | None, part: int | None) -> int | None:
    return total - part if total is not None and part is not None and total >= part else None


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return part if isinstance(part, dict) else {}
