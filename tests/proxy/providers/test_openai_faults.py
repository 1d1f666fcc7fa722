"""proxy/providers/openai.py against providers that misbehave otherwise than in a stream's events: codings, error pages, connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest
from proxy.providers.openai_server import HELLO, KEY, answered, asked, failed
from proxy.providers.stage import Stage, asking, closed, given_back, raw, text, told

from spangate.call.errors import UpstreamError
from spangate.call.events import Closed, Opened, Usage

from upstream import (
    LAST_CHUNK,
    C,
    D,
    F,
    chat_completion,
    chunk,
    cut,
    error,
    http,
    play,
    sse,
    sse_head,
)  # fmt: skip

# ---- codings


def packed(body: bytes, coding: str) -> bytes:
    if coding == "gzip":
        return gzip.compress(body)
    return zlib.compress(body) if coding == "deflate" else body[::-1]


@pytest.mark.fault("HDR-01")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_an_answer_in_a_coding_that_we_know(coding: str) -> None:
    answer = chat_completion("Hello")
    events = await answered(http(200, [("Content-Encoding", coding)], packed(answer, coding)), asking())
    assert isinstance(events[0], Opened)
    assert ("content-encoding" in events[0].headers, raw(events)) == (False, answer)
    assert closed(events).usage == Usage(7, 2)


@pytest.mark.fault("HDR-01")
async def test_a_compressed_stream() -> None:
    compressed = gzip.compress(HELLO)
    head = sse_head([("Content-Encoding", "gzip")])
    events = await answered([head, *(chunk(compressed[at : at + 9]) for at in range(0, len(compressed), 9)), LAST_CHUNK])
    assert (text(events), raw(events), closed(events).usage) == ("Hello", HELLO.removesuffix(D), Usage(7, 2))


@pytest.mark.fault("HDR-01")
async def test_a_coding_that_we_do_not_know_goes_through_untouched() -> None:
    sealed = packed(chat_completion("Hello"), "br")
    for call in (asking(), asking(stream=True)):
        events = await answered(http(200, [("Content-Encoding", "br")], sealed), call)
        opened = events[0]
        assert isinstance(opened, Opened)
        assert (opened.stream, opened.content_type, dict(opened.headers)) == (False, "application/json", {"content-encoding": "br"})
        assert (raw(events), closed(events)) == (sealed, Closed())


@pytest.mark.fault("HDR-04")
@pytest.mark.parametrize("status", [429, 500])
async def test_a_compressed_error(status: int) -> None:
    told = json.dumps({"error": {"message": "Slow down.", "type": "requests", "code": "busy"}}).encode()
    _, fault = await failed(http(status, [("Content-Encoding", "gzip")], gzip.compress(told)))
    assert (fault.status, fault.message if status == 429 else fault.detail) == (status, "Slow down.")
    assert (fault.kind, fault.own_code) == ("requests", "busy")


@pytest.mark.fault("HDR-04")
async def test_a_coding_that_is_a_lie() -> None:
    lying = [("Content-Encoding", "gzip")]
    before, fault = await failed(http(200, lying, chat_completion("Hello")), asking())
    assert (before, type(fault), fault.status) == ([], UpstreamError, None)
    _, fault = await failed(http(429, lying, b'{"error":{}}'), asking())
    assert (fault.status, fault.message) == (429, "The provider answered with status 429.")


# ---- what is no JSON, or not quite


@pytest.mark.fault("RES-06")
async def test_infinity_passes_as_it_came() -> None:
    answer = chat_completion("Hello").replace(b'"finish_reason"', b'"logprobs":{"content":[{"logprob":-Infinity}]},"finish_reason"')
    events = await answered(http(200, (), answer), asking())
    assert (raw(events), closed(events)) == (answer, Closed(Usage(7, 2), "stop"))
    odd = C("a").replace(b'"finish_reason"', b'"logprobs":{"content":[{"logprob":NaN}]},"finish_reason"')
    events = await answered(sse(odd, F("stop"), D))
    assert raw(events) == odd + F("stop")


@pytest.mark.fault("RES-06")
async def test_infinity_is_null_in_what_we_write() -> None:
    odd = b'"logprobs":{"content":[{"logprob":-Infinity}]},"finish_reason"'
    as_stream = await answered(http(200, (), chat_completion("Hello").replace(b'"finish_reason"', odd)))
    as_json = await answered(sse(C("a").replace(b'"finish_reason"', odd), F("stop"), D), asking())
    for events in (as_stream, as_json):
        assert b"Infinity" not in raw(events)
        assert b'"logprob":null' in raw(events)


@pytest.mark.fault("RES-09")
async def test_error_pages() -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head><body>" + b"<p>cloud</p>" * 800 + b"</body></html>"
    _, fault = await failed(http(502, [("Content-Type", "text/html")], page))
    assert (fault.status, fault.retryable) == (502, True)
    assert fault.message == "The provider answered with status 502."
    assert fault.detail.startswith("502 Bad Gateway cloud")
    assert "<" not in fault.detail
    assert len(fault.detail) <= 500
    _, fault = await failed(http(503, [("Content-Type", "text/plain")], "überlastet\r\n".encode()))
    assert (fault.status, fault.detail) == (503, "überlastet")
    _, fault = await failed(http(504))
    assert (fault.status, fault.message) == (504, "The provider answered with status 504.")


@pytest.mark.fault("RES-09")
@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"error":"model not loaded"}', "model not loaded"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'[{"error":{"message":"API key not valid","code":400}}]', "API key not valid"),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b"[" * 100_000, "The provider answered with status 400."),
    ],
)
async def test_errors_in_other_shapes(said: bytes, message: str) -> None:
    _, fault = await failed(http(400, (), said))
    assert (fault.status, fault.message, fault.retryable) == (400, message, False)


async def test_a_provider_that_quotes_our_key() -> None:
    _, fault = await failed(error(400, f"Incorrect API key provided: {KEY}"))
    assert KEY not in fault.message


async def test_a_provider_that_quotes_our_key_in_the_headers_of_a_good_answer() -> None:
    headers = [("x-request-id", f"of {KEY}"), ("openai-version", KEY)]
    async with asked(play(http(200, headers, chat_completion("Hello")))) as (provider, _, _):
        opened = (await told(provider, asking()))[0]
    assert isinstance(opened, Opened)
    assert (opened.request_id, dict(opened.headers)) == ("of ***", {"openai-version": "***"})


# ---- connections


@pytest.mark.fault("RET-08")
async def test_a_connection_that_its_peer_has_closed_meanwhile() -> None:
    async with asked(play(http(200, (), chat_completion("Hello")), end="fin")) as (provider, up, client):
        for _ in range(20):
            assert text(await told(provider, asking())) == "Hello"
        assert client.in_use == 0
    assert len(up.requests) == 20


async def test_the_connection_of_a_stream_serves_the_next_call() -> None:
    late = play(sse_head() + chunk(HELLO), (LAST_CHUNK, 0.01))
    async with asked(late) as (provider, up, client):
        for _ in range(3):
            assert text(await told(provider, asking(stream=True))) == "Hello"
            await given_back(Stage(provider, in_use=lambda: client.in_use))
        assert (len(up.connections), client.idle) == (1, 1)


async def test_half_an_answer_is_nobodys() -> None:
    steps = cut(http(200, (), chat_completion("Hello")), 60, 0.05)
    async with asked([play(*steps), play(http(200, (), chat_completion("next")))]) as (provider, up, _):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(told(provider, asking()), 0.02)
        assert text(await told(provider, asking())) == "next"
        assert len(up.connections) == 2
