"""An HTTP 200 becomes events, whichever of its two forms it came in and whichever was asked for."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op
from spangate.call.chain import pulling
from spangate.call.errors import ProviderFault, UpstreamError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Envelope, Event, Opened, Usage
from spangate.proxy.reading import MAX_BUILT, MAX_RESHAPED, MAX_UNSAID, form_of, streamed_events, whole_events

JSON, SSE = "application/json", "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


@dataclass
class Answer:
    """What a provider answered, in these pieces. An exception among them is raised there: the connection broke."""

    pieces: list[bytes | ProviderFault]
    content_type: str = JSON
    content_encoding: str = ""
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def header(self, name: bytes) -> bytes | None:
        return {b"content-type": self.content_type, b"content-encoding": self.content_encoding}.get(name, "").encode() or None

    async def read(self) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, ProviderFault):
            raise piece
        return piece

    async def whole(self, limit: int) -> bytes:
        raise AssertionError("read piece by piece")

    def release(self) -> None:
        """Nobody waits for this one."""

    def close(self) -> None:
        """Nor is it anywhere."""


def call(*, stream: bool, op: Op = "chat", n: int = 1, usage_frame: bool = False) -> Call:
    return Call(op=op, model="m", body=Body.of({}), head=Head(stream=stream, n=n, usage_frame=usage_frame))


async def heard(call: Call, answer: Answer, *, hide_usage: bool = False, events: list[Event] | None = None) -> list[Event]:
    """What is made of an answer; `events` keeps what came before an error."""
    events = [] if events is None else events
    form, opened = await form_of(answer), Opened(provider="p", request_id="r1")
    if not form.streamed:
        return [*events, *await whole_events(call, form.body, opened)]
    async with pulling(streamed_events(call, answer, form, opened, hide_usage=hide_usage)) as reading:
        async for event in reading:
            events.append(event)
    return events


def chunk(delta: dict[str, Any], finish: str | None = None, **rest: Any) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    return b"data: %b\n\n" % json.dumps({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}).encode()


ROLE, HEL, LO, END = chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop")
USED = chunk({}, choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2})
WHOLE: dict[str, Any] = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}
OPENED = Opened(provider="p", request_id="r1", model="m-1", envelope=Envelope("c1", "m-1"))
ENVELOPE = Envelope("c1", "m-1", 1)
USAGE = Usage(input=7, output=2)


def said(event: Event) -> Any:
    assert isinstance(event, Delta)
    assert not event.sse
    return json.loads(event.raw)


# A stream, asked for


async def test_a_stream_opens_with_its_first_content_and_goes_on_as_it_comes() -> None:
    opened, *deltas, closed = await heard(call(stream=True), Answer([ROLE, b": ping\n\n", HEL, LO + END[:9], END[9:] + USED, DONE], SSE))
    assert opened == Opened(provider="p", request_id="r1", model="m-1", envelope=ENVELOPE)
    assert deltas == [Delta(ROLE + b": ping\n\n" + HEL), Delta(LO), Delta(END + USED)]
    assert closed == Closed(USAGE, "stop", DONE)


async def test_the_usage_frame_that_only_we_asked_for_is_read_and_taken_out() -> None:
    events = await heard(call(stream=True), Answer([HEL, LO, END + USED, DONE], SSE), hide_usage=True)
    assert events[1:] == [Delta(HEL), Delta(LO), Delta(END), Closed(USAGE, "stop", DONE)]


async def test_a_stream_without_done_ends_without_a_tail() -> None:
    events = await heard(call(stream=True), Answer([HEL, LO, END], SSE))
    assert events[-1] == Closed(None, "stop", None)


async def test_what_follows_the_end_is_not_passed_on() -> None:
    events = await heard(call(stream=True), Answer([HEL + END + DONE + LO, LO], SSE))
    assert events[1:] == [Delta(HEL + END), Closed(None, "stop", DONE)]


async def test_malformed_events_are_noted_once() -> None:
    asked = call(stream=True)
    bad = b'data: {"choices":[{"del\n\n'
    events = await heard(asked, Answer([HEL, bad, bad + LO, END], SSE))
    assert b"".join(event.raw for event in events if isinstance(event, Delta)) == HEL + bad + bad + LO + END
    assert [note.figures for note in asked.notes.named("stream.malformed")] == [{"events": 2}]


@pytest.mark.parametrize("cut", [[], [ROLE], [ROLE, b": ping\n\n"], [DONE], [ROLE + DONE], [b"data: {\n\n"]])
async def test_an_empty_stream_opens_nothing(cut: list[bytes | ProviderFault]) -> None:
    events: list[Event] = []
    with pytest.raises(UpstreamIncomplete, match="empty"):
        await heard(call(stream=True), Answer(cut, SSE), events=events)
    assert events == []


@pytest.mark.parametrize("pieces", [[HEL, LO], [HEL, LO, DONE], [HEL, LO, END[:-20]], [HEL, LO, UpstreamIncomplete("reset")]])
async def test_a_stream_that_stops_early_raises_after_what_came(pieces: list[bytes | ProviderFault]) -> None:
    events: list[Event] = []
    with pytest.raises(UpstreamIncomplete):
        await heard(call(stream=True), Answer(pieces, SSE), events=events)
    assert events[1:] == [Delta(HEL), Delta(LO)]


ERROR = b'data: {"error":{"message":"quota","type":"insufficient_quota","code":null}}\n\n'


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("pieces", [[ERROR, DONE], [ROLE + ERROR + DONE]])
async def test_an_error_before_any_content_opens_nothing(pieces: list[bytes | ProviderFault], stream: bool) -> None:
    events: list[Event] = []
    with pytest.raises(UpstreamError, match="quota") as error:
        await heard(call(stream=stream), Answer(list(pieces), SSE), events=events)
    assert error.value.kind == "insufficient_quota"
    assert events == []


async def test_an_error_in_the_middle_is_raised_after_what_came() -> None:
    events: list[Event] = []
    with pytest.raises(UpstreamError, match="quota"):
        await heard(call(stream=True), Answer([HEL, LO + ERROR, DONE], SSE), events=events)
    assert events[1:] == [Delta(HEL), Delta(LO)]


async def test_a_stream_that_says_nothing_is_not_kept_for_ever() -> None:
    with pytest.raises(UpstreamError, match="without saying anything"):
        await heard(call(stream=True), Answer([b": %b\n\n" % (b"x" * 65536)] * (MAX_UNSAID // 65536 + 1), SSE))


async def test_a_connection_that_breaks_after_the_end_does_no_harm() -> None:
    events = await heard(call(stream=True), Answer([HEL, END + DONE, UpstreamIncomplete("reset")], SSE))
    assert events[-1] == Closed(None, "stop", DONE)


# A whole answer, asked for


async def test_a_whole_answer_is_one_piece_as_it_came() -> None:
    raw = json.dumps(WHOLE, indent=1).encode()
    opened, delta, closed = await heard(call(stream=False), Answer([raw[:50], raw[50:]]))
    assert opened == Opened(
        provider="p", request_id="r1", model="m-1", envelope=Envelope("c1", "m-1"), stream=False, content_type="application/json"
    )
    assert isinstance(delta, Delta)
    assert (delta.raw, delta.sse) == (raw, False)
    assert closed == Closed(USAGE, "stop")


async def test_what_json_lacks_passes_as_it_came() -> None:
    raw = json.dumps({**WHOLE, "x": float("nan")}).encode()
    _, delta, closed = await heard(call(stream=False), Answer([raw]))
    assert isinstance(delta, Delta)
    assert delta.raw == raw
    assert closed == Closed(USAGE, "stop")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>502</html>",
        b"[]",
        b'"text"',
        b"null",
        b'{"choices":[{}',
        b"\xff",
        b"[" * 20_000,
        b'{"a":' * 20_000,
    ],
)
async def test_what_is_no_json_object_is_an_error(raw: bytes) -> None:
    for stream in (True, False):
        with pytest.raises(UpstreamError, match="not a JSON object"):
            await heard(call(stream=stream), Answer([raw]))


@pytest.mark.parametrize("raw", [b"{}", b'{"choices":[]}', b'{"choices":null}', b'{"choices":5}', b'{"choices":[5]}', b'{"data":[]}'])
async def test_an_empty_answer_is_an_error(raw: bytes) -> None:
    for stream in (True, False):
        with pytest.raises(UpstreamIncomplete, match="empty"):
            await heard(call(stream=stream), Answer([raw]))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"error":{"message":"quota"}}',
        b'{"object":"error","message":"quota"}',
        b'{"error":"quota","choices":[{}]}',
        b'{"error":"quota","x":NaN}',
    ],
)
async def test_an_error_inside_a_200_is_raised(raw: bytes) -> None:
    for stream in (True, False):
        events: list[Event] = []
        with pytest.raises(UpstreamError, match="quota"):
            await heard(call(stream=stream), Answer([raw]), events=events)
        assert events == []


async def test_embeddings_are_a_whole_answer() -> None:
    raw = b'{"object":"list","model":"e","data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":3,"total_tokens":3}}'
    opened, delta, closed = await heard(call(stream=False, op="embeddings"), Answer([raw]))
    assert isinstance(opened, Opened)
    assert opened.model == "e"
    assert delta == Delta(raw, sse=False)
    assert closed == Closed(Usage(input=3))
    with pytest.raises(UpstreamIncomplete, match="empty"):
        await heard(call(stream=False, op="embeddings"), Answer([b"{}"]))


# The other form than the one asked for


@pytest.mark.parametrize("content_type", [JSON, ""])
@pytest.mark.parametrize("usage_frame", [True, False])
async def test_json_where_a_stream_was_asked_for_becomes_a_stream(content_type: str, usage_frame: bool) -> None:
    raw = b"\n " + json.dumps(WHOLE).encode()
    opened, delta, closed = await heard(call(stream=True, usage_frame=usage_frame), Answer([raw], content_type))
    assert opened == OPENED
    assert isinstance(delta, Delta)
    assert delta.text == "Hello"
    assert [bool(each["choices"]) for each in delta.chunks] == [True, True, *([False] if usage_frame else [])]
    assert [each.get("usage") for each in delta.chunks][2:] == ([WHOLE["usage"]] if usage_frame else [])
    assert closed == Closed(USAGE, "stop")


async def test_json_that_becomes_a_stream_has_no_nan() -> None:
    raw = json.dumps({**WHOLE, "x": float("nan"), "y": [float("-inf")]}).encode()
    _, delta, _ = await heard(call(stream=True), Answer([raw]))
    assert isinstance(delta, Delta)
    assert b'"x":null,"y":[null]' in delta.raw


@pytest.mark.fault("USE-12")
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ('{"prompt_tokens":7}', Usage(7, 0, unknown="output")),
        ('{"prompt_tokens":7,"completion_tokens":null}', Usage(7, 0, unknown="output")),
        ('{"prompt_tokens":7,"total_tokens":9}', Usage(7, 2)),
        ('{"prompt_tokens":7,"completion_tokens":0}', Usage(7, 0)),
    ],
)
async def test_usage_without_its_output_is_not_usage_of_none(usage: str, expected: Usage) -> None:
    whole = f'{{"choices":[{{"index":0,"message":{{"content":"Hi"}},"finish_reason":"stop"}}],"usage":{usage}}}'.encode()
    closed = (await heard(call(stream=False), Answer([whole])))[-1]
    assert closed == Closed(expected, "stop")


@pytest.mark.parametrize(("text", "most"), [("t", MAX_RESHAPED), ("\\ud83d", MAX_BUILT)], ids=["plain", "lone surrogate"])
async def test_json_too_long_to_become_a_stream_is_an_error(text: str, most: int) -> None:
    """What it takes to turn it is spent in one step, while all others wait."""
    start, end = b'{"choices":[{"index":0,"message":{"content":"' + text.encode(), b'"},"finish_reason":"stop"}]}'
    padding = b"x" * (most - len(start) - len(end))
    events = await heard(call(stream=True), Answer([start + padding + end]))
    assert [type(event) for event in events] == [Opened, Delta, Closed]
    with pytest.raises(UpstreamError, match=f"more than {most >> 20} MiB.*ask without `stream`") as error:
        await heard(call(stream=True), Answer([start + padding + b"x" + end]))
    assert not error.value.retryable
    at_once = await heard(call(stream=False), Answer([start + padding + b"x" + end]))
    assert len(at_once) == 3


@pytest.mark.parametrize("content_type", [SSE, "TEXT/EVENT-STREAM", ""])
async def test_a_stream_where_json_was_asked_for_becomes_one_answer(content_type: str) -> None:
    opened, delta, closed = await heard(call(stream=False), Answer([ROLE, HEL, LO + END, USED + DONE], content_type))
    assert opened == Opened(provider="p", request_id="r1", model="m-1", stream=False, content_type="application/json")
    assert said(delta) == WHOLE
    assert closed == Closed(USAGE, "stop")


@pytest.mark.parametrize("pieces", [[HEL, LO], [HEL, LO, DONE], [HEL, UpstreamIncomplete("reset")], [], [DONE], [HEL, LO + ERROR]])
async def test_a_stream_that_stops_early_is_no_answer(pieces: list[bytes | ProviderFault]) -> None:
    events: list[Event] = []
    with pytest.raises((UpstreamIncomplete, UpstreamError)):
        await heard(call(stream=False), Answer(pieces, SSE), events=events)
    assert events == []


# Compressed all the same


async def test_a_compressed_answer_is_decoded() -> None:
    raw = json.dumps(WHOLE).encode()
    events = await heard(call(stream=False), Answer([gzip.compress(raw)], JSON, "gzip"))
    assert events[1] == Delta(raw, sse=False)
    assert isinstance(events[0], Opened)
    assert events[0].headers == {}
    streamed = await heard(call(stream=True), Answer([gzip.compress(HEL + END + DONE)], SSE, "gzip"))
    assert streamed[1:] == [Delta(HEL + END), Closed(None, "stop", DONE)]


async def test_a_compressed_answer_cut_short_is_no_answer() -> None:
    packed = gzip.compress(json.dumps(WHOLE).encode())
    with pytest.raises(UpstreamError, match="stopped before its end"):
        await heard(call(stream=False), Answer([packed[:-9]], JSON, "gzip"))


@pytest.mark.parametrize("stream", [True, False])
async def test_an_unknown_coding_goes_through_untouched(stream: bool) -> None:
    opened, *deltas, closed = await heard(call(stream=stream), Answer([b"\x8b\x02", b"\x80"], JSON, "br"))
    assert opened == Opened(
        provider="p", request_id="r1", stream=False, content_type="application/json", headers={"content-encoding": "br"}
    )
    assert deltas == [Delta(b"\x8b\x02", sse=False), Delta(b"\x80", sse=False)]
    assert closed == Closed(None, None)


async def test_an_unknown_coding_of_nothing_is_no_answer() -> None:
    with pytest.raises(UpstreamIncomplete, match="empty"):
        await heard(call(stream=True), Answer([], SSE, "br"))
