"""What was said, as telemetry writes it: messages of roles and parts, as JSON text. Long texts are cut inside their parts, so that it stays
JSON. Pure; called only where content is to be captured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from ..messages.blocks import Base64Source, Block, DataBlock, HintBlock, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from ..messages.msg import Msg

Capture = Literal["none", "metadata", "full", "redacted"]
CAPTURES = get_args(Capture)
VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_ON_SPANS = {"SPAN_ONLY", "SPAN_AND_EVENT"}

Redact = Callable[[str], str]
Part = dict[str, Any]


class Content:
    """How much of what is said stands on spans. `none`: nothing. `metadata`: who said what kind of thing, how long, and which tool, no word
    of it. `full`: each text, cut at `limit` characters. `redacted`: the same, each text after `redact`, which may take its time: whoever
    writes runs in a thread (`is_slow`)."""

    def __init__(self, kind: Capture | None = None, limit: int = 8192, redact: Redact | None = None) -> None:
        """`kind` None: what OpenTelemetry's own variable says.

        Raises:
            ValueError: `kind` is none of its words, or `redact` is missing, or given for nothing.
        """
        if kind is None:
            kind = "full" if os.environ.get(VARIABLE, "").strip().upper() in _ON_SPANS else "none"
        if kind not in CAPTURES:
            raise ValueError(f"capture_content must be one of {', '.join(CAPTURES)}, not {kind!r}")
        if (redact is not None) != (kind == "redacted"):
            raise ValueError(
                "capture_content='redacted' and redact, a function that takes a text and gives it without its secrets, go together"
            )
        self.kind, self.limit, self._redact = kind, limit, redact

    def __bool__(self) -> bool:
        return self.kind != "none"

    @property
    def is_slow(self) -> bool:
        return self._redact is not None

    def messages(self, messages: Iterable[Msg]) -> str:
        """`gen_ai.input.messages`."""
        return _written([{"role": msg.role, "parts": self._parts(msg.content), "name": msg.name} for msg in messages])

    def answer(self, blocks: Sequence[Block]) -> str:
        """`gen_ai.output.messages`."""
        return _written([{"role": "assistant", "parts": self._parts(blocks)}])

    def tools(self, tools: Iterable[Mapping[str, Any]]) -> str:
        """`gen_ai.tool.definitions`, without what is large."""
        return _written([{"type": tool.get("type", "function"), "name": tool.get("function", tool).get("name", "")} for tool in tools])

    def arguments(self, text: str) -> str:
        """`gen_ai.tool.call.arguments`."""
        if self._redact is None:
            return "" if self.kind == "metadata" else cut(text, self.limit)
        said = self._leaves(self._value(text))
        return cut(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False), self.limit)

    def result(self, text: str) -> str:
        """`gen_ai.tool.call.result`."""
        return "" if self.kind == "metadata" else self._text(text)

    def _parts(self, blocks: Iterable[Block]) -> list[Part]:
        return [part for block in blocks for part in self._part(block)]

    def _part(self, block: Block) -> list[Part]:
        if isinstance(block, TextBlock):
            return [{"type": "text", **self._saying("content", block.text)}]
        if isinstance(block, ThinkingBlock):
            return [{"type": "reasoning", **self._saying("content", block.thinking)}]
        if isinstance(block, HintBlock):
            return [{"type": "text", **self._saying("content", block.text)}]
        if isinstance(block, ToolCallBlock):
            return [{"type": "tool_call", "id": block.id, "name": block.name, **self._calling(block.input)}]
        if isinstance(block, ToolResultBlock):
            return [{"type": "tool_call_response", "id": block.id, **self._saying("response", block.text)}]
        return [self._data(block)] if isinstance(block, DataBlock) else []

    def _data(self, block: DataBlock) -> Part:
        source, modality = block.source, block.source.media_type.partition("/")[0] or "document"
        if isinstance(source, Base64Source):
            # Bytes have no place on a span.
            return {"type": "blob", "modality": modality, "mime_type": source.media_type, "content": ""}
        return {"type": "uri", "modality": modality, "mime_type": source.media_type, **self._saying("uri", source.url)}

    def _saying(self, name: str, text: str) -> Part:
        return {name: "", "length": len(text)} if self.kind == "metadata" else {name: self._text(text)}

    def _calling(self, text: str) -> Part:
        if self.kind == "metadata":
            return {"length": len(text)}
        if self._redact is None and len(text) > self.limit:
            return {"arguments": cut(text, self.limit)}
        said = self._leaves(self._value(text))
        written = said if isinstance(said, str) else json.dumps(said)
        return {"arguments": said if len(written) <= self.limit else cut(written, self.limit)}

    def _text(self, text: str) -> str:
        # Redacted first: half of a secret is not found any more.
        return cut(text if self._redact is None else self._redact(text), self.limit)

    def _value(self, text: str) -> Any:
        """The value that this text is, or the text."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            # What is escaped in it, nobody finds who looks for secrets.
            return "" if self._redact is not None and "\\" in text else text

    def _leaves(self, value: Any) -> Any:
        """A JSON value with each of its texts redacted, names too."""
        if self._redact is None:
            return value
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, list):
            return [self._leaves(each) for each in value]
        return {self._redact(name): self._leaves(each) for name, each in value.items()} if isinstance(value, dict) else value


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()
