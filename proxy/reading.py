"""The events of an HTTP 200 in OpenAI's dialect, whichever of its two forms it came in and whichever was asked for.

A whole answer is `Opened`, one `Delta` with the body as it came, `Closed`. A stream is `Opened` at its first content, `Delta`s as the
network gave them, `Closed` after its end; what is no good end raises.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..call import sse
from ..call.call import Call
from ..call.errors import UpstreamError, UpstreamIncomplete
from ..call.events import Closed, Delta, Envelope, Event, Opened, Usage, dicts
from ..call.usage import usage_of
from . import answers, convert
from .chunks import Chunks, object_of
from .coding import KNOWN, Bytes, Inflated, coding_of, whole
from .upstream import Reply

MAX_WHOLE = 64 << 20  # bytes of a whole answer
MAX_RESHAPED = 16 << 20  # bytes of a whole answer that goes on as a stream: it is turned in one step, and others wait for that
MAX_BUILT = 1 << 20  # the same of one that must be built for it, since it holds what only the standard parser takes
MAX_UNSAID = 1 << 20  # bytes of a stream that has not said anything yet


class Form(NamedTuple):
    """How an answer came: its body, decoded where we know its coding (else `sealed` names that), and whether it is a stream."""

    body: Bytes
    streamed: bool
    sealed: str = ""


async def form_of(answer: Reply) -> Form:
    """
    Raises:
        ProviderFault: the answer breaks off before its form is known.
    """
    coding = coding_of(answer.header(b"content-encoding"))
    if coding and coding not in KNOWN:
        return Form(answer, streamed=True, sealed=coding)
    body = Inflated(answer, coding) if coding else answer
    kind = answer.header(b"content-type")
    if kind:
        return Form(body, streamed=_is_stream(kind))
    first = await body.read()
    return Form(_Again(first, body), streamed=not first.lstrip().startswith(b"{"))


def _is_stream(kind: bytes) -> bool:
    return kind != b"application/json" and kind.partition(b";")[0].strip().lower() == b"text/event-stream"


def streamed_events(call: Call, answer: Reply, form: Form, opened: Opened, *, hide_usage: bool) -> AsyncGenerator[Event, None]:
    """The events of an answer that goes on while it is read. `opened` holds what its head told; `hide_usage`: the usage frame was our
    wish alone. It raises ProviderFault for an error inside, an empty answer, or an end before the end.
    """
    if form.sealed:
        return _sealed(answer, opened, form.sealed)
    if not call.head.stream:
        return _collected(call, answer, form.body, opened)
    return _stream(call, answer, form.body, opened, Chunks(hide_usage=hide_usage, choices=call.head.n))


class _Again:
    """A body whose first piece was looked at."""

    def __init__(self, first: bytes, rest: Bytes) -> None:
        self._first = first
        self._rest = rest

    async def read(self) -> bytes:
        first, self._first = self._first, b""
        return first or await self._rest.read()


async def _stream(call: Call, answer: Reply, body: Bytes, opened: Opened, chunks: Chunks) -> AsyncGenerator[Event, None]:
    said = await _until_content(body, chunks)
    model = chunks.envelope.model if chunks.envelope else ""
    yield replace(opened, model=model, envelope=chunks.envelope)
    while not (chunks.done or chunks.error):
        if said:
            yield Delta(said)
        data = await body.read()
        said = chunks.feed(data) if data else chunks.end()
        if not data:
            break
        data = b""  # not held while the caller takes its time with `said`
    if said:
        yield Delta(said)
    chunks.check_ended()
    answer.release()
    if chunks.malformed:
        call.notes.add("stream.malformed", events=chunks.malformed)
    yield Closed(chunks.usage, chunks.finish, chunks.tail)


async def _until_content(body: Bytes, chunks: Chunks) -> bytes:
    """Read until the stream has said something, or ended; what of it goes on to the caller."""
    said: list[bytes] = []
    size = 0
    while not (chunks.content or chunks.done or chunks.error):
        data = await body.read()
        said.append(chunks.feed(data) if data else chunks.end())
        size += len(said[-1])
        if size > MAX_UNSAID and not chunks.content:
            raise UpstreamError("The provider's stream goes on without saying anything.")
        if not data:
            break
    if not chunks.content:
        if chunks.error:
            raise chunks.error
        raise UpstreamIncomplete("The provider's answer is empty.")
    return b"".join(said)


async def _collected(call: Call, answer: Reply, body: Bytes, opened: Opened) -> AsyncGenerator[Event, None]:
    """A stream that came where a whole answer was asked for."""
    chunks = Chunks(choices=call.head.n)
    collected = convert.Whole()
    size = 0
    while not (chunks.done or chunks.error):
        data = await body.read()
        for frame in sse.frames(chunks.feed(data) if data else chunks.end()):
            chunk = object_of(sse.data_of(frame) or b"")
            if chunk is not None:
                collected.add(chunk)
        size += len(data)
        if size > MAX_WHOLE:
            raise UpstreamError(f"The provider's answer is longer than {MAX_WHOLE >> 20} MiB.")
        if not data:
            break
    if not chunks.content and chunks.error is None:
        raise UpstreamIncomplete("The provider's answer is empty.")
    chunks.check_ended()
    answer.release()
    told = collected.answer()
    yield replace(opened, model=str(told.get("model") or ""), stream=False, content_type="application/json")
    yield Delta(convert.encoded(told), sse=False)
    yield Closed(chunks.usage, chunks.finish)


async def whole_events(call: Call, body: Bytes, opened: Opened) -> tuple[Event, ...]:
    """The events of an answer that came as one body.

    Raises:
        ProviderFault: an error inside, or no answer.
    """
    raw = await whole(body, MAX_WHOLE)
    read = _Whole.read(raw, call.op)
    closed = Closed(read.usage, read.finish)
    envelope = Envelope(read.id, read.model)
    if call.head.stream:
        return replace(opened, model=read.model, envelope=envelope), _reshaped(raw, usage_frame=call.head.usage_frame), closed
    begun = replace(opened, model=read.model, envelope=envelope, stream=False, content_type="application/json")
    return begun, Delta(raw, sse=False), closed


def _reshaped(raw: bytes, *, usage_frame: bool) -> Delta:
    """A whole answer as the events of a stream."""
    _check_length(raw, MAX_RESHAPED)
    try:
        datas = convert.as_frames(raw, usage_frame=usage_frame)
    except (msgspec.MsgspecError, RecursionError):
        _check_length(raw, MAX_BUILT)
        return Delta.saying(*convert.as_chunks(_leniently(raw), usage_frame=usage_frame))
    return Delta(b"".join([b"data: %b\n\n" % data for data in datas]))


def _check_length(raw: bytes, most: int) -> None:
    if len(raw) > most:
        raise UpstreamError(
            f"The provider answered a stream with one body of more than {most >> 20} MiB, which is too long to be made a stream of; "
            "ask without `stream`.",
            retryable=False,
        )


class _Whole(msgspec.Struct, frozen=True):
    """The little of a whole answer that we read."""

    id: str
    model: str
    usage: Usage | None
    finish: str | None

    @classmethod
    def read(cls, raw: bytes, op: str) -> _Whole:
        """
        Raises:
            UpstreamError: it is no JSON object, or holds an error.
            UpstreamIncomplete: it holds no answer.
        """
        return _quickly(raw, op) or cls._carefully(raw, op)

    @classmethod
    def _carefully(cls, raw: bytes, op: str) -> _Whole:
        fields = _leniently(raw)
        error = answers.error_in(fields)
        if error:
            raise answers.provider_error(error)
        choices = dicts(fields.get("choices"))
        if not (fields.get("data") if op == "embeddings" else choices):
            raise UpstreamIncomplete("The provider's answer is empty.")
        return cls(
            id=_text(fields.get("id")),
            model=_text(fields.get("model")),
            usage=usage_of(fields.get("usage")),
            finish=answers.finish_of(choices[0]) if choices else None,
        )


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]


class _InputDetails(msgspec.Struct):
    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: _Count | None = None


class _Counts(msgspec.Struct):
    """Usage as a sound provider tells it; what doesn't fit is looked at by usage_of."""

    prompt_tokens: _Count
    completion_tokens: _Count | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None

    def usage(self) -> Usage:
        output = self.completion_tokens or 0  # of embeddings, which have none
        into, out = self.prompt_tokens_details, self.completion_tokens_details
        cached = min((into and into.cached_tokens) or 0, self.prompt_tokens)
        return Usage(
            input=self.prompt_tokens,
            output=output,
            cached=cached,
            cache_write=min((into and into.cache_write_tokens) or 0, self.prompt_tokens - cached),
            reasoning=min((out and out.reasoning_tokens) or 0, output),
        )


class _Narrow(msgspec.Struct):
    object: Any = None
    id: str | None = None
    model: str | None = None
    usage: _Counts | None = None
    error: Any = None
    choices: list[_Choice] | None = None
    data: list[msgspec.Raw] | None = None


_narrow = msgspec.json.Decoder(_Narrow).decode


def _quickly(raw: bytes, op: str) -> _Whole | None:
    """What a sound answer says, without building the rest of it; None if there is something to look at more closely."""
    try:
        read = _narrow(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    answered = read.data if op == "embeddings" else read.choices
    if read.error is not None or read.object == "error" or not answered:
        return None
    if op != "embeddings" and read.usage and read.usage.completion_tokens is None:
        return None  # not known is not none
    first = read.choices[0].finish_reason if read.choices else None
    return _Whole(read.id or "", read.model or "", read.usage.usage() if read.usage else None, first or None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _leniently(raw: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UpstreamError("The provider's answer is not a JSON object.")
    return value


async def _sealed(answer: Reply, opened: Opened, coding: str) -> AsyncGenerator[Event, None]:
    """A coding that we don't know goes through untouched; what it says stays unknown."""
    piece = await answer.read()
    if not piece:
        raise UpstreamIncomplete("The provider's answer is empty.")
    kind = (answer.header(b"content-type") or b"application/octet-stream").decode("latin-1")
    yield replace(opened, stream=False, content_type=kind, headers={**opened.headers, "content-encoding": coding})
    while piece:
        yield Delta(piece, sse=False)
        piece = await answer.read()
    yield Closed()
