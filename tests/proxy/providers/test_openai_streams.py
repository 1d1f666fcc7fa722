"""proxy/providers/openai.py and the streams of providers that misbehave: the fault list's SSE at this level."""

from __future__ import annotations

import asyncio
import json

import pytest
from proxy.providers.openai_server import HELLO, answered, asked, failed
from proxy.providers.stage import asking, chunks, closed, raw, text, told, whole

from spangate.call.errors import UpstreamError, UpstreamIncomplete
from spangate.call.events import Closed, Delta, Opened, Usage
from spangate.proxy.convert import as_whole

from upstream import (
    LAST_CHUNK,
    C,
    D,
    F,
    chat_chunk,
    chat_completion,
    chunk,
    chunked,
    event,
    play,
    raw_head,
    sse,
    sse_head,
)  # fmt: skip

# ---- framing


@pytest.mark.fault("SSE-01")
async def test_an_event_cut_at_every_byte() -> None:
    async def at(place: int) -> None:
        events = await answered([sse_head(), chunk(HELLO[:place]), (chunk(HELLO[place:]) + LAST_CHUNK, 0.02)])
        assert (text(events), closed(events)) == ("Hello", Closed(Usage(7, 2), "stop", D)), place
        assert raw(events) == HELLO.removesuffix(D), place

    for start in range(1, len(HELLO), 64):
        await asyncio.gather(*(at(place) for place in range(start, min(start + 64, len(HELLO)))))


@pytest.mark.fault("SSE-02")
async def test_a_cut_inside_a_character() -> None:
    said = "日本🙂é"
    stream = C(said) + F("stop") + D
    start = stream.index(said.encode())
    for place in range(start + 1, start + len(said.encode())):
        events = await answered([sse_head(), chunk(stream[:place]), (chunk(stream[place:]) + LAST_CHUNK, 0.01)])
        assert (text(events), raw(events)) == (said, stream.removesuffix(D))


@pytest.mark.fault("SSE-04")
async def test_crlf_line_ends_cut_between_cr_and_lf() -> None:
    stream = HELLO.replace(b"\n", b"\r\n")
    for place in [at + 1 for at in range(len(stream)) if stream[at : at + 2] == b"\r\n"]:
        events = await answered([sse_head(), chunk(stream[:place]), (chunk(stream[place:]) + LAST_CHUNK, 0.01)])
        assert (text(events), closed(events).usage, len(chunks(events))) == ("Hello", Usage(7, 2), 4), place


@pytest.mark.fault("SSE-04")
async def test_a_crlf_event_goes_on_with_its_blank_line() -> None:
    first, wait = C("a").replace(b"\n", b"\r\n"), asyncio.Event()
    async with asked(play(sse_head() + chunk(first), wait, chunk(F("stop") + D) + LAST_CHUNK)) as (provider, _, _):
        events = provider.answer(asking(stream=True))
        assert isinstance(await asyncio.wait_for(anext(events), 1), Opened)
        assert await asyncio.wait_for(anext(events), 1) == Delta(first)
        wait.set()
        assert [type(each) async for each in events] == [Delta, Closed]


@pytest.mark.fault("SSE-06")
async def test_no_space_or_two_after_data() -> None:
    tight = HELLO.replace(b"data: ", b"data:")
    wide = HELLO.replace(b"data: {", b"data:  {")
    for stream in (tight, wide):
        events = await answered(sse(stream))
        assert (text(events), closed(events).usage, closed(events).finish) == ("Hello", Usage(7, 2), "stop")
        assert raw(events) + (closed(events).tail or b"") == stream


@pytest.mark.fault("SSE-07")
async def test_comments_and_other_fields() -> None:
    odd = b": ping\n\n:\n\n" + b"event: message\nid: 4\nretry: 10\n" + C("a") + b"foo: bar\n" + C("b") + b"data\n\n"
    events = await answered(sse(odd, F("stop"), D))
    assert (text(events), closed(events).finish, raw(events)) == ("ab", "stop", odd + F("stop"))


@pytest.mark.fault("SSE-07")
async def test_a_comment_is_no_content() -> None:
    async with asked(play(sse_head() + chunk(b": OPENROUTER PROCESSING\n\n"), end="hold")) as (provider, _, _):
        events = provider.answer(asking(stream=True))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.05)


@pytest.mark.fault("SSE-08")
async def test_several_data_lines_are_one_event() -> None:
    pretty = json.dumps(json.loads(C("Hello")[6:]), indent=1).encode()
    lines = b"".join(b"data: " + line + b"\n" for line in pretty.split(b"\n")) + b"\n"
    events = await answered(sse(lines, F("stop"), D))
    assert (text(events), len(chunks(events)), raw(events)) == ("Hello", 2, lines + F("stop"))


@pytest.mark.fault("SSE-10")
async def test_unicode_line_separators_end_no_line() -> None:
    odd = "a\u2028b\u2029c\u0085d"
    last = event({"id": odd, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
    events = await answered(sse(C(odd), F("stop"), last, D))
    assert (text(events), closed(events).usage) == (odd, Usage(7, 2))


@pytest.mark.fault("SSE-12")
async def test_one_line_of_700_kb() -> None:
    long = "x" * 700_000
    events = await answered(sse(C("a"), C(long), C("b"), F("stop"), D))
    assert text(events) == f"a{long}b"


# ---- how a stream ends


@pytest.mark.fault("SSE-14")
async def test_a_stream_that_ends_without_done() -> None:
    events = await answered(sse(C("hi"), F("stop")))
    assert (text(events), closed(events)) == ("hi", Closed(None, "stop", None))


@pytest.mark.fault("SSE-14")
async def test_a_stream_that_ends_without_its_last_blank_line() -> None:
    events = await answered(sse(C("hi"), F("stop"), b"data: [DONE]"))
    assert (text(events), closed(events)) == ("hi", Closed(None, "stop", D))


@pytest.mark.fault("SSE-14")
async def test_a_stream_that_is_framed_by_the_end_of_its_connection() -> None:
    head = raw_head(200, [("Content-Type", "text/event-stream")])
    async with asked(play(head + C("hi") + F("stop"), end="fin")) as (provider, _, _):
        events = await told(provider, asking(stream=True))
    assert (text(events), closed(events).finish) == ("hi", "stop")


@pytest.mark.fault("SSE-14")
async def test_a_clean_end_without_a_finish_reason_is_none() -> None:
    for end in ([], [D]):
        before, fault = await failed(sse(C("hi"), *end))
        assert (text(before), type(fault)) == ("hi", UpstreamIncomplete)
    head = raw_head(200, [("Content-Type", "text/event-stream")])
    before, fault = await failed(head + C("hi"), end="fin")
    assert (text(before), type(fault)) == ("hi", UpstreamIncomplete)


@pytest.mark.fault("SSE-15")
async def test_the_connection_dies_in_the_middle() -> None:
    begun = [C(f"{number} ") for number in range(40)]
    before, fault = await failed([sse_head(), *map(chunk, begun), (b"", 0.02)], end="rst")
    assert isinstance(before[0], Opened)
    assert (raw(before), type(fault)) == (b"".join(begun), UpstreamIncomplete)


@pytest.mark.fault("SSE-15")
async def test_an_event_that_was_cut_by_the_end_is_dropped() -> None:
    for end in ("rst", "fin"):
        before, fault = await failed([sse_head(), chunk(C("a") + C("b")[:40]), (b"", 0.02)], end=end)
        assert (raw(before), type(fault)) == (C("a"), UpstreamIncomplete)


@pytest.mark.fault("SSE-15")
async def test_a_choice_that_never_ended() -> None:
    half = chat_chunk([{"index": 1, "delta": {"content": "b"}, "finish_reason": None}])
    before, fault = await failed(sse(C("a"), half, F("stop"), D), asking(stream=True, n=2))
    assert (text(before), type(fault)) == ("ab", UpstreamIncomplete)


# ---- errors inside


@pytest.mark.fault("SSE-17")
async def test_an_error_as_the_first_event() -> None:
    quota = event({"error": {"message": "quota", "type": "insufficient_quota", "code": None}})
    for first in (quota, b": ping\n\n" + quota, chat_chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}}]) + quota):
        before, fault = await failed(sse(first, D))
        assert before == []
        assert isinstance(fault, UpstreamError)
        assert (fault.message, fault.kind, fault.own_code, fault.status) == ("quota", "insufficient_quota", None, None)


@pytest.mark.fault("SSE-17")
async def test_an_error_after_content_is_raised_after_it() -> None:
    before, fault = await failed(sse(C("a"), event({"error": "out of memory"}), C("b"), D))
    assert (text(before), raw(before), fault.message) == ("a", C("a"), "out of memory")


@pytest.mark.fault("SSE-19")
async def test_one_malformed_event() -> None:
    said = [C(f"{number} ") for number in range(60)]
    broken = b'data: {"choices":[{"del\n\n'
    call = asking(stream=True)
    events = await answered(sse(*said[:9], broken, *said[9:], F("stop"), D), call)
    assert text(events) == "".join(f"{number} " for number in range(60))
    assert broken in raw(events)
    assert [note.figures for note in call.notes.named("stream.malformed")] == [{"events": 1}]


# ---- the other form than the one asked for


@pytest.mark.fault("SSE-22")
@pytest.mark.parametrize("headers", [[("Content-Type", "application/json")], []])
async def test_json_where_a_stream_was_asked_for(headers: list[tuple[str, str]]) -> None:
    answer = chat_completion("Hello")
    events = await answered(raw_head(200, [*headers, ("Content-Length", str(len(answer)))]) + answer)
    assert isinstance(events[0], Opened)
    assert (events[0].stream, text(events), closed(events)) == (True, "Hello", Closed(Usage(7, 2), "stop"))
    assert [bool(each["choices"]) for each in chunks(events)] == [True, True, False]
    assert as_whole(chunks(events)) == json.loads(answer)


@pytest.mark.fault("SSE-23")
@pytest.mark.parametrize("headers", [[("Content-Type", "text/event-stream")], []])
async def test_a_stream_where_json_was_asked_for(headers: list[tuple[str, str]]) -> None:
    events = await answered(raw_head(200, [*headers, ("Transfer-Encoding", "chunked")]) + chunked(HELLO), asking())
    assert isinstance(events[0], Opened)
    assert (events[0].stream, events[0].content_type) == (False, "application/json")
    assert whole(events) == json.loads(chat_completion("Hello"))
    assert closed(events) == Closed(Usage(7, 2), "stop")
