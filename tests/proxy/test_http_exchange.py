"""proxy/http_exchange.py: how an answer is framed, and that what was begun is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spangate.proxy.http_exchange import head_of, path_of

from case import case
from upstream import LAST_CHUNK, C, D, F, chat_answer, chat_completion, chunk, http, play, sse_head

STREAM = {"stream": True}


def test_a_head() -> None:
    head = head_of(200, {"content-type": "text/plain", "x": "1"}).decode()
    assert re.fullmatch(
        r"HTTP/1\.1 200 OK\r\ndate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\nserver: spangate\r\n"
        r"content-type: text/plain\r\nx: 1\r\n\r\n",
        head,
    )
    assert head_of(499, {}).startswith(b"HTTP/1.1 499 \r\n")


@pytest.mark.fault("HDR-12")
@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b"])
def test_a_header_that_would_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        head_of(200, {"x": value})


def test_what_latin_1_cannot_say_is_replaced() -> None:
    assert b"x: ?\xe9\r\n" in head_of(200, {"x": "Ωé"})


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models?key=1", "/v1/models"),
        ("/v1/%2e%2e/x#y", "/v1/%2e%2e/x"),
        ("http://host:1/v1/models?x", "/v1/models"),
        ("http://user@host", "/"),
        ("*", "/"),
    ],
)
def test_the_path_of_a_target(target: str, path: str) -> None:
    assert path_of(target) == path


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1 << 20])
async def test_answers_of_any_size(tmp_path: Path, size: int) -> None:
    body = chat_completion("x" * size)
    async with case(tmp_path, play(http(200, body=body))) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request())
        answer = await line.answer()
        assert (answer.header("content-length"), answer.body) == (str(len(body)), body)


@pytest.mark.parametrize("size", [1, 65536, 1 << 20])
async def test_events_of_any_size(tmp_path: Path, size: int) -> None:
    events = [C("x" * size), C("y"), F("stop")]
    async with case(tmp_path, play(sse_head(), *map(chunk, events), chunk(D) + LAST_CHUNK)) as it:
        answer = await it.ask(STREAM)
        assert answer.header("transfer-encoding") == "chunked"
        assert answer.body == b"".join(events) + D


async def test_http_1_0_ends_with_the_connection(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello", stream=True))) as it:
        answer = await it.ask(STREAM, version="1.0")
        assert (answer.header("transfer-encoding"), answer.header("connection")) == (None, "close")
        assert answer.body.endswith(D)


async def test_a_head_alone(tmp_path: Path) -> None:
    async with case(tmp_path) as it, it.line() as line:
        for method in ("HEAD", "GET"):
            await line.send(it.request(path="/healthz", method=method))
            answer = await line.answer(method)
            assert (answer.status, answer.header("content-length")) == (200, str(len(b'{"status":"alive"}')))
