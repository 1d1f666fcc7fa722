"""Server-sent events: every line end, every split, every odd line that a provider may send."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call import sse

ENDS = [b"\n", b"\r\n", b"\r"]


class Reader:
    """Someone who is fed a stream and waits for whole frames, as Chunks does."""

    def __init__(self) -> None:
        self.waiting = b""
        self.datas: list[bytes] = []

    def feed(self, data: bytes) -> None:
        data = self.waiting + data
        end = sse.whole_frames(data)
        self.waiting = data[end:]
        frames = list(sse.frames(data[:end]))
        assert b"".join(frames) == data[:end], "no byte is lost"
        self.datas += [said for frame in frames if (said := sse.data_of(frame)) is not None]


def read(*pieces: bytes) -> list[bytes]:
    reader = Reader()
    for piece in pieces:
        reader.feed(piece)
    return reader.datas


def by_the_book(stream: bytes) -> list[bytes]:
    """What WHATWG HTML 9.2.6 makes of a stream, line by line: the data of each event that it dispatches, empty ones too."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    datas: list[bytes] = []
    data: list[bytes] = []
    for line in lines[:-1]:
        if not line:
            datas += [b"\n".join(data)] if data else []
            data = []
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
    return datas


KINDS = "data: {}|data:x|data:  two|data|data:|datas: y| data: z|: ping|:|event: e|id: 4|foo: bar|data: 日本🙂é\u2028\u2029\u0085|||"
LINES = st.sampled_from(KINDS.encode().split(b"|"))
STREAMS = st.lists(st.tuples(LINES, st.sampled_from(ENDS)), max_size=12).map(lambda lines: b"".join(line + end for line, end in lines))


@given(STREAMS, st.data())
def test_any_split_of_a_stream_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    pieces = [stream[start:end] for start, end in pairwise([0, *sorted(cuts), len(stream)])]
    assert read(*pieces) == by_the_book(stream)


@given(st.lists(st.binary(max_size=12), max_size=8))
def test_any_bytes_are_read_as_the_book_reads_them_and_none_is_lost(pieces: list[bytes]) -> None:
    assert read(*pieces) == by_the_book(b"".join(pieces))


@given(STREAMS)
def test_whole_frames_are_what_frames_finds(stream: bytes) -> None:
    assert sse.whole_frames(stream) == sum(map(len, sse.frames(stream)))


@pytest.mark.parametrize("end", ENDS, ids=["LF", "CRLF", "CR"])
def test_each_cut_of_a_stream_in_one_style(end: bytes) -> None:
    stream = b"".join([b"event: a", end, b'data: {"x": 1}', end, end, b": ping", end, end, b"data: [DONE]", end, end])
    for at in range(len(stream) + 1):
        assert read(stream[:at], stream[at:]) == [b'{"x": 1}', b"[DONE]"]
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == [b'{"x": 1}', b"[DONE]"]


@pytest.mark.parametrize("end", ENDS, ids=["LF", "CRLF", "CR"])
def test_a_frame_is_whole_with_its_blank_line_and_not_before(end: bytes) -> None:
    frame = b"data: a" + end + end
    assert sse.whole_frames(frame) == len(frame)
    assert sse.whole_frames(b"data: a" + end) == 0
    assert sse.whole_frames(frame + b"data: b" + end) == len(frame)


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\r\r\n", b"\n\r"])
def test_mixed_line_ends_make_a_blank_line_too(blank: bytes) -> None:
    assert list(sse.frames(b"data: a" + blank + b"data: b" + blank)) == [b"data: a" + blank, b"data: b" + blank]


def test_one_crlf_is_one_line_end() -> None:
    assert sse.whole_frames(b"data: a\r\n") == 0
    assert list(sse.frames(b"data: a\r\ndata: b\r\n\r\n")) == [b"data: a\r\ndata: b\r\n\r\n"]


def test_an_unfinished_frame_is_left_out() -> None:
    assert list(sse.frames(b"data: a\n\ndata: b\n")) == [b"data: a\n\n"]


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),
        (b"data: x", b"x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"data: x\r\r", b"x"),
        (b"data: a\rdata: b\n\n", b"a\nb"),
        (b"data: x\n\n\n", b"x"),
        (b"\ndata: x\n\n", b"x"),
        (b"data:[DONE]\n\n", b"[DONE]"),
        (b"event: message\nid: 4\nretry: 10\ndata: x\n\n", b"x"),
        (b"data: {\ndata: }\n\n", b"{\n}"),
        (b"data\n\n", b""),
        (b"data:\n\n", b""),
        (b"data: \n\n", b""),
        (b"data\ndata\n\n", b"\n"),
        (b": ping\n\n", None),
        (b":\n\n", None),
        (b"event: ping\n\n", None),
        (b"foo: bar\n\n", None),
        (b"database: x\n\n", None),
        (b" data: x\n\n", None),
        (b"\n\n", None),
        ("data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n\n".encode(), "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode()),
    ],
)
def test_the_data_of_a_frame(frame: bytes, data: bytes | None) -> None:
    assert sse.data_of(frame) == data


def test_a_document_on_nine_lines_is_one_document() -> None:
    value = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    said = sse.data_of(sse.frame(json.dumps(value, indent=1).encode()))
    assert said is not None
    assert json.loads(said) == value


@given(st.binary().map(lambda data: data.replace(b"\r", b"")), st.sampled_from([None, "error"]))
def test_what_a_frame_carries_is_read_back(data: bytes, event: str | None) -> None:
    frame = sse.frame(data, event)
    assert list(sse.frames(frame)) == [frame]
    assert sse.data_of(frame) == data
    assert frame.startswith(b"event: error\n") == (event == "error")


@given(st.binary())
def test_no_data_breaks_out_of_its_frame(data: bytes) -> None:
    frame = sse.frame(b"said: " + data)
    assert list(sse.frames(frame)) == [frame]
    assert sse.data_of(frame) == b"said: " + data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def test_what_we_write_ourselves() -> None:
    assert sse.data_of(sse.DONE) == b"[DONE]"
    assert sse.data_of(sse.KEEP_ALIVE) is None
    assert sse.whole_frames(sse.KEEP_ALIVE) == len(sse.KEEP_ALIVE)
