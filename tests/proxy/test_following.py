"""proxy/following.py: where requests end among the bytes of a connection, however those are cut."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from spangate.proxy.callers import Headers
from spangate.proxy.following import Following


@dataclass
class Head:
    """A head as the parser tells it, and the body behind it."""

    headers: Headers
    chunked: bool = False
    ended: bool = True

    def is_eof(self) -> bool:
        return self.ended


def get(**named: str) -> tuple[Head, Head]:
    head = Head(CIMultiDict({name.replace("_", "-"): value for name, value in named.items()}))
    return head, head


def chunks(*, ended: bool) -> tuple[Head, Head]:
    head = Head(CIMultiDict({"Transfer-Encoding": "chunked"}), chunked=True, ended=ended)
    return head, head


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\n"])
def test_what_follows_whole_requests(begun: bytes) -> None:
    assert Following().feed(GET + begun, [get()]) == begun
    assert Following().feed(POST + b"\r\n\r\n\r\n\r\n\r" + begun, [get(Content_Length="9")]) == begun, "a body may look like an end"
    assert Following().feed(b"\r\n\r\n" + GET + b"\r\n" + GET + begun, [get(), get()]) == begun
    assert Following().feed(POST + b"123456789" + GET + begun, [get(Content_Length="9"), get()]) == begun


def test_a_body_that_comes_by_and_by() -> None:
    following = Following()
    assert following.feed(POST + b"123", [get(Content_Length="9")]) == b""
    assert following.feed(b"456", []) == b""
    assert following.feed(b"789GET", []) == b"GET"
    assert following.feed(b" / HTTP/1.1\r\n", []) == b" / HTTP/1.1\r\n"
    assert following.feed(b"Host: h\r\n\r\n", [get()]) == b""


def test_chunks_end_as_their_reader_says() -> None:
    following = Following()
    assert following.feed(CHUNKED + b"1\r\nx", [chunks(ended=False)]) == b""
    body = Head(CIMultiDict(), chunked=True, ended=False)
    assert following.feed(CHUNKED, [(body, body)]) == b""
    body.ended = True
    assert following.feed(b"\n", []) == b""
    assert following.feed(CHUNKED + b"0\r\n\r\n", [chunks(ended=True)]) == b""
    assert following.feed(CHUNKED + b"0\r\n\r\nGET / HTTP/1.1\r\n", [chunks(ended=True)]) is None
    assert following.feed(CHUNKED + b"0\r\n\r\n" + GET, [chunks(ended=True), get()]) is None
    assert following.feed(GET + b"G", [get()]) == b"G", "and then it can be told again"


PARTS = st.lists(st.sampled_from([GET, POST + b"\r\n\r\n56789", b"\r\n"]), max_size=4)


@given(PARTS, st.sampled_from([b"", b"GET /", b"GET / HTTP/1.1\r\nHost: h\r\n"]), st.lists(st.integers(0, 300), max_size=6))
def test_however_the_bytes_are_cut(parts: list[bytes], begun: bytes, cuts: list[int]) -> None:
    """Fed as the parser is, with the heads that each cut completes, what waits at the end is what has begun."""
    data = b"".join(parts) + begun
    ends, at = [], 0
    for part in parts:
        if part != b"\r\n":
            head = get(Content_Length="9") if part.startswith(b"POST") else get()
            ends.append((at + part.index(b"\r\n\r\n") + 4, head))
        at += len(part)
    following, waiting = Following(), 0
    for start, stop in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        heads = [head for end, head in ends if start < end <= stop]
        behind = following.feed(data[start:stop], heads)
        assert behind is not None
        waiting = len(behind) if heads else waiting + len(behind)
    blank = len(data) - len(begun) - len((b"".join(parts)).rstrip(b"\r\n")) if parts and parts[-1] == b"\r\n" else 0
    assert len(begun) <= waiting <= len(begun) + blank
