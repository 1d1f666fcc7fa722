"""A whole answer as a stream, and a stream as a whole answer, in OpenAI's dialect: for a provider that did the other thing. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_CHUNK = {"chat.completion": "chat.completion.chunk"}
_WHOLE = {"chat.completion.chunk": "chat.completion"}
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")


def as_chunks(answer: Mapping[str, Any], *, usage_frame: bool) -> list[dict[str, Any]]:
    """The chunks of a stream that says what `answer` says: one a choice, the end of each, and the usage if asked for."""
    head = {k: v for k, v in answer.items() if k not in ("choices", "usage", "object")}
    head["object"] = _CHUNK.get(answer.get("object", ""), answer.get("object", ""))
    choices = [choice for choice in answer.get("choices") or () if isinstance(choice, dict)]
    chunks = [{**head, "choices": [_opened_choice(choice)]} for choice in choices]
    chunks += [{**head, "choices": [_ended_choice(choice)]} for choice in choices]
    if usage_frame and answer.get("usage"):
        chunks.append({**head, "choices": [], "usage": answer["usage"]})
    return chunks


def _opened_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in choice.items() if k not in ("message", "finish_reason")}
    if not isinstance(choice.get("message"), dict):
        return {**rest, "finish_reason": None}
    delta = dict(choice["message"])
    if isinstance(delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"]) if isinstance(call, dict)]
    return {**rest, "delta": delta, "finish_reason": None}


def _ended_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    said = {"delta": {}} if "message" in choice else {"text": ""}
    return {"index": choice.get("index", 0), **said, "finish_reason": choice.get("finish_reason") or "stop"}


def as_whole(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole answer that a stream's chunks add up to."""
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name != "choices" and (value is not None or name not in answer):
                answer[name] = value
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict):
                _add_choice(choices, choice)
    answer["object"] = _WHOLE.get(answer.get("object", ""), answer.get("object", ""))
    answer["choices"] = [choices[index] for index in sorted(choices)]
    return answer


def _add_choice(choices: dict[int, dict[str, Any]], choice: Mapping[str, Any]) -> None:
    index = choice["index"] if isinstance(choice.get("index"), int) else 0
    whole = choices.setdefault(index, {"index": index, "finish_reason": None})
    for name, value in choice.items():
        if name == "delta" and isinstance(value, dict):
            _add_delta(whole.setdefault("message", {"role": "assistant", "content": None}), value)
        elif name == "text" and isinstance(value, str):
            whole["text"] = whole.get("text", "") + value
        elif name == "logprobs" and isinstance(value, dict):
            _add_lists(whole, name, value)
        elif name not in ("index", "delta") and (value or name not in whole):
            whole[name] = value


def _add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls" and isinstance(value, list):
            _add_tool_calls(message.setdefault("tool_calls", []), value)
        elif name in _JOINED and isinstance(value, str):
            message[name] = (message.get(name) or "") + value
        elif value is not None:
            message[name] = value


def _add_tool_calls(calls: list[dict[str, Any]], parts: list[Any]) -> None:
    """A part belongs to the call of its index, unless it brings a new id: then a new call has begun."""
    for part in parts:
        if not isinstance(part, dict):
            continue
        function = part.get("function") if isinstance(part.get("function"), dict) else {}
        fresh = not calls or (part.get("id") and all(call.get("id") != part["id"] for call in calls))
        if fresh:
            calls.append({"id": part.get("id"), "type": part.get("type", "function"), "function": {"name": "", "arguments": ""}})
        call = _call_of(calls, part)
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


def _call_of(calls: list[dict[str, Any]], part: Mapping[str, Any]) -> dict[str, Any]:
    named = [call for call in calls if part.get("id") and call.get("id") == part["id"]]
    if named:
        return named[0]
    index = part.get("index")
    return calls[index] if isinstance(index, int) and 0 <= index < len(calls) else calls[-1]


def _add_lists(whole: dict[str, Any], name: str, value: Mapping[str, Any]) -> None:
    had = whole.get(name) or {}
    whole[name] = {
        key: (had.get(key) or []) + part if isinstance(part, list) else part if part is not None else had.get(key)
        for key, part in value.items()
    }


def dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
