"""Request bodies and answers that are too large, too deep, too slow, broken or strange, through the whole gateway."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import psutil
import pytest

from case import CHAT_WITH_M, KEY, OTHER, Case, Line, case
from upstream import C, D, F, chat_answer, chat_completion, chunk, error, http, play, sse, wants_stream

MiB = 1 << 20
HELLO = chat_completion("Hello")


def rss() -> int:
    return psutil.Process(os.getpid()).memory_info().rss


def saying(model: str, *more: tuple[str, str]) -> bytes:
    """A chat as JSON text, with these further members."""
    members = [("model", json.dumps(model)), ("messages", '[{"role": "user", "content": "hi"}]'), *more]
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}").encode("utf-8", "surrogatepass")


# ---- slow


@pytest.mark.fault("RES-01")
async def test_half_sent_heads_are_given_up(tmp_path: Path) -> None:
    async with case(tmp_path, server={"header_timeout": "400ms"}) as it:
        lines = [await opened(it) for _ in range(100)]
        for number, line in enumerate(lines):
            await line.send(b"POST /v1/chat/comp" if number % 2 else it.request()[:-80].partition(b"\r\n\r\n")[0])
        await it.works()
        assert it.running.app.server.connections >= 100
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(line.answer() for line in lines))
        assert {(answer.status, answer.error["code"]) for answer in answers} == {(408, "request_timeout")}
        assert {answer.header("connection") for answer in answers} == {"close"}
        await asyncio.gather(*(line.close() for line in lines))


@pytest.mark.fault("RES-01")
async def test_a_head_that_drips_is_given_up(tmp_path: Path) -> None:
    async with case(tmp_path, server={"header_timeout": "500ms"}) as it, it.line() as line:
        started = asyncio.get_running_loop().time()
        dripping = asyncio.ensure_future(drip(line, it.request(), 0.05))
        assert (await line.answer()).status == 408
        assert asyncio.get_running_loop().time() - started < 2
        await stopped(dripping)


@pytest.mark.fault("RES-01")
async def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async with case(tmp_path, server={"header_timeout": "300ms"}) as it, it.line() as line:
        async with asyncio.timeout(3):
            assert await line.closed()


@pytest.mark.fault("RES-01")
async def test_bodies_that_drip_are_given_up(tmp_path: Path) -> None:
    async with case(tmp_path, server={"body_timeout": "500ms"}) as it:
        lines = [await opened(it) for _ in range(50)]
        it.rows += len(lines)
        drips = []
        for line in lines:
            head, _, body = it.request().partition(b"\r\n\r\n")
            await line.send(head + b"\r\n\r\n")
            drips.append(asyncio.ensure_future(drip(line, body, 0.1)))
        await it.works()
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*(line.answer() for line in lines))
        assert {(answer.status, answer.error["code"]) for answer in answers} == {(408, "request_timeout")}
        assert {answer.header("connection") for answer in answers} == {"close"}
        await asyncio.gather(*map(stopped, drips), *(line.close() for line in lines))
        assert not it.up.requests


async def opened(it: Case) -> Line:
    address = it.running.address
    return Line(*await asyncio.open_connection(address.host, address.port), it.heard)


async def drip(line: Line, data: bytes, every: float) -> None:
    for at in range(len(data)):
        await line.send(data[at : at + 1])
        await asyncio.sleep(every)


async def stopped(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("framing", [("Content-Length", "5000"), ("Transfer-Encoding", "chunked")])
async def test_a_client_that_leaves_in_its_body_has_aborted(tmp_path: Path, framing: tuple[str, str], reset: bool) -> None:
    async with case(tmp_path) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request(b"", headers=[framing, ("Expect", "100-continue")]))
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await line.send(b"1000\r\nhalf a")
        if reset:
            line.abort()
        else:
            await line.close()
        (seen,) = await it.running.kept.count(1)
        assert (seen.outcome, seen.status) == ("aborted", 499)


# ---- large


@pytest.mark.fault("RES-02")
async def test_a_length_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    async with case(tmp_path, server={"max_body": "8MiB"}) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request(b"", headers=[("Content-Length", str(200 * MiB))]))
        answer = await line.answer()  # not a byte of the body was sent
        assert (answer.status, answer.error["code"], answer.header("connection")) == (413, "request_too_large", "close")
        assert answer.header("x-spangate-attempts") == "0"
        assert await line.closed()


@pytest.mark.fault("RES-02")
@pytest.mark.parametrize(
    ("framing", "piece"),
    [(("Transfer-Encoding", "chunked"), chunk(b"x" * MiB)), (("Content-Length", str(200 * MiB)), b"x" * MiB)],
    ids=["chunked", "with its length"],
)
async def test_a_body_that_is_too_large_is_never_held(tmp_path: Path, framing: tuple[str, str], piece: bytes) -> None:
    async with case(tmp_path, server={"max_body": "8MiB"}) as it:
        it.rows += 1
        before = rss()
        pushed, answer = await push(it, it.request(b"", headers=[framing]), piece, 200)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert pushed < 200
        assert rss() - before < 24 * MiB
        assert not it.up.requests


@pytest.mark.fault("RES-02")
async def test_a_bad_key_is_answered_before_its_body_is_read(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        it.rows += 2
        async with it.line() as line:
            await line.send(it.request(b"", key="sg-wrong", headers=[("Content-Length", str(30 * MiB))]))
            answer = await line.answer()
            assert (answer.status, answer.header("connection")) == (401, "close")
        before = rss()
        head = it.request(b"", key="sg-wrong", headers=[("Transfer-Encoding", "chunked")])
        _, answer = await push(it, head, chunk(b"x" * MiB), 200)
        assert answer.status == 401
        assert rss() - before < 16 * MiB


async def push(it: Case, head: bytes, piece: bytes, times: int) -> tuple[int, Any]:
    """Send without end, as a client does that reads only when it has sent everything; how often it could, and the answer."""
    async with it.line() as line:
        answer = asyncio.ensure_future(line.answer())
        pushed = 0
        await line.send(head)
        try:
            while pushed < times and not answer.done():
                await line.send(piece)
                pushed += 1
        except ConnectionError:
            pass
        return pushed, await answer


@pytest.mark.fault("RES-02")
async def test_a_body_at_the_limit_goes_through(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), server={"max_body": "1KiB"}) as it:
        for headers in ([], [("Transfer-Encoding", "chunked")]):
            for more, status in ((0, 200), (1, 413)):
                empty = json.dumps(CHAT_WITH_M | {"pad": ""}).encode()
                body = json.dumps(CHAT_WITH_M | {"pad": "x" * (1024 - len(empty) + more)}).encode()
                sent = chunk(body[:500]) + chunk(body[500:]) + b"0\r\n\r\n" if headers else body
                assert (await it.ask(sent, headers=headers)).status == status


@pytest.mark.fault("RES-02")
async def test_thirty_megabytes_arrive_as_they_were(tmp_path: Path) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"' + os.urandom(15 * MiB).hex().encode() + b'"}]}'
    models = {"m": {"targets": [{"provider": "up", "model": "renamed"}]}, "same": {"targets": [{"provider": "up", "model": "m"}]}}
    models |= {"ok": {"targets": [{"provider": "script"}]}}
    async with case(tmp_path, play(chat_answer("Hello")), models=models) as it:
        assert (await it.ask(body)).status == 200
        assert it.up.requests[0].body == body.replace(b'"m"', b'"renamed"', 1)
        it.up.requests.clear()
        assert (await it.ask(body.replace(b'"m"', b'"same"', 1))).status == 200
        assert it.up.requests[0].body == body


async def test_a_full_house_refuses_before_the_body(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with case(tmp_path, play(hold, chat_answer("Hello")), server={"max_calls": 2}) as it:
        running = [asyncio.ensure_future(it.ask()) for _ in range(2)]
        await it.up.request(1)
        async with it.line() as line:
            it.rows += 1
            await line.send(it.request(b"", headers=[("Content-Length", "1000"), ("Expect", "100-continue")]))
            answer = await line.answer()
            assert (answer.status, answer.error["code"], answer.interim) == (503, "overloaded", [])
            assert answer.header("retry-after") == "1"
            assert answer.header("x-spangate-attempts") == "0"
        assert (await it.ask(key="sg-wrong")).status == 401  # whoever may not come in takes no place
        hold.set()
        assert [(await each).status for each in running] == [200, 200]


async def test_bodies_held_at_once_are_limited(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with case(tmp_path, play(hold, chat_answer("Hello")), server={"max_bodies": "100kB"}) as it:
        large = {"user": "x" * 60_000}
        first = asyncio.ensure_future(it.ask(large))
        await it.up.request()
        for headers in ([("Expect", "100-continue"), ("Content-Length", "60000")], [("Transfer-Encoding", "chunked")]):
            it.rows += 1
            async with it.line() as line:
                await line.send(it.request(b"", headers=headers))
                if len(headers) == 1:
                    await line.send(chunk(b"x" * 60_000))
                answer = await line.answer()
                assert (answer.status, answer.error["code"], answer.header("retry-after")) == (503, "overloaded", "1")
        hold.set()
        assert (await first).status == 200
        assert (await it.ask(large)).status == 200  # its room was given back


# ---- deep, wrong, strange


@pytest.mark.fault("RES-04")
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 20_000,
        b"[" * 20_000 + b"]" * 20_000,
        saying("m", ("x", "[" * 20_000 + "]" * 20_000)),
        saying("m", ("x", "[" * 128 + "]" * 128)),
        saying("m", ("tools", '[{"function": {"parameters": ' + '{"a":' * 1000 + "1" + "}" * 1000 + "}}]")),
        saying("m", ("x", '{"a":' * 200 + "NaN" + "}" * 200)),
        saying("m", ("messages", '{"a":[' * 10_000 + "]}" * 10_000)),
    ],
    ids=len,
)
async def test_deep_nesting_is_refused(tmp_path: Path, body: bytes) -> None:
    async with case(tmp_path) as it:
        answer = await it.ask(body)
        assert (answer.status, answer.error["code"], answer.error["type"]) == (400, "invalid_request", "invalid_request_error")
        assert not it.up.requests


@pytest.mark.fault("RES-04")
async def test_what_is_not_too_deep_passes(tmp_path: Path) -> None:
    body = saying("m", ("x", "[" * 127 + "]" * 127), ("y", json.dumps('["[' * 400)))
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert (await it.ask(body)).status == 200
        assert it.up.requests[0].body == body


@pytest.mark.fault("RES-04")
@pytest.mark.parametrize(("levels", "stream", "status"), [(500, False, 200), (500, True, 200), (20_000, True, 200), (20_000, False, 502)])
async def test_an_answer_that_nests_too_deep_is_not_ours_to_judge(tmp_path: Path, levels: int, stream: bool, status: int) -> None:
    """What can be read, or need not be, goes out as it came; a whole answer that no parser reads is the provider's failure."""
    nested = b"[" * levels + b"]" * levels
    whole = HELLO[:-1] + b',"x":%b}' % nested
    first = C("Hello")[: -len(b"}\n\n")] + b',"x":%b}\n\n' % nested
    async with case(tmp_path, play(sse(first, F("stop"), D) if stream else http(200, (), whole))) as it:
        answer = await it.ask({"stream": stream})
        assert answer.status == status
        (seen,) = await it.running.kept.count(1)
        if status == 200:
            assert answer.body == (first + F("stop") + D if stream else whole)
            assert (seen.outcome, seen.attempts[0].outcome) == ("completed", "success")
        else:
            assert answer.error["code"] == "upstream_error"
            assert (seen.outcome, seen.attempts[0].outcome) == ("failed", "error")


@pytest.mark.fault("RES-06")
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "[1, NaN]", '{"a": -Infinity}', "nan", "1e", "01", "+1", ".5", "0x1"])
async def test_what_is_no_json_number_is_refused(tmp_path: Path, value: str) -> None:
    async with case(tmp_path) as it:
        for body in (saying("m", ("temperature", value)), saying("m", ("temperature", value), ("user", '"\\ud83d"'))):
            answer = await it.ask(body)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert not it.up.requests


@pytest.mark.fault("RES-06")
@pytest.mark.parametrize("value", ["1e999", "-1e999", "1" * 5000, "1" * 30, "0.1000000000000000055511151231257827", "-0", "1E+2"])
async def test_numbers_that_we_do_not_read_go_through(tmp_path: Path, value: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        body = saying("m", ("seed", value))
        assert (await it.ask(body)).status == 200
        assert it.up.requests[0].body == body


@pytest.mark.fault("RES-06")
@pytest.mark.parametrize("value", ["1e999", "1" * 5000, "1.5", '"2"', "true", "[1]", "{}", "-1e999"])
@pytest.mark.parametrize("name", ["n", "max_tokens", "max_completion_tokens"])
async def test_numbers_that_we_do_read_must_be_whole_numbers(tmp_path: Path, name: str, value: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        answer = await it.ask(saying("m", (name, value)))
        assert (answer.status, answer.error["param"]) == (400, name)


@pytest.mark.fault("RES-06")
@pytest.mark.parametrize("stream", [False, True])
async def test_numbers_of_an_answer_that_are_no_json_numbers(tmp_path: Path, stream: bool) -> None:
    odd = HELLO.replace(b'"index":0', b'"index":0,"logprobs":{"content":[{"token":"a","logprob":-Infinity,"top_logprobs":[]}]}')
    async with case(tmp_path, play(http(200, (), odd))) as it:  # asked for as a stream it is a JSON body all the same
        answer = await it.ask({"stream": stream})
        assert answer.status == 200
        assert b"Hello" in answer.body
        if stream:
            for line in answer.body.splitlines():
                if line.startswith(b"data: {"):
                    json.loads(line[6:], parse_constant=pytest.fail)
        else:
            assert answer.body == odd


@pytest.mark.fault("RES-07")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "members",
    [
        [("user", r'"\ud83d"')],
        [("messages", r'[{"role": "user", "content": "\ud83d \udc00x"}]')],
        [("messages", r'[{"role": "assistant", "tool_calls": [{"function": {"arguments": "{\"a\": \"\ud83d\"}"}}]}]')],
        [(r"x\udfff", "1")],
        [("stream_options", r'{"\ud83d": "\ud83d"}')],
    ],
)
async def test_a_lone_surrogate_is_json(tmp_path: Path, members: list[tuple[str, str]], stream: bool) -> None:
    given = dict([("messages", '[{"role": "user", "content": "hi"}]'), *members, ("stream", json.dumps(stream))])

    def body(model: str) -> bytes:
        return ("{" + ", ".join(f'"{name}": {value}' for name, value in {"model": f'"{model}"', **given}.items()) + "}").encode()

    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request)))) as it:
        for model, status in (("m", 200), ("ok", 200), (r"\ud83d", 404)):
            answer = await it.ask(body(model))
            assert answer.status == status
            answer.body.decode("utf-8")
        (request,) = it.up.requests
        sent, said = request.json(), json.loads(body("m"))
        if stream:
            assert sent.pop("stream_options") == {**said.pop("stream_options", {}), "include_usage": True}
        assert sent == said
        assert request.body.isascii()


@pytest.mark.fault("TOOL-05")
@pytest.mark.parametrize("model", ["m", "ok"])
async def test_content_that_is_null_absent_or_empty_beside_tool_calls(tmp_path: Path, model: str) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": []},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "assistant", "content": [], "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1"},
    ]
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        body = json.dumps({"model": model, "messages": history}).encode()
        assert (await it.ask(body)).status == 200
        assert [request.body for request in it.up.requests] == ([body] if model == "m" else [])


@pytest.mark.fault("INJ-09")
@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","model":"ok","messages":[]}',
        b'{"model":"ok","messages":[],"mod\\u0065l":"m"}',
        b'{"model":"m","messages":[],"messages":[{}]}',
        b'{"model":"m","max_tokens":1,"messages":[],"max_tokens":1000000}',
        b'{"model":"m","model":"m","messages":[]}',
        b'{"model":"m","messages":[],"stream":false,"stream":true}',
        b'{"model":"m","messages":[],"x":"\\ud83d","n":1,"n":2}',
        b'{ "model" : "m" ,\n "messages" : [] , "model" : "ok" }',
    ],
)
async def test_a_field_said_twice_is_refused(tmp_path: Path, body: bytes) -> None:
    async with case(tmp_path) as it:
        answer = await it.ask(body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert "twice" in answer.error["message"]
        assert not it.up.requests


@pytest.mark.fault("INJ-09")
@pytest.mark.parametrize(
    "options",
    [
        b'{"include_usage":false,"include_usage":true}',
        b'{"include_usage":true,"include\\u005fusage":false}',
        b'{"include_usage":true,"x":{"y":1,"y":2}}',
        b'[{"include_usage":true,"include_usage":true}]',
    ],
)
async def test_what_we_read_inside_of_a_field_is_said_once_too(tmp_path: Path, options: bytes) -> None:
    """Else we count on a report of usage that a provider, which reads the first of two, doesn't send."""
    async with case(tmp_path) as it:
        answer = await it.ask(b'{"model":"m","messages":[],"stream":true,"stream_options":%b}' % options)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", "stream_options")
        assert not it.up.requests


@pytest.mark.fault("INJ-09")
async def test_what_nobody_reads_passes_as_it_came(tmp_path: Path) -> None:
    """Nothing is decided by it here, so what it means is between client and provider; and these are the very bytes."""
    body = b'{"model":"m","messages":[{"role":"user","role":"user","content":"a","content":"b"}],"x":{"y":1,"y":2}}'
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert (await it.ask(body)).status == 200
        assert it.up.requests[0].body == body


@pytest.mark.fault("INJ-09")
async def test_names_written_with_escapes_are_the_names_that_they_are(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert (await it.ask(b'{"mod\\u0065l":"m","messages":[]}')).status == 200
        assert it.up.requests[0].json() == {"model": "m", "messages": []}


# ---- codings and charsets


@pytest.mark.fault("HDR-15")
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "GZIP", "x-unknown"])
async def test_a_compressed_request_is_refused_unread(tmp_path: Path, coding: str) -> None:
    bomb = gzip.compress(bytes(64 * MiB))
    async with case(tmp_path, server={"max_body": "8MiB"}) as it:
        before = rss()
        answer = await it.ask(bomb, headers=[("Content-Encoding", coding)])
        assert (answer.status, answer.error["code"]) == (415, "unsupported_encoding")
        assert rss() - before < 8 * MiB
        assert not it.up.requests


@pytest.mark.fault("HDR-15")
async def test_a_transfer_coding_that_compresses_is_refused(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        answer = await it.raw(it.request(gzip.compress(b"{}"), headers=[("Transfer-Encoding", "gzip, chunked")]))
        assert (answer.status, answer.header("connection")) == (400, "close")
        it.rows += len(it.running.kept.seen)  # one of aiohttp's parsers leaves it to us


@pytest.mark.fault("HDR-16")
@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json; charset=foo", saying("m"), 200),
        ("application/json; charset=utf-16", saying("m"), 200),
        ("text/plain", saying("m"), 200),
        ("", saying("m"), 200),
        ("nonsense \x80", saying("m"), 200),
        ("application/json", b"\xef\xbb\xbf" + saying("m"), 200),
        ("application/json; charset=utf-16", saying("m").decode().encode("utf-16"), 400),
        ("application/json", saying("m").decode().encode("utf-16-le"), 400),
        ("application/json", saying("m").decode().encode("utf-32-be"), 400),
        ("application/json", saying("m", ("user", '"\xff"')).decode().encode("latin-1"), 400),
        ("application/json", saying("m") + b"\xff", 400),
        ("application/json", saying("m", ("user", '"\ud83d"')), 400),  # a surrogate encoded as if it were a character
        ("application/json", b"", 400),
        ("application/json", b"null", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'"model"', 400),
        ("application/json", b"{}", 400),
        ("application/json", saying("m") + b"{}", 400),
        ("application/json", b"\x00" * 100, 400),
        ("application/json", saying("m", ("user", '"\x00"')), 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nhi\r\n--x--", 400),
        ("application/x-www-form-urlencoded", b"model=m", 400),
    ],
)
async def test_odd_charsets_and_types(tmp_path: Path, kind: str, body: bytes, status: int) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        answer = await it.ask(body, headers=[("Content-Type", kind)])
        assert answer.status == status
        if status == 400:
            assert answer.error["code"] == "invalid_request"
            assert len(answer.error["message"]) < 200
        else:
            assert it.up.requests[0].header(b"content-type") == b"application/json"
            assert it.up.requests[0].json() == CHAT_WITH_M


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": 5}, "model"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": ["m"]}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {}}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": "x"}, "stream_options"),
    ],
)
async def test_a_wrong_type_names_its_field(tmp_path: Path, body: dict[str, Any], param: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        answer = await it.ask(body)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_request", param)
        assert not it.up.requests


@pytest.mark.parametrize("model", ["m", "ok"])
@pytest.mark.parametrize(
    "messages", [[], [None], [1, "x", []], [{}], [{"role": 5, "content": 7}], [{"content": [None, 1, {"text": 5}, {"type": "image_url"}]}]]
)
async def test_messages_are_the_providers_business(tmp_path: Path, model: str, messages: list[Any]) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert (await it.ask({"model": model, "messages": messages})).status == 200


# ---- what a provider answers instead


@pytest.mark.fault("RES-09")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "page",
    [
        (502, "text/html", b"<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1>" + b"<p>x</p>" * 1000, 502),
        (503, "text/plain", b"upstream connect error or disconnect", 502),
        (504, "text/html", b"", 504),
        (500, "application/json", b'{"error": ', 502),
        (520, "text/html; charset=utf-8", "<b>Проблема</b>".encode(), 502),
        (429, "text/html", b"<h1>slow down</h1>", 429),
        (404, "text/html", b"<html><script>alert(1)</script>no such page</html>", 404),
        (413, "text/plain", b"Request Entity Too Large", 413),
        (200, "text/html", b"<html>login here</html>", 502),
        (200, "application/json", b"", 502),
        (200, "application/json", b"null", 502),
        (200, "application/json", b"[]", 502),
        (200, "application/json", b'{"choices": []}', 502),
        (200, "application/json", b"{" * 100_000, 502),
        (302, "text/html", b"<a href=x>moved</a>", 502),
        (600, "text/plain", b"?", 502),
    ],
)
async def test_error_pages_become_errors(tmp_path: Path, page: tuple[int, str, bytes, int], stream: bool) -> None:
    status, kind, body, told = page
    async with case(tmp_path, play(http(status, [("Content-Type", kind)], body))) as it:
        answer = await it.ask({"stream": stream})
        assert answer.status == told
        error = answer.error
        assert error["source"] == "provider"
        assert error["message"]
        assert len(error["message"]) <= 500
        assert "<" not in error["message"]
        assert answer.header("x-spangate-attempts") == "1"


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422])
async def test_what_tells_a_caller_about_its_request_goes_through(tmp_path: Path, status: int) -> None:
    told = {"message": "Bad <temperature>: 3 > 2", "type": "some_type", "param": "temperature", "code": "some_code"}
    async with case(tmp_path, play(http(status, (), json.dumps({"error": told}).encode()))) as it:
        answer = await it.ask()
        assert answer.status == status
        assert {name: answer.error[name] for name in ("type", "param", "code")} == {name: told[name] for name in ("type", "param", "code")}
        assert "Bad" in answer.error["message"]
        assert answer.error["source"] == "provider"
        assert len(it.up.requests) == 1


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refused_key_of_ours_is_not_the_callers(tmp_path: Path, status: int) -> None:
    async with case(tmp_path, play(error(status, "Incorrect API key provided: sk-CAN***9.", code="invalid_api_key"))) as it:
        answer = await it.ask()
        assert (answer.status, answer.error["code"], answer.error["type"]) == (502, "upstream_error", "server_error")
        assert "sk-" not in answer.body.decode()


@pytest.mark.fault("RL-04")
@pytest.mark.parametrize("theirs", ["7", "0", "in an hour", "-7", "soon", "9" * 30, "Thu, 01 Jan 1970 00:00:00 GMT"])
async def test_a_providers_429_stays_one(tmp_path: Path, theirs: str) -> None:
    """With when to come back, as it was said, if that makes sense."""
    wait = formatdate(time.time() + 3600, usegmt=True) if theirs == "in an hour" else theirs
    reply = error(429, "Rate limit reached", type="tokens", code="rate_limit_exceeded", headers=[("Retry-After", wait)])
    async with case(tmp_path, play(reply)) as it:
        answer = await it.ask()
        assert (answer.status, answer.header("retry-after")) == (429, wait if theirs in ("7", "0", "in an hour") else None)
        assert (answer.error["type"], answer.error["code"], answer.error["source"]) == ("tokens", "rate_limit_exceeded", "provider")


async def test_a_reset_after_the_head_is_an_error(tmp_path: Path) -> None:
    head = http(200, (), HELLO)
    async with case(tmp_path, play(head[:-20], end="rst")) as it:
        answer = await it.ask()
        assert (answer.status, answer.error["code"]) == (502, "upstream_incomplete")


async def test_a_provider_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    providers = {"up": {"kind": "openai", "base_url": f"http://127.0.0.1:{port}/v1"}, "script": {"kind": "scripted"}}
    async with case(tmp_path, providers=providers) as it:
        answer = await it.ask()
        assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
        assert str(port) not in answer.error["message"]


async def test_keys_of_two_teams_share_nothing(tmp_path: Path) -> None:
    async with case(tmp_path, lambda request: play(chat_answer(request.json()["user"]))) as it:
        both = await asyncio.gather(*(it.ask({"user": key[10:16]}, key=key) for key in (KEY, OTHER) * 20))
        told = [answer.json()["choices"][0]["message"]["content"] for answer in both]
        assert told == ["search"[:6] if i % 2 == 0 else OTHER[10:16] for i in range(40)]
