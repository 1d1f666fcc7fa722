"""A stream in OpenAI's dialect, as the network gives it: what is passed on, and what it has said so far."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call import sse
from spangate.call.errors import UpstreamError, UpstreamIncomplete
from spangate.call.events import Envelope, Usage
from spangate.proxy.chunks import MAX_FRAME, Chunks

from upstream import junk

DONE = b"data: [DONE]\n\n"


def frame(*choices: dict[str, Any], **rest: Any) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": list(choices)}
    return b"data: " + json.dumps({**head, **rest}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def says(text: str, index: int = 0) -> bytes:
    return frame({"index": index, "delta": {"content": text}, "finish_reason": None})


def ends(finish: str = "stop", index: int = 0) -> bytes:
    return frame({"index": index, "delta": {}, "finish_reason": finish})


def used(tokens_in: int, tokens_out: int) -> bytes:
    return frame(usage={"prompt_tokens": tokens_in, "completion_tokens": tokens_out})


ROLE = frame({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
HELLO = ROLE + says("Hel") + says("lo 日本🙂é\u2028\u2029\u0085") + ends() + used(7, 2)


def read(*pieces: bytes, hide_usage: bool = False, choices: int = 1) -> tuple[Chunks, bytes]:
    """A whole stream in these pieces, and what was passed on of it."""
    chunks = Chunks(hide_usage=hide_usage, choices=choices)
    passed = b"".join([*(chunks.feed(piece) for piece in pieces), chunks.end()])
    return chunks, passed


def facts(chunks: Chunks) -> tuple[object, ...]:
    return chunks.content, chunks.done, chunks.finish, chunks.finished, chunks.usage, chunks.envelope, chunks.malformed


# Passed on as it came


def test_a_stream_is_passed_on_byte_for_byte_up_to_its_end() -> None:
    chunks, passed = read(HELLO + DONE)
    assert passed == HELLO
    assert chunks.tail == DONE
    assert facts(chunks) == (True, True, "stop", True, Usage(input=7, output=2), Envelope("c1", "m", 1), 0)
    chunks.check_ended()


def test_every_cut_gives_the_same() -> None:
    stream = HELLO + DONE
    whole, passed = read(stream)
    for at in range(1, len(stream)):
        cut, parts = read(stream[:at], stream[at:])
        assert (parts, facts(cut), cut.tail) == (passed, facts(whole), whole.tail), at


STYLES = st.sampled_from([b"\n", b"\r\n", b"\r"])
FRAMES = st.lists(
    st.sampled_from(
        [ROLE, says("a"), says("é🙂"), b": ping\n\n", b"event: x\nid: 1\nretry: 3\n\n", b'data: {"choices":[{"del\n\n', b"data\n\n"]
    ),
    max_size=5,
)


@given(FRAMES, STYLES, st.booleans(), st.data())
def test_any_split_in_any_style_gives_the_same(frames: list[bytes], end: bytes, hide: bool, data: st.DataObject) -> None:
    body = b"".join([*frames, says("b"), ends("length"), used(7, 2)])
    stream = (body + DONE).replace(b"\n", end)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    pieces = [stream[start:stop] for start, stop in pairwise([0, *sorted(cuts), len(stream)])]
    chunks, passed = read(*pieces, hide_usage=hide)
    expected = (body.removesuffix(used(7, 2)) if hide else body).replace(b"\n", end)
    assert b"".join(passed.splitlines()) == b"".join(expected.splitlines())
    assert list(filter(None, map(sse.data_of, sse.frames(passed)))) == list(filter(None, map(sse.data_of, sse.frames(expected))))
    assert (chunks.done, chunks.finish, chunks.finished, chunks.usage) == (True, "length", True, Usage(input=7, output=2))


def test_a_piece_is_passed_on_up_to_its_last_whole_frame() -> None:
    chunks = Chunks()
    assert chunks.feed(ROLE + says("a") + b"data: {") == ROLE + says("a")
    assert chunks.feed(says("b")[7:] + b": pi") == says("b")
    assert chunks.feed(b"ng\n") == b""
    assert chunks.feed(b"\n") == b": ping\n\n"


def test_a_read_that_is_only_content_is_passed_on_as_the_same_object() -> None:
    chunks = Chunks()
    chunks.feed(says("a"))
    piece = says("b") + says("c")
    assert chunks.feed(piece) is piece


def test_a_long_frame_in_small_pieces_costs_no_more_than_its_length() -> None:
    """8 MiB in pieces of 64 bytes: searching all that waits at each piece would take hours."""
    long = says("x" * (8 << 20))
    chunks = Chunks()
    pieces = [chunks.feed(long[at : at + 64]) for at in range(0, len(long), 64)]
    assert b"".join(pieces[:-1]) == b""
    assert pieces[-1] == long


def test_a_frame_without_an_end_is_refused_in_time() -> None:
    chunks = Chunks()
    piece = b"x" * (1 << 20)
    for _ in range(MAX_FRAME >> 20):
        assert chunks.feed(piece) == b""
    with pytest.raises(UpstreamError, match="more than 16 MiB"):
        chunks.feed(b"x")


# What begins, and what ends


@pytest.mark.parametrize(
    "frame", [ROLE, b": ping\n\n", b"event: ping\n\n", b"data: {}\n\n", b"data: nonsense\n\n", frame(), frame(choices=None)]
)
def test_no_content_yet(frame: bytes) -> None:
    chunks = Chunks()
    assert chunks.feed(frame) == frame
    assert not chunks.content


@pytest.mark.parametrize("frame", [says("a"), ends(), used(1, 1), frame({"delta": {"tool_calls": [{"index": 0}]}}), frame({"text": "a"})])
def test_content_begins(frame: bytes) -> None:
    assert read(ROLE, frame)[0].content


@pytest.mark.parametrize(
    ("stream", "choices", "good"),
    [
        (says("a") + ends(), 1, True),
        (says("a") + ends() + DONE, 1, True),
        (ends("length"), 1, True),
        (says("a"), 1, False),
        (says("a") + DONE, 1, False),
        (says("a") + ends(""), 1, False),
        (says("a") + ends()[:-1], 1, True),
        (says("a") + ends()[:-3], 1, False),
        (says("a", 0) + says("b", 1) + ends(index=0), 2, False),
        (says("a", 0) + says("b", 1) + ends(index=1) + ends(index=0), 2, True),
        (says("a", 0) + ends(index=0), 2, False),
        (says("a", 0) + ends(index=0) + DONE, 2, True),  # a server that knows no `n`
        (says("a", 0) + says("b", 1) + ends(index=0) + DONE, 2, False),
        (DONE, 1, False),
        (b"", 1, False),
    ],
)
@pytest.mark.parametrize("apart", [False, True], ids=["in one read", "a read an event"])
def test_a_good_end_has_a_finish_reason_for_every_choice(stream: bytes, choices: int, good: bool, apart: bool) -> None:
    chunks, _ = read(*(stream.splitlines(keepends=True) if apart else [stream]), choices=choices)
    assert chunks.finished is good
    if good:
        chunks.check_ended()
    else:
        with pytest.raises(UpstreamIncomplete):
            chunks.check_ended()


def test_the_first_choices_finish_reason_counts() -> None:
    assert read(says("a", 0), says("b", 1), ends("length", 1), ends("stop", 0), choices=2)[0].finish == "stop"


def test_nothing_is_passed_on_after_the_end() -> None:
    chunks = Chunks()
    assert chunks.feed(says("a") + ends() + DONE + says("more")) == says("a") + ends()
    assert chunks.feed(says("more")) == b""
    assert chunks.end() == b""
    assert chunks.tail == DONE


@pytest.mark.parametrize("done", [b"data:[DONE]\n\n", b"data:  [DONE] \r\n\r\n", b"event: done\ndata: [DONE]\n\n"])
def test_the_end_is_known_in_any_spelling_and_kept_as_it_came(done: bytes) -> None:
    chunks, passed = read(says("a") + ends() + done)
    assert passed == says("a") + ends()
    assert (chunks.done, chunks.tail) == (True, done)


def test_a_last_frame_without_its_blank_line() -> None:
    assert read(says("a"), ends().rstrip(b"\n"))[1] == says("a") + ends()
    assert read(says("a"), ends(), b"data: [DONE]")[0].tail == DONE
    assert read(says("a"), ends(), b'data: {"choices":[{"del')[1] == says("a") + ends(), "a piece of an event is none"


# Usage


def test_the_usage_frame_that_only_we_asked_for_is_taken_out() -> None:
    chunks, passed = read(says("a"), ends() + used(7, 2) + DONE, hide_usage=True)
    assert passed == says("a") + ends()
    assert chunks.usage == Usage(input=7, output=2)


def test_the_last_usage_counts_unless_half_of_it_is_unknown() -> None:
    for pieces, usage in (
        ((used(7, 1), used(7, 2)), Usage(input=7, output=2)),
        ((used(7, 2), frame(usage={"prompt_tokens": 7, "completion_tokens": -1})), Usage(input=7, output=2)),
        ((frame(usage={"prompt_tokens": 7, "completion_tokens": -1}), used(7, 2)), Usage(input=7, output=2)),
        ((frame(usage={"prompt_tokens": 7, "completion_tokens": "2"}),), Usage(input=7, unknown="output")),
    ):
        chunks, _ = read(says("a"), *pieces, ends(), DONE)
        assert chunks.usage == usage


def test_usage_beside_choices_stays() -> None:
    last = frame({"index": 0, "delta": {}, "finish_reason": "stop"}, usage={"prompt_tokens": 7, "completion_tokens": 2})
    chunks, passed = read(says("a"), last, hide_usage=True)
    assert passed == says("a") + last
    assert chunks.usage == Usage(input=7, output=2)


def test_null_usage_stays_and_is_none() -> None:
    """A provider adds it to other chunks because we asked."""
    piece = frame({"index": 0, "delta": {"content": "a"}, "finish_reason": None}, usage=None)
    chunks, passed = read(piece, piece, hide_usage=True)
    assert passed == piece + piece
    assert chunks.usage is None


def test_cumulative_usage_is_not_summed() -> None:
    """The last word counts."""
    pieces = [frame({"index": 0, "delta": {"content": "a"}}, usage={"prompt_tokens": 13, "completion_tokens": n}) for n in range(1, 21)]
    assert read(*pieces, ends())[0].usage == Usage(input=13, output=20)


# Errors and rubbish


ERROR = b'data: {"error":{"message":"quota","type":"insufficient_quota","code":null}}\n\n'


@pytest.mark.parametrize("before", [[], [ROLE], [ROLE, says("a"), says("b")]])
def test_an_error_ends_a_stream_and_is_raised(before: list[bytes]) -> None:
    chunks = Chunks()
    assert [chunks.feed(piece) for piece in before] == before
    assert chunks.feed(says("last words") + ERROR + says("more") + DONE) == says("last words")
    assert chunks.feed(says("more")) == chunks.end() == b""
    assert chunks.tail is None
    with pytest.raises(UpstreamError, match="quota") as error:
        chunks.check_ended()
    assert (error.value.kind, error.value.status) == ("insufficient_quota", None)


def test_a_malformed_event_goes_on_as_it_is_and_is_counted() -> None:
    bad = b'data: {"choices":[{"del\n\n'
    pieces = [says(str(number)) for number in range(60)]
    for place in (0, 9, 59):
        stream = [*pieces[:place], bad, *pieces[place:], ends()]
        chunks, passed = read(*stream)
        assert passed == b"".join(stream)
        assert chunks.malformed == 1
        chunks.check_ended()


JUNK = junk("index", "delta", "content", "finish_reason", most=3)
JUNK_FRAMES = st.fixed_dictionaries({}, optional=dict.fromkeys(["id", "model", "created", "object", "choices", "usage", "error"], JUNK))


@given(st.lists(JUNK_FRAMES | JUNK, max_size=3))
def test_nothing_that_a_provider_streams_raises(values: list[Any]) -> None:
    stream = b"".join(sse.frame(json.dumps(value).encode()) for value in values)
    chunks, passed = read(stream + says("a"))
    assert stream.startswith(passed.removesuffix(says("a")))
    assert chunks.error is not None or passed.endswith(says("a"))


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_no_bytes_are_too_odd(pieces: list[bytes]) -> None:
    chunks, passed = read(*pieces)
    assert len(passed) <= len(b"".join(pieces)) + 2
    assert not chunks.content


@pytest.mark.parametrize(
    ("said", "envelope"),
    [
        ({}, Envelope("c1", "m", 1)),
        ({"id": None, "created": "x", "object": None}, Envelope("", "m", 0)),
        ({"id": 5, "model": None, "object": "text_completion"}, Envelope("5", "", 1, "text_completion")),
        ({"id": None, "model": ""}, None),
    ],
)
def test_the_envelope_is_what_every_chunk_repeats(said: dict[str, Any], envelope: Envelope | None) -> None:
    assert read(frame({"index": 0, "delta": {"content": "a"}}, **said))[0].envelope == envelope
