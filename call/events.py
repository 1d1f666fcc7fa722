"""What an answer is made of: `Opened`, then `Delta`s, then `Closed`. A whole answer is a short stream.

An answer that ends without `Closed` was cut: the chain raised. Events are values; a policy that changes one yields another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from . import sse

UsageSource = Literal["provider", "estimated", "none"]


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer. `cached` and `cache_write` are part of `input`, `reasoning` is part of `output`.

    `unknown`: the total that the provider left out, or that made no sense; it stands as 0 here and is to be estimated.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    source: UsageSource = "provider"
    unknown: Literal["", "input", "output"] = ""


class Envelope(msgspec.Struct, frozen=True):
    """What every chunk of one streamed answer repeats."""

    id: str
    model: str
    created: int = 0
    object: str = "chat.completion.chunk"


class Opened(msgspec.Struct, frozen=True):
    """The provider has begun to answer: its first content is here, or its end.

    `model` is the model as the provider names it. `headers` go out with the answer. `stream`: the Deltas are server-sent
    events; else they are pieces of one body of `content_type`. `envelope` lets a layer write chunks that fit in. `request_id` is
    the provider's own id of the request.
    """

    model: str = ""
    provider: str = ""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    stream: bool = True
    content_type: str = "text/event-stream"
    envelope: Envelope | None = None
    request_id: str = ""

    def with_headers(self, **headers: str) -> Opened:
        """The same with more response headers; `_` in a name stands for `-`."""
        return msgspec.structs.replace(self, headers={**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}})


class Delta:
    """A piece of an answer: whole SSE frames that arrived together, or bytes of a whole body.

    `raw` is what goes to the caller, `chunks` what it says; each is made from the other on demand, so that bytes nobody looks
    into are never parsed. A Delta never holds `[DONE]`, and ends where a frame ends.
    """

    __slots__ = ("_chunks", "_raw", "sse")

    def __init__(self, raw: bytes, *, sse: bool = True) -> None:
        self._raw: bytes | None = raw
        self._chunks: tuple[dict[str, Any], ...] | None = None
        self.sse = sse

    @classmethod
    def saying(cls, *chunks: dict[str, Any]) -> Delta:
        """A Delta made of OpenAI chunk objects."""
        delta = cls(b"")
        delta._raw, delta._chunks = None, chunks
        return delta

    @classmethod
    def of(
        cls,
        envelope: Envelope,
        *,
        text: str | None = None,
        tool_calls: list[dict[str, Any]] | None = None,
        reasoning: str | None = None,
        role: str | None = None,
        finish: str | None = None,
        index: int = 0,
    ) -> Delta:
        """One chunk of choice `index` in the shape of OpenAI's chat completion chunks."""
        said = {"role": role, "content": text, "reasoning_content": reasoning, "tool_calls": tool_calls}
        choice = {"index": index, "delta": {k: v for k, v in said.items() if v is not None}, "finish_reason": finish}
        return cls.saying({**_head(envelope), "choices": [choice]})

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = b"".join(sse.frame(dumped(chunk)) for chunk in self._chunks or ())
        return self._raw

    @property
    def size(self) -> int:
        """How many bytes it is on the wire."""
        return len(self.raw)

    @property
    def chunks(self) -> tuple[dict[str, Any], ...]:
        """The JSON objects in it; what is not JSON is left out (it still goes to the caller as it is)."""
        if self._chunks is None:
            self._chunks = tuple(_parsed(self._raw or b"", self.sse))
        return self._chunks

    @property
    def text(self) -> str:
        """The content of all choices in the order of arrival; of a whole answer, its message content."""
        return "".join(part["content"] for part in self._parts() if isinstance(part.get("content"), str))

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return [call for part in self._parts() for call in dicts(part.get("tool_calls"))]

    def _parts(self) -> list[dict[str, Any]]:
        choices = [choice for chunk in self.chunks for choice in dicts(chunk.get("choices"))]
        parts = [choice.get("delta") or choice.get("message") or {"content": choice.get("text")} for choice in choices]
        return [part for part in parts if isinstance(part, dict)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delta) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Delta({len(self.raw)} bytes)"  # never its content: a repr ends in logs


class Closed(msgspec.Struct, frozen=True):
    """The answer has ended well. `finish` is the first choice's finish_reason.

    `tail` is what ends it on the wire, `[DONE]` as it came; None: the server writes the one that fits. It goes out only when the
    chain is exhausted, so that whoever has read it can rely on everything being settled. `cut`: a rule of ours ended it before its own
    end.
    """

    usage: Usage | None = None
    finish: str | None = None
    tail: bytes | None = None
    cut: bool = False


Event = Opened | Delta | Closed


def _head(envelope: Envelope) -> dict[str, Any]:
    return {"id": envelope.id, "object": envelope.object, "created": envelope.created, "model": envelope.model}


def dumped(value: Any) -> bytes:
    """JSON in ASCII. NaN and Infinity, which JSON hasn't, become null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError:
        return dumped(json.loads(json.dumps(value), parse_constant=lambda _: None))


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; of anything else none."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _parsed(raw: bytes, is_sse: bool) -> list[dict[str, Any]]:
    datas = [sse.data_of(frame) for frame in sse.frames(raw)] if is_sse else [raw]
    found = [_object(data) for data in datas if data]
    return [value for value in found if value is not None]


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
