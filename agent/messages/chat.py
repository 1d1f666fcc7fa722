"""OpenAI's chat completions dialect: messages to and from its JSON. What comes in goes out as it came, unknown fields too.

A message that this module would not write back exactly as it was is kept whole, as a `ForeignBlock`.
"""

from __future__ import annotations

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
)
from .dialect import extra as extra_of
from .dialect import kept, rest, source_of, url_of
from .msg import Msg
from .turns import Turn, turns

D = "chat"
REASONING = ("reasoning_content", "reasoning")  # what providers call the thoughts beside an answer; OpenAI has no word for them
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "assistant"}
_AUDIO = {"audio/wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}


# out


def to_chat(messages: Sequence[Msg]) -> list[dict[str, Any]]:
    """The `messages` of a request."""
    out: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []  # what a tool result can't hold; it follows once all results are said
    for turn in turns(messages):
        if turn.role != "tool" and shown:
            out.append({"role": "user", "content": shown})
            shown = []
        whole = turn.blocks[0] if len(turn.blocks) == 1 else None
        if isinstance(whole, ForeignBlock) and whole.whole:
            if whole.dialect == D:
                out.append(whole.value)
        elif turn.role == "tool":
            out.append(_result(turn.blocks[0], shown))
        elif turn.role == "assistant":
            out.append(_assistant(turn))
        else:
            out.append(_said(turn))
    return [*out, {"role": "user", "content": shown}] if shown else out


def _said(turn: Turn) -> dict[str, Any]:
    known = turn.of.extra.get(D, {}) if turn.role == turn.of.role else {}
    parts = [part for block in turn.blocks for part in _parts(block)]
    form = known.get("form")
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"} and form != "parts"
    content: Any = parts[0]["text"] if plain else parts
    if not parts and form != "parts":
        content = ""
    return {"role": known.get("role", turn.role), "content": content, **known.get("fields", {})}


def _parts(block: Block) -> list[dict[str, Any]]:
    if isinstance(block, TextBlock):
        return [{"type": "text", "text": block.text, **block.extra.get(D, {})}]
    if isinstance(block, DataBlock):
        return [_data(block)]
    if isinstance(block, HintBlock):
        return [part for each in block.blocks for part in _parts(each)]
    if isinstance(block, ForeignBlock):
        return [block.value] if block.dialect == D else []
    return []


def _data(block: DataBlock) -> dict[str, Any]:
    source, extra = block.source, block.extra.get(D, {})
    if isinstance(source, Base64Source) and source.media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": source.data, "format": _AUDIO[source.media_type], **extra}}
    if isinstance(source, Base64Source) and not source.media_type.startswith("image/"):
        return {"type": "file", "file": {"filename": block.name or "file", "file_data": url_of(source), **extra}}
    return {"type": "image_url", "image_url": {"url": url_of(source), **extra}}


def _assistant(turn: Turn) -> dict[str, Any]:
    known = turn.of.extra.get(D, {}) if turn.is_first else {}
    message: dict[str, Any] = {"role": "assistant"}
    texts = [block for block in turn.blocks if isinstance(block, TextBlock) and not _refuses(block)]
    parts = [part for block in turn.blocks if isinstance(block, TextBlock | DataBlock | ForeignBlock) for part in _parts(block)]
    calls = [_call(block) for block in turn.blocks if isinstance(block, ToolCallBlock)]
    if known.get("form") == "parts":
        message["content"] = parts
    elif texts:
        message["content"] = "".join(block.text for block in texts)
    elif "content" in known or not known.get("absent"):
        message["content"] = known.get("content", None if calls else "")
    refusal = "".join(block.text for block in turn.blocks if isinstance(block, TextBlock) and _refuses(block))
    if refusal and known.get("form") != "parts":
        message["refusal"] = refusal
    for block in turn.blocks:
        if isinstance(block, ThinkingBlock) and "field" in block.extra.get(D, {}):
            message[block.extra[D]["field"]] = block.thinking
        message |= block.extra.get("chat.message", {})
    if calls:
        message["tool_calls"] = calls
    message |= known.get("fields", {})
    return message


def _refuses(block: TextBlock) -> bool:
    return bool(block.extra.get(D, {}).get("refusal") is True)


def _call(block: ToolCallBlock) -> dict[str, Any]:
    extra = block.extra.get(D, {})
    if extra.get("type") == "custom":
        return {"id": block.id, "type": "custom", "custom": {"name": block.name, "input": block.input}, **extra.get("fields", {})}
    function = {"name": block.name, "arguments": block.input, **extra.get("function", {})}
    return {"id": block.id, "type": "function", "function": function, **extra.get("fields", {})}


def _result(block: Block, shown: list[dict[str, Any]]) -> dict[str, Any]:
    assert isinstance(block, ToolResultBlock)
    extra = block.extra.get(D, {})
    message: dict[str, Any] = {"role": "tool", "tool_call_id": block.id, **extra.get("fields", {})}
    if isinstance(block.output, str):
        return message | {"content": block.output}
    texts = [part for each in block.output if isinstance(each, TextBlock) for part in _parts(each)]
    data = [part for each in block.output if isinstance(each, DataBlock) for part in _parts(each)]
    if data:
        shown += [{"type": "text", "text": f"What {block.name} ({block.id}) returned:"}, *data]
    return message | {"content": texts if extra.get("form") == "parts" else "".join(part["text"] for part in texts)}


# in


def from_chat(messages: Sequence[Mapping[str, Any]]) -> list[Msg]:
    """Messages from those of a request, one for one."""
    return [_message(dict(each)) for each in messages]


def _message(given: dict[str, Any]) -> Msg:
    role = given.get("role")
    if isinstance(role, str) and role in _ROLES:
        parsed = _assistant_in(given) if role == "assistant" else _tool_in(given) if role == "tool" else _said_in(given)
        if parsed is not None and to_chat([parsed]) == [given]:
            return parsed
    name, as_role = str(role), _ROLES.get(str(role), "user")
    whole: Block = ForeignBlock(D, given, whole=True)
    return Msg(name, [whole], as_role)  # type: ignore[arg-type]


def _said_in(given: dict[str, Any]) -> Msg | None:
    blocks = _content_in(given.get("content"))
    if blocks is None:
        return None
    extra: dict[str, Any] = {"fields": rest(given, "role", "content")}
    if isinstance(given["content"], list):
        extra["form"] = "parts"
    if given["role"] == "developer":
        extra["role"] = "developer"
    name = given.get("name")
    role = _ROLES[given["role"]]
    allowed = ("text", "foreign") if role == "system" else ("text", "data", "foreign")
    if any(block.type not in allowed for block in blocks):
        return None
    return Msg(name if isinstance(name, str) else role, blocks, role, extra={D: extra})  # type: ignore[arg-type]


def _content_in(content: Any) -> list[Block] | None:
    if isinstance(content, str):
        return [TextBlock(content)] if content else []
    return [_part_in(part) for part in content] if isinstance(content, list) else None


def _part_in(part: Any) -> Block:
    block = _known_part(part) if isinstance(part, dict) else None
    return kept(D, part, block, _parts(block) if block is not None else ())


def _known_part(part: dict[str, Any]) -> Block | None:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return TextBlock(part["text"], extra=extra_of(D, rest(part, "type", "text")))
    if kind == "image_url" and isinstance(part.get("image_url"), dict) and part.keys() == {"type", "image_url"}:
        inner = part["image_url"]
        return DataBlock(source_of(str(inner.get("url"))), extra=extra_of(D, rest(inner, "url")))
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict) and part.keys() == {"type", "input_audio"}:
        inner = part["input_audio"]
        media = {"wav": "audio/wav", "mp3": "audio/mpeg"}.get(str(inner.get("format")), "")
        return DataBlock(Base64Source(str(inner.get("data")), media), extra=extra_of(D, rest(inner, "data", "format")))
    if kind == "file" and isinstance(part.get("file"), dict) and part.keys() == {"type", "file"}:
        inner = part["file"]
        source = source_of(str(inner.get("file_data")))
        return DataBlock(source, str(inner.get("filename")), extra=extra_of(D, rest(inner, "file_data", "filename")))
    return None


def _assistant_in(given: dict[str, Any]) -> Msg | None:
    blocks: list[Block] = []
    extra: dict[str, Any] = {}
    fields = rest(given, "role", "content", "tool_calls", "refusal")
    thought = [field for field in REASONING if isinstance(given.get(field), str) and given[field]]
    blocks += [ThinkingBlock(fields.pop(field), extra={D: {"field": field}}) for field in thought]
    content = given.get("content")
    said = _content_in(content)
    if said:
        blocks += said
    if isinstance(content, list):
        extra["form"] = "parts"
    elif not said:
        extra |= {"content": content} if "content" in given else {"absent": True}
    if isinstance(given.get("refusal"), str) and given["refusal"]:
        blocks.append(TextBlock(given["refusal"], extra={D: {"refusal": True}}))
    elif "refusal" in given:
        fields["refusal"] = given["refusal"]
    listed = given.get("tool_calls")
    if listed:
        calls = [_call_in(call) for call in listed] if isinstance(listed, list) else [None]
        if None in calls:
            return None
        blocks += [call for call in calls if call is not None]
    elif "tool_calls" in given:
        fields["tool_calls"] = listed
    name = given.get("name")
    return Msg(name if isinstance(name, str) else "assistant", blocks, "assistant", extra={D: {**extra, "fields": fields}})


def _call_in(call: Any) -> ToolCallBlock | None:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return None
    if call.get("type") == "custom" and isinstance(call.get("custom"), dict):
        inner = call["custom"]
        extra = {"type": "custom", "fields": rest(call, "id", "type", "custom")}
        return ToolCallBlock(call["id"], str(inner.get("name")), str(inner.get("input")), extra={D: extra})
    inner = call.get("function")
    if not isinstance(inner, dict) or not isinstance(inner.get("arguments"), str):
        return None
    extra = {"fields": rest(call, "id", "type", "function"), "function": rest(inner, "name", "arguments")}
    return ToolCallBlock(call["id"], str(inner.get("name")), inner["arguments"], extra={D: extra} if any(extra.values()) else {})


def _tool_in(given: dict[str, Any]) -> Msg | None:
    call_id, content = given.get("tool_call_id"), given.get("content")
    if not isinstance(call_id, str):
        return None
    extra: dict[str, Any] = {"fields": rest(given, "role", "tool_call_id", "content")}
    output: Any = content
    if isinstance(content, list):
        output = [_part_in(part) for part in content]
        extra["form"] = "parts"
        if not all(isinstance(each, TextBlock) for each in output):
            return None
    elif not isinstance(content, str):
        return None
    name = given.get("name")
    result = ToolResultBlock(call_id, name if isinstance(name, str) else "", output, ToolResultState.SUCCESS, extra={D: extra})
    return Msg("tool", [result], "assistant")
