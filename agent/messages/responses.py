"""OpenAI's Responses dialect: messages to and from its input items. What comes in goes out as it came, unknown fields too.

An item that this module would not write back exactly as it was is kept whole, as a `ForeignBlock`; so are reasoning items, which mean
something to their provider alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .blocks import (
    Block,
    DataBlock,
    ForeignBlock,
    HintBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
)
from .dialect import extra as extra_of
from .dialect import kept, rest, source_of, url_of
from .msg import Msg

D = "responses"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


# out


def to_responses(messages: Sequence[Msg]) -> list[dict[str, Any]]:
    """The `input` items of a request."""
    return [item for msg in messages for item in _items(msg)]


def _items(msg: Msg) -> list[dict[str, Any]]:
    if D in msg.extra:
        return [_message(msg, msg.content, msg.role)]
    out: list[dict[str, Any]] = []
    said: list[Block] = []

    def flush() -> None:
        if said:
            out.append(_message(msg, list(said), msg.role))
            said.clear()

    for block in msg.content:
        if isinstance(block, TextBlock | DataBlock) or (isinstance(block, ForeignBlock) and not block.whole):
            said.append(block)
            continue
        flush()
        if isinstance(block, ToolCallBlock):
            call = {"type": "function_call", "call_id": block.id, "name": block.name, "arguments": block.input}
            out.append(call | block.extra.get(D, {}))
        elif isinstance(block, ToolResultBlock):
            out.append({"type": "function_call_output", "call_id": block.id, "output": _output(block)} | block.extra.get(D, {}))
        elif isinstance(block, HintBlock):
            out.append(_message(msg, block.blocks, "user"))
        elif isinstance(block, ForeignBlock) and block.dialect == D:
            out.append(block.value)
    flush()
    return out


def _message(msg: Msg, blocks: Sequence[Block], role: str) -> dict[str, Any]:
    known = msg.extra.get(D, {})
    parts = [part for block in blocks for part in _parts(block, role)]
    content: Any = parts
    if known.get("form", "parts" if role == "assistant" else "text") == "text" and all(part.keys() == {"type", "text"} for part in parts):
        content = "".join(part["text"] for part in parts)
    typed = {"type": "message"} if known.get("typed", True) else {}
    return {**typed, "role": known.get("role", role), "content": content, **known.get("fields", {})}


def _parts(block: Block, role: str) -> list[dict[str, Any]]:
    extra = block.extra.get(D, {})
    if isinstance(block, TextBlock):
        return [{"type": "output_text" if role == "assistant" else "input_text", "text": block.text, **extra}]
    if isinstance(block, DataBlock):
        url = url_of(block.source)
        if block.source.media_type.startswith("image/"):
            return [{"type": "input_image", "image_url": url, **extra}]
        return [{"type": "input_file", "filename": block.name or "file", "file_data": url, **extra}]
    return [block.value] if isinstance(block, ForeignBlock) and block.dialect == D else []


def _output(block: ToolResultBlock) -> Any:
    if isinstance(block.output, str):
        return block.output
    return [part for each in block.output for part in _parts(each, "user")]


# in


def from_responses(items: str | Sequence[Mapping[str, Any]]) -> list[Msg]:
    """Messages from the `input` of a request, one an item."""
    if isinstance(items, str):
        return [Msg("user", [TextBlock(items)], "user")]
    return [_msg(dict(item)) for item in items]


def _msg(item: dict[str, Any]) -> Msg:
    parsed = _known(item)
    if parsed is not None and to_responses([parsed]) == [item]:
        return parsed
    role = "user" if item.get("role") == "user" else "assistant"
    return Msg(str(item.get("type", role)), [ForeignBlock(D, item, whole=True)], role)  # type: ignore[arg-type]


def _known(item: dict[str, Any]) -> Msg | None:
    kind = item.get("type", "message")
    if kind == "function_call" and isinstance(item.get("arguments"), str) and isinstance(item.get("call_id"), str):
        extra = _extra(item, "type", "call_id", "name", "arguments")
        return Msg("assistant", [ToolCallBlock(item["call_id"], str(item.get("name")), item["arguments"], extra=extra)], "assistant")
    if kind == "function_call_output" and isinstance(item.get("call_id"), str):
        extra = _extra(item, "type", "call_id", "output")
        output = item.get("output")
        if isinstance(output, list):
            output = [_part(part, "user") for part in output]
            if any(isinstance(each, ForeignBlock) for each in output):
                return None
        elif not isinstance(output, str):
            return None
        result = ToolResultBlock(item["call_id"], "", output, ToolResultState.SUCCESS, extra=extra)
        return Msg("tool", [result], "assistant")
    role = item.get("role")
    return _message_in(item, role) if kind == "message" and isinstance(role, str) and role in _ROLES else None


def _message_in(item: dict[str, Any], role: str) -> Msg | None:
    content, as_role = item.get("content"), _ROLES[role]
    if isinstance(content, str):
        blocks: list[Block] = [TextBlock(content)]
    elif isinstance(content, list):
        blocks = [_part(part, as_role) for part in content]
    else:
        return None
    if as_role == "system" and any(isinstance(block, DataBlock) for block in blocks):
        return None
    fields = rest(item, "type", "role", "content")
    form = "text" if isinstance(content, str) else "parts"
    extra = {"form": form, "typed": "type" in item, "role": role, "fields": fields}
    return Msg(as_role, blocks, as_role, extra={D: extra})  # type: ignore[arg-type]


def _part(part: Any, role: str) -> Block:
    block: Block | None = None
    if isinstance(part, dict):
        kind = part.get("type")
        if kind in ("input_text", "output_text") and isinstance(part.get("text"), str):
            block = TextBlock(part["text"], extra=_extra(part, "type", "text"))
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            block = DataBlock(source_of(part["image_url"]), extra=_extra(part, "type", "image_url"))
        elif kind == "input_file" and isinstance(part.get("file_data"), str) and isinstance(part.get("filename"), str):
            block = DataBlock(source_of(part["file_data"]), part["filename"], extra=_extra(part, "type", "filename", "file_data"))
    return kept(D, part, block, _parts(block, role) if block is not None else ())


def _extra(part: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return extra_of(D, rest(part, *known))
