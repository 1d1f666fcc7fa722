"""Anthropic's messages dialect: messages to and from its JSON. What comes in goes out as it came, unknown fields too.

A block that this module would not write back exactly as it was is kept whole, as a `ForeignBlock`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .blocks import (
    Base64Source,
    Block,
    DataBlock,
    ForeignBlock,
    HintBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolResultState,
    URLSource,
)
from .dialect import extra as extra_of
from .dialect import kept, rest
from .msg import Msg
from .turns import turns

D = "anthropic"
_FAILED = {ToolResultState.ERROR, ToolResultState.DENIED, ToolResultState.INTERRUPTED}


# out


def to_anthropic(messages: Sequence[Msg]) -> tuple[Any, list[dict[str, Any]]]:
    """`system` (None: there is none) and `messages` of a request. What is told as a system's word later on is told as a user's."""
    first = next((number for number, msg in enumerate(messages) if msg.role != "system"), len(messages))
    out: list[dict[str, Any]] = []
    last: object = None
    for turn in turns(messages[first:]):
        role = "assistant" if turn.role == "assistant" else "user"
        parts = [part for block in turn.blocks for part in _parts(block)]
        # Results and the hints behind them are one message; two messages of a user stay two.
        key = (role, id(turn.of))
        if key == last and role == "user":
            out[-1]["content"] = [*_listed(out[-1]["content"]), *parts]
            continue
        last = key
        known = turn.of.extra.get(D, {}) if turn.is_first else {}
        if parts or "form" in known:
            out.append({"role": role, "content": _shaped(parts, known.get("form")), **known.get("fields", {})})
    return _system(messages[:first]), out


def _listed(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _shaped(parts: list[dict[str, Any]], form: str | None) -> Any:
    if form == "text" and not parts:
        return ""
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and form != "parts"
    return parts[0]["text"] if plain else parts


def _system(messages: Sequence[Msg]) -> Any:
    parts = [part for msg in messages for block in msg.content for part in _parts(block)]
    if not messages or not parts:
        return None
    return _shaped(parts, messages[0].extra.get(D, {}).get("form"))


def _parts(block: Block) -> list[dict[str, Any]]:
    extra = block.extra.get(D, {})
    if isinstance(block, TextBlock):
        return [{"type": "text", "text": block.text, **extra}] if block.text or extra else []
    if isinstance(block, ThinkingBlock):
        return [{"type": "thinking", "thinking": block.thinking, **extra}] if "signature" in extra else []
    if isinstance(block, DataBlock):
        return [_data(block, extra)]
    if isinstance(block, HintBlock):
        return [part for each in block.blocks for part in _parts(each)]
    if isinstance(block, ToolCallBlock):
        return [{"type": "tool_use", "id": block.id, "name": block.name, "input": _object(block.input), **extra}]
    if isinstance(block, ToolResultBlock):
        return [_result(block, extra)]
    return [block.value] if block.dialect == D else []


def _object(text: str) -> Any:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {"unreadable_arguments": text}
    return value if isinstance(value, dict) else {"arguments": value}


def _data(block: DataBlock, extra: Mapping[str, Any]) -> dict[str, Any]:
    source = block.source
    kind = "image" if source.media_type.startswith("image/") or not source.media_type else "document"
    where = (
        {"type": "base64", "media_type": source.media_type, "data": source.data}
        if isinstance(source, Base64Source)
        else {"type": "url", "url": source.url}
    )
    return {"type": kind, "source": where, **extra}


def _result(block: ToolResultBlock, extra: Mapping[str, Any]) -> dict[str, Any]:
    content: Any = block.output if isinstance(block.output, str) else [part for each in block.output for part in _parts(each)]
    failed = {"is_error": True} if block.state in _FAILED and "is_error" not in extra else {}
    body = {} if extra.get("content", "") is None else {"content": content}
    return {"type": "tool_result", "tool_use_id": block.id, **body, **failed, **{k: v for k, v in extra.items() if k != "content"}}


def tools_of(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools as Anthropic writes them; a provider's own tools are passed on."""
    out = []
    for tool in tools:
        function = tool.get("function") if tool.get("type") == "function" else None
        if isinstance(function, Mapping):
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            out.append({"name": function["name"], "description": function.get("description", ""), "input_schema": schema})
        else:
            out.append(dict(tool))
    return out


# in


def from_anthropic(messages: Sequence[Mapping[str, Any]], system: Any = None) -> list[Msg]:
    """Messages from those of a request, one for one, after its system prompt."""
    out = []
    if system is not None:
        listed = [{"type": "text", "text": system}] if isinstance(system, str) else system
        form = "text" if isinstance(system, str) else "parts"
        out.append(Msg("system", [_block(part, ("text",)) for part in listed], "system", extra={D: {"form": form}}))
    return out + [_message(dict(each)) for each in messages]


def _message(given: dict[str, Any]) -> Msg:
    content = given.get("content")
    is_text = isinstance(content, str)
    listed = ([{"type": "text", "text": content}] if content else []) if is_text else content
    role = "assistant" if given.get("role") == "assistant" else "user"
    kinds = ("text", "thinking", "tool_call") if role == "assistant" else ("text", "data", "tool_result")
    fields = rest(given, "role", "content")
    parts = listed if isinstance(listed, list) else []
    extra = {"form": "text" if is_text else "parts", "fields": fields}
    return Msg(role, [_block(part, kinds) for part in parts], role, extra={D: extra})  # type: ignore[arg-type]


def _block(part: Any, kinds: Sequence[str]) -> Block:
    block = _known(part) if isinstance(part, dict) else None
    return kept(D, part, block, _parts(block) if block is not None and block.type in kinds else ())


def _extra(part: Mapping[str, Any], *known: str) -> dict[str, Any]:
    return extra_of(D, rest(part, *known))


def _known(part: dict[str, Any]) -> Block | None:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return TextBlock(part["text"], extra=_extra(part, "type", "text"))
    if kind == "thinking" and isinstance(part.get("thinking"), str):
        return ThinkingBlock(part["thinking"], extra=_extra(part, "type", "thinking"))
    if kind == "tool_use" and isinstance(part.get("id"), str):
        text = json.dumps(part.get("input"), ensure_ascii=False)
        return ToolCallBlock(part["id"], str(part.get("name")), text, extra=_extra(part, "type", "id", "name", "input"))
    if kind == "tool_result" and isinstance(part.get("tool_use_id"), str):
        return _result_in(part)
    if kind in ("image", "document") and isinstance(part.get("source"), dict):
        return _data_in(part)
    return None


def _result_in(part: dict[str, Any]) -> Block | None:
    content, extra = part.get("content"), _extra(part, "type", "tool_use_id", "content")
    output: Any = content
    if isinstance(content, list):
        output = [_block(each, ("text", "data")) for each in content]
        if any(isinstance(each, ForeignBlock) for each in output):
            return None
    elif content is None:
        output, extra = "", {D: {**extra.get(D, {}), "content": None}}
    state = ToolResultState.ERROR if part.get("is_error") else ToolResultState.SUCCESS
    return ToolResultBlock(part["tool_use_id"], "", output, state, extra=extra)


def _data_in(part: dict[str, Any]) -> Block | None:
    source = part["source"]
    extra = _extra(part, "type", "source")
    if source.get("type") == "base64":
        return DataBlock(Base64Source(str(source.get("data")), str(source.get("media_type"))), extra=extra)
    media = "image/*" if part["type"] == "image" else "application/pdf"
    return DataBlock(URLSource(str(source.get("url")), media), extra=extra)
