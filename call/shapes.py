"""What a rule says, in OpenAI's shapes: chunks, whole answers, vectors, usage. Pure; `script.py` times it and lets it fail."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_256
from math import sqrt
from struct import pack, unpack
from typing import Any

from .call import Call
from .events import Envelope, Usage, dicts
from .rules import Figures, Rule, ToolCall

Chunk = dict[str, Any]

DIMENSIONS = 64  # of a vector, unless the call says how many
_PREFIX = {"chat": "chatcmpl", "completions": "cmpl", "embeddings": "embd"}
_CHUNK = {"chat": "chat.completion.chunk", "completions": "text_completion"}
_WORD = re.compile(r"\s*\S+\s*?(?=\s|$)|\s+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call says: every text in it, and the one that an echo repeats."""

    texts: Sequence[str]
    last: str

    @classmethod
    def of(cls, call: Call) -> Asked:
        if call.op != "chat":
            texts = _texts(call.body.get("prompt" if call.op == "completions" else "input"))
            return cls(texts, texts[-1] if texts else "")
        said = dicts(call.body.get("messages"))
        users = [message for message in said if message.get("role") == "user"]
        return cls(
            [text for message in said for text in _texts(message.get("content"))],
            "".join(_texts(users[-1].get("content"))) if users else "",
        )


def _texts(content: Any) -> list[str]:
    """The texts of a content: a string, a list of strings or of parts. Tokens and images have none."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else ()
    found = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text for text in found if isinstance(text, str)]


def words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


@dataclass(frozen=True, slots=True)
class Speech:
    """One answer, ready to be said as a stream or whole. `choices` are said alike, `chunks` is into how many pieces."""

    op: str
    envelope: Envelope
    text: str
    reasoning: str
    tool_calls: Sequence[ToolCall]
    finish: str
    usage: Usage
    choices: int = 1
    chunks: int | None = None
    usage_frame: bool = False
    cumulative: bool = False

    @classmethod
    def of(cls, rule: Rule, call: Call, asked: Asked, *, serial: int, created: int) -> Speech:
        answer = rule.answer
        text = (asked.last if answer.echoes else answer.text) or ""
        n = max(call.head.n, 1)
        return cls(
            op=call.op,
            envelope=Envelope(f"{_PREFIX[call.op]}-{serial}", model_of(call), created, _CHUNK.get(call.op, "list")),
            text=text,
            reasoning=answer.reasoning,
            tool_calls=answer.tool_calls,
            finish=answer.finish or ("tool_calls" if answer.tool_calls else "stop"),
            usage=_usage(rule, words(*asked.texts), n * words(text, answer.reasoning) if call.op != "embeddings" else 0),
            choices=n,
            chunks=answer.chunks,
            usage_frame=call.head.usage_frame,
            cumulative=rule.usage == "cumulative",
        )

    # as a stream

    def content(self) -> Iterator[list[Chunk]]:
        """The chunks of each piece of content, one a choice; before the first the one that tells the role."""
        said = list(self._completion() if self.op == "completions" else self._message())
        for number, part in enumerate(said, 1):
            usage = self._share(number, len(said))
            opening = self._chunks([self._role()] * self.choices, usage=usage) if number == 1 and self.op == "chat" else []
            yield opening + self._chunks([part(index) for index in range(self.choices)], usage=usage)

    def end(self, *, opening: bool = False) -> list[Chunk]:
        """The chunks that end each choice; `opening`: nothing was said before."""
        role = self._chunks([self._role()] * self.choices) if opening and self.op == "chat" else []
        last: Chunk = {"delta": {}} if self.op == "chat" else {"text": ""}
        return role + self._chunks([last] * self.choices, finish=self.finish, usage=self._share(1, 1))

    def usage_chunk(self) -> Chunk:
        return {**_head(self.envelope), "choices": [], "usage": usage_object(self.usage)}

    def _chunks(self, saids: Sequence[Chunk], *, finish: str | None = None, usage: Chunk | None = None) -> list[Chunk]:
        head = _head(self.envelope)
        rest: Chunk = {"usage": usage} if usage or self.usage_frame else {}
        choices = [{"index": index, **said, "logprobs": None, "finish_reason": finish} for index, said in enumerate(saids)]
        return [{**head, "choices": [choice], **rest} for choice in choices]

    def _share(self, number: int, of: int) -> Chunk | None:
        """The usage so far, if it goes with every chunk."""
        if not self.cumulative:
            return None
        output = self.usage.output * number // of
        return usage_object(Usage(self.usage.input, output, self.usage.cached, self.usage.cache_write, min(self.usage.reasoning, output)))

    def _role(self) -> Chunk:
        return {"delta": {"role": "assistant", "content": None if self.tool_calls and not self.text else "", "refusal": None}}

    def _completion(self) -> Iterator[Any]:
        return (_same({"text": piece}) for piece in pieces(self.text, self.chunks))

    def _message(self) -> Iterator[Any]:
        """What each piece says, as a function of the choice: ids of tool calls differ from choice to choice."""
        yield from (_same({"delta": {"reasoning_content": piece}}) for piece in pieces(self.reasoning, self.chunks))
        yield from (_same({"delta": {"content": piece}}) for piece in pieces(self.text, self.chunks))
        for number, tool_call in enumerate(self.tool_calls):
            yield lambda index, n=number, call=tool_call: _calling({"index": n, **self._tool_call(call, index, n, arguments="")})
            for piece in pieces(_arguments(tool_call), self.chunks or 1):
                yield _same(_calling({"index": number, "function": {"arguments": piece}}))

    def _tool_call(self, tool_call: ToolCall, choice: int, number: int, *, arguments: str) -> Chunk:
        made = f"call_{self.envelope.id.rpartition('-')[2]}_{choice}_{number}"
        return {"id": tool_call.id or made, "type": "function", "function": {"name": tool_call.name, "arguments": arguments}}

    # whole

    def whole(self, *, usage: bool) -> Chunk:
        """The answer as one JSON object."""
        answer = {**_head(self.envelope), "object": "chat.completion" if self.op == "chat" else "text_completion"}
        answer["choices"] = [
            {"index": index, **self._said(index), "logprobs": None, "finish_reason": self.finish} for index in range(self.choices)
        ]
        return {**answer, "usage": usage_object(self.usage)} if usage else answer

    def _said(self, index: int) -> Chunk:
        if self.op == "completions":
            return {"text": self.text}
        calls = [self._tool_call(call, index, number, arguments=_arguments(call)) for number, call in enumerate(self.tool_calls)]
        message: Chunk = {"role": "assistant", "content": self.text or (None if calls else ""), "refusal": None, "annotations": []}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


def model_of(call: Call) -> str:
    return call.target.model if call.target else call.model


def _head(envelope: Envelope) -> Chunk:
    return {"id": envelope.id, "object": envelope.object, "created": envelope.created, "model": envelope.model}


def _same(said: Chunk) -> Any:
    return lambda index: said


def _calling(tool_call: Chunk) -> Chunk:
    return {"delta": {"tool_calls": [tool_call]}}


def _arguments(tool_call: ToolCall) -> str:
    return tool_call.arguments if isinstance(tool_call.arguments, str) else json.dumps(tool_call.arguments, ensure_ascii=False)


def pieces(text: str, count: int | None) -> list[str]:
    """`text` in `count` pieces of about one length (fewer if it is shorter), or a word at a time."""
    if not text:
        return []
    if count is None:
        return _WORD.findall(text)
    count = min(count, len(text))
    return [text[len(text) * i // count : len(text) * (i + 1) // count] for i in range(count)]


def _usage(rule: Rule, said: int, answered: int) -> Usage:
    figures = rule.usage if isinstance(rule.usage, Figures) else Figures()
    tokens_in = said if figures.input is None else figures.input
    tokens_out = answered if figures.output is None else figures.output
    cached = min(figures.cached, tokens_in)
    return Usage(tokens_in, tokens_out, cached, min(figures.cache_write, tokens_in - cached), min(figures.reasoning, tokens_out))


def usage_object(usage: Usage) -> Chunk:
    """Usage as OpenAI writes it."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def vectors(call: Call, speech: Speech, *, usage: bool) -> Chunk:
    """The answer to an embeddings call: a vector an input, the same for the same text."""
    given = call.body.get("input")
    inputs = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
    dimensions = call.body.get("dimensions")
    wanted = dimensions if isinstance(dimensions, int) and 0 < dimensions <= 8192 else DIMENSIONS
    packed = call.body.get("encoding_format") == "base64"
    data = [{"object": "embedding", "index": index, "embedding": _embedding(each, wanted, packed)} for index, each in enumerate(inputs)]
    answer = {"object": "list", "data": data, "model": speech.envelope.model}
    tokens = speech.usage.input
    return {**answer, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}} if usage else answer


def _embedding(given: Any, dimensions: int, packed: bool) -> list[float] | str:
    vector = unit_vector(given if isinstance(given, str) else json.dumps(given), dimensions)
    return b64encode(pack(f"<{dimensions}f", *vector)).decode("ascii") if packed else vector


def unit_vector(text: str, dimensions: int) -> list[float]:
    """A vector of length 1 that the text alone decides."""
    drawn = unpack(f"<{dimensions}i", shake_256(text.encode("utf-8", "surrogatepass")).digest(4 * dimensions))
    length = sqrt(sum(value * value for value in drawn)) or 1.0
    return [value / length for value in drawn]
