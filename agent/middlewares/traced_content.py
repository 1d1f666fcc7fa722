"""What was said, as telemetry writes it: messages of roles and parts, as JSON text. Long texts are cut inside their parts, so that it stays
JSON. Pure; called only where content is to be captured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..messages.blocks import Base64Source, Block, DataBlock, HintBlock, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from ..messages.msg import Msg

Capture = Literal["none", "full"]
VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = {"SPAN_ONLY", "SPAN_AND_EVENT"}


def capture_of(option: Capture | None) -> bool:
    """Whether content is captured: as the option says, or else OpenTelemetry's own variable.

    Raises:
        ValueError: the option is none of its words.
    """
    if option is None:
        return os.environ.get(VARIABLE, "").strip().upper() in _ON_SPANS
    if option not in ("none", "full"):
        raise ValueError(f"capture_content must be 'none' or 'full', not {option!r}")
    return option == "full"


def messages_of(messages: Iterable[Msg], limit: int) -> str:
    """`gen_ai.input.messages`."""
    return _text([{"role": msg.role, "parts": _parts(msg.content, limit), "name": msg.name} for msg in messages])


def answer_of(blocks: Sequence[Block], limit: int) -> str:
    """`gen_ai.output.messages`."""
    return _text([{"role": "assistant", "parts": _parts(blocks, limit)}])


def tools_of(tools: Iterable[Mapping[str, Any]]) -> str:
    """`gen_ai.tool.definitions`, without what is large."""
    return _text([{"type": tool.get("type", "function"), "name": tool.get("function", tool).get("name", "")} for tool in tools])


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _parts(blocks: Iterable[Block], limit: int) -> list[dict[str, Any]]:
    return [part for block in blocks for part in _part(block, limit)]


def _part(block: Block, limit: int) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock):
        return [{"type": "text", "content": cut(block.text, limit)}]
    if isinstance(block, ThinkingBlock):
        return [{"type": "reasoning", "content": cut(block.thinking, limit)}]
    if isinstance(block, HintBlock):
        hint = block.hint if isinstance(block.hint, str) else "".join(each.text for each in block.hint if isinstance(each, TextBlock))
        return [{"type": "text", "content": cut(hint, limit)}]
    if isinstance(block, ToolCallBlock):
        return [{"type": "tool_call", "id": block.id, "name": block.name, "arguments": _arguments(block.input, limit)}]
    if isinstance(block, ToolResultBlock):
        return [{"type": "tool_call_response", "id": block.id, "response": cut(block.text, limit)}]
    if isinstance(block, DataBlock):
        source, modality = block.source, block.source.media_type.partition("/")[0] or "document"
        if isinstance(source, Base64Source):
            # Bytes have no place on a span.
            return [{"type": "blob", "modality": modality, "mime_type": source.media_type, "content": ""}]
        return [{"type": "uri", "modality": modality, "mime_type": source.media_type, "uri": cut(source.url, limit)}]
    return []


def _arguments(text: str, limit: int) -> Any:
    try:
        return json.loads(text) if len(text) <= limit else cut(text, limit)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
