"""A whole answer as a stream, and a stream as a whole answer, in OpenAI's dialect: for a provider that did the other thing. Pure.

Answers may be long, and nobody else has a turn meanwhile: of a whole one the parts that stay as they are remain bytes, and a stream is
added up as it comes, in time that its length alone decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..call.events import dicts, dumped
from ..call.parts import CallParts

_CHUNK = {"chat.completion": "chat.completion.chunk"}
_WHOLE = {"chat.completion.chunk": "chat.completion"}
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")
_CALLS = {"function": "arguments", "custom": "input"}  # what a tool call is, and what of it comes bit by bit


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_value = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_UNPRINTED = bytes.maketrans(b"\r\n", b"  ")


def as_frames(raw: bytes, *, usage_frame: bool) -> list[bytes]:
    """The data of each event of a stream that says what the JSON `raw` says. Strings and lists in it are copied and never built.

    Raises:
        msgspec.DecodeError: it is no JSON that msgspec takes, or not in OpenAI's shape.
    """
    if b"\n" in raw or b"\r" in raw:  # which end a line of an event; in JSON they stand between values only
        raw = raw.translate(_UNPRINTED)
    return [_encode(chunk) for chunk in as_chunks(_shallow(raw), usage_frame=usage_frame)]


def encoded(answer: Mapping[str, Any]) -> bytes:
    """JSON, the quick way if that takes it: not lone surrogates, and no integer beyond 64 bits."""
    try:
        return _encode(answer)
    except (ValueError, OverflowError):
        return dumped(answer)


def _shallow(raw: bytes) -> dict[str, Any]:
    """An answer as far down as `as_chunks` looks; what is below stays bytes."""
    answer: dict[str, Any] = dict(_fields(raw))
    _read(answer, "object", "usage")
    if "choices" in answer:
        choices: list[dict[str, Any]] = [*_objects(answer["choices"])]
        for choice in choices:
            _read(choice, "index", "finish_reason")
            if _is(choice.get("message"), b"{"):
                message: dict[str, Any] = dict(_fields(choice["message"]))
                choice["message"] = message
                if _is(message.get("tool_calls"), b"["):
                    message["tool_calls"] = _objects(message["tool_calls"])
        answer["choices"] = choices
    return answer


def _read(fields: dict[str, Any], *names: str) -> None:
    for name in names:
        if name in fields:
            fields[name] = _value(fields[name])


def _is(raw: Any, begun: bytes) -> bool:
    return raw is not None and bytes(memoryview(raw)[:1]) == begun


def as_chunks(answer: Mapping[str, Any], *, usage_frame: bool) -> list[dict[str, Any]]:
    """The chunks of a stream that says what `answer` says: one a choice, the end of each, and the usage if asked for."""
    head = {k: v for k, v in answer.items() if k not in ("choices", "usage", "object")}
    head["object"] = _renamed(_CHUNK, answer)
    choices = dicts(answer.get("choices"))
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
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(dicts(delta["tool_calls"]))]
    return {**rest, "delta": delta, "finish_reason": None}


def _ended_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"delta": {}} if "message" in choice else {"text": ""}
    return {"index": choice.get("index", 0), **said, "finish_reason": choice.get("finish_reason") or "stop"}


def as_whole(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole answer that a stream's chunks add up to."""
    whole = Whole()
    for chunk in chunks:
        whole.add(chunk)
    return whole.answer()


class Whole:
    """A whole answer, as far as the chunks of its stream have come."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        for name, value in chunk.items():
            if name != "choices" and (value is not None or name not in self._head):
                self._head[name] = value
        for choice in dicts(chunk.get("choices")):
            index = choice["index"] if isinstance(choice.get("index"), int) else 0
            self._choices.setdefault(index, _Choice(index)).add(choice)

    def answer(self) -> dict[str, Any]:
        choices = [_joined(self._choices[index].whole) for index in sorted(self._choices)]
        return {**self._head, "object": _renamed(_WHOLE, self._head), "choices": choices}


class _Pieces(list[Any]):
    """A text or a list that grows: one that is copied at each step takes the square of its length."""

    def __init__(self, first: str | list[Any]) -> None:
        super().__init__()
        self._kind = type(first)
        self.grow(first)

    def takes(self, value: Any) -> bool:
        return isinstance(value, self._kind)

    def grow(self, value: Any) -> None:
        if self._kind is str:
            self.append(value)
        else:
            self.extend(value)

    def joined(self) -> str | list[Any]:
        return "".join(self) if self._kind is str else list(self)


def _grown(had: Any, new: Any) -> _Pieces:
    """A text or a list, longer by `new`; what was none gives way."""
    if isinstance(had, _Pieces) and had.takes(new):
        had.grow(new)
        return had
    return _Pieces(new)


def _joined(value: Any, levels: int = 4) -> Any:
    """The same with every text and list in one piece: the lowest stand in a function of a tool call of a message of a choice."""
    if isinstance(value, _Pieces):
        return value.joined()
    if isinstance(value, _Calls):
        return [_joined(call, levels) for call in value]
    if isinstance(value, dict) and levels:
        return {name: _joined(part, levels - 1) for name, part in value.items()}
    return value


def _renamed(names: Mapping[str, str], answer: Mapping[str, Any]) -> str:
    name = str(answer.get("object") or "")
    return names.get(name, name)


class _Choice:
    """One choice, as far as its chunks have come."""

    def __init__(self, index: int) -> None:
        self.whole: dict[str, Any] = {"index": index, "finish_reason": None}
        self._calls = ToolCalls()

    def add(self, choice: Mapping[str, Any]) -> None:
        whole = self.whole
        for name, value in choice.items():
            if name in ("delta", "message") and isinstance(value, dict):
                self._add_delta(whole.setdefault("message", {"role": "assistant", "content": None}), value)
            elif name == "text" and isinstance(value, str):
                whole[name] = _grown(whole.get(name), value)
            elif name == "logprobs" and isinstance(value, dict):
                whole[name] = _longer(whole.get(name), value)
            elif name not in ("index", "delta", "message") and (value or name not in whole):
                whole[name] = value

    def _add_delta(self, message: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for part in dicts(value):
                    self._calls.add(part)
                if self._calls.whole:
                    message[name] = self._calls.whole
            elif isinstance(value, list) or (name in _JOINED and isinstance(value, str)):
                message[name] = _grown(message.get(name), value)
            elif value is not None or name not in message:
                message[name] = value


class _Calls(list[dict[str, Any]]):
    """Tool calls whose words still grow."""


class ToolCalls:
    """Tool calls, put together from the parts that a stream brings."""

    def __init__(self) -> None:
        self.whole = _Calls()
        self._parts: CallParts[dict[str, Any]] = CallParts()

    def add(self, part: Mapping[str, Any]) -> None:
        kind = next((kind for kind in _CALLS if isinstance(part.get(kind), dict)), "function")
        given = part.get(kind)
        new = given if isinstance(given, dict) else {}
        name, words = new.get("name"), new.get(_CALLS[kind])
        call = self._parts.of(part, lambda own: self._begun(own, part.get("type")), names=bool(name))
        said = call.setdefault(kind, {"name": "", _CALLS[kind]: _Pieces("")})
        said["name"] = said["name"] or (name if isinstance(name, str) else "")
        if words:
            said[_CALLS[kind]].grow(words if isinstance(words, str) else json.dumps(words))
        call |= {other: value for other, value in part.items() if other not in ("id", "type", "index", *_CALLS) and value is not None}

    def _begun(self, own: str | None, kind: Any) -> dict[str, Any]:
        self.whole.append({"id": own, "type": kind or "function"})
        return self.whole[-1]


def _longer(had: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """Logprobs: lists grow, the rest is taken over."""
    before = had if isinstance(had, dict) else {}
    return before | {
        key: _grown(before.get(key), part) if isinstance(part, list) else before.get(key) if part is None else part
        for key, part in value.items()
    }
