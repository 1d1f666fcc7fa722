"""Headers and framing, through the whole gateway: what goes from client to provider and back, and what never does."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from pathlib import Path

import pytest

from case import CHAT, KEY, OTHER, PROVIDER_KEY, case, key_hash, settings
from gateway import until
from upstream import C, D, F, chat_answer, chat_completion, chunk, chunked, error, http, play, raw_head, sse, wants_stream

HELLO = chat_completion("Hello")
ALLOWED_UP = {
    b"host",
    b"content-type",
    b"content-length",
    b"accept",
    b"accept-encoding",
    b"user-agent",
    b"authorization",
    b"connection",
    b"traceparent",
}


# ---- codings of answers


@pytest.mark.fault("HDR-01")
@pytest.mark.parametrize(
    ("coding", "packed"),
    [("gzip", gzip.compress(HELLO)), ("x-gzip", gzip.compress(HELLO)), ("deflate", zlib.compress(HELLO)), ("GZIP", gzip.compress(HELLO))],
)
async def test_a_compressed_answer_arrives_plain(tmp_path: Path, coding: str, packed: bytes) -> None:
    async with case(tmp_path, play(http(200, [("Content-Encoding", coding)], packed))) as it:
        answer = await it.ask()
        assert (answer.status, answer.body) == (200, HELLO)
        assert answer.header("content-encoding") is None
        assert answer.all("content-length") == [str(len(HELLO))]
        assert it.up.requests[0].header(b"accept-encoding") == b"identity"


@pytest.mark.fault("HDR-01")
async def test_an_unknown_coding_goes_through_untouched(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, [("Content-Encoding", "br")], b"\x0b\x02\x80not really brotli\x03"))) as it:
        answer = await it.ask()
        assert (answer.status, answer.body) == (200, b"\x0b\x02\x80not really brotli\x03")
        assert answer.all("content-encoding") == ["br"]
        assert len(answer.all("content-length") + answer.all("transfer-encoding")) == 1


@pytest.mark.fault("HDR-01")
async def test_a_stream_of_unknown_coding_that_dies_is_cut_without_a_word(tmp_path: Path) -> None:
    head = raw_head(200, [("Content-Type", "text/event-stream"), ("Content-Encoding", "br"), ("Transfer-Encoding", "chunked")])
    async with case(tmp_path, play(head + chunk(b"\x8b\x02\x80"), end="rst")) as it:
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request({"stream": True}))
            heard = await line.rest()
        assert b"content-encoding: br" in heard
        assert not heard.endswith(b"0\r\n\r\n")
        assert b"error" not in heard
        assert (await it.running.kept.count(1))[0].error_code == "upstream_incomplete"


@pytest.mark.fault("HDR-01")
async def test_an_error_of_unknown_coding_is_told_in_our_words(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(400, [("Content-Encoding", "br")], bytes(range(60, 200))))) as it:
        answer = await it.ask()
        assert (answer.status, answer.error["message"]) == (400, "The provider answered with status 400.")


@pytest.mark.fault("HDR-01")
async def test_a_compressed_stream_arrives_plain(tmp_path: Path) -> None:
    events = C("Hel") + C("lo") + F("stop") + D
    head = [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")]
    async with case(tmp_path, play(http(200, head, gzip.compress(events)))) as it:
        answer = await it.ask({"stream": True})
        assert (answer.status, answer.body) == (200, events)
        assert answer.header("content-encoding") is None


@pytest.mark.fault("HDR-04")
@pytest.mark.parametrize(("status", "told"), [(429, 429), (500, 502), (400, 400)])
async def test_a_compressed_error_is_readable(tmp_path: Path, status: int, told: int) -> None:
    body = gzip.compress(json.dumps({"error": {"message": "slow down", "type": "requests", "code": None}}).encode())
    async with case(tmp_path, play(http(status, [("Content-Encoding", "gzip")], body))) as it:
        answer = await it.ask()
        words = "slow down" if told == status else "The provider answered with status 500."
        assert (answer.status, answer.error["message"]) == (told, words)
        assert answer.header("content-encoding") is None


@pytest.mark.fault("HDR-04")
@pytest.mark.parametrize("status", [200, 500])
async def test_a_coding_that_lies_is_an_error_of_the_provider(tmp_path: Path, status: int) -> None:
    async with case(tmp_path, play(http(status, [("Content-Encoding", "gzip")], HELLO))) as it:
        answer = await it.ask()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")


# ---- what passes, and what stays on its hop


@pytest.mark.fault("HDR-05")
async def test_hop_by_hop_headers_stay_on_their_hop(tmp_path: Path) -> None:
    sent = [
        ("Connection", "close, X-Team-Secret"),
        ("X-Team-Secret", "s3cret"),
        ("Proxy-Authorization", "x"),
        ("TE", "trailers"),
        ("Trailer", "X-Late"),
        ("Upgrade", "h2c"),
        ("Keep-Alive", "timeout=5"),
        ("X-Anything", "1"),
    ]
    back = [
        ("Connection", "X-Inner"),
        ("X-Inner", "1"),
        ("Keep-Alive", "timeout=7"),
        ("Proxy-Authenticate", "Basic"),
        ("Trailer", "X-Late"),
        ("Upgrade", "h2c"),
        ("X-Powered-By", "php"),
    ]
    async with case(tmp_path, play(http(200, back, HELLO))) as it:
        answer = await it.ask(headers=sent)
        assert answer.body == HELLO
        assert {name.lower() for name, _ in it.up.requests[0].headers} <= ALLOWED_UP
        assert not {name for name, _ in answer.headers} & {name.lower() for name, _ in back[1:]}
        assert answer.all("connection") == ["close"]


@pytest.mark.fault("HDR-05")
async def test_an_upgrade_is_not_taken_and_its_connection_goes_on(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it, it.line() as line:
        it.rows += 2
        for _ in range(2):
            await line.send(it.request(headers=[("Connection", "Upgrade"), ("Upgrade", "websocket")]))
            assert (await line.answer()).body == HELLO


@pytest.mark.fault("HDR-06")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_rewritten_request_has_one_right_length(tmp_path: Path, stream: bool) -> None:
    longer = {"provider": "up", "model": "a-much-longer-name-than-the-one-asked-for"}
    models = {"m": {"targets": [longer]}, "ok": {"targets": [{"provider": "script"}]}}
    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request))), models=models) as it:
        answer = await it.ask({"stream": stream, "user": "é"})
        assert answer.status == 200
        request = it.up.requests[0]
        lengths = [value for name, value in request.headers if name.lower() == b"content-length"]
        assert lengths == [str(len(request.body)).encode()]
        assert request.header(b"transfer-encoding") is None
        assert request.json()["model"] == "a-much-longer-name-than-the-one-asked-for"


@pytest.mark.fault("HDR-06")
async def test_a_wrapped_error_has_a_length_of_its_own(tmp_path: Path) -> None:
    async with case(tmp_path, play(error(400, "bad temperature", type="invalid_request_error"))) as it, it.line() as line:
        it.rows += 2
        for _ in range(2):  # on one connection: a wrong length would show in the second
            await line.send(it.request())
            answer = await line.answer()
            assert (answer.status, answer.error["message"]) == (400, "bad temperature")
            assert len(answer.all("content-length")) == 1
            assert answer.header("transfer-encoding") is None


@pytest.mark.fault("HDR-06")
async def test_an_answer_in_chunks_has_one_framing(tmp_path: Path) -> None:
    head = raw_head(200, [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")])
    async with case(tmp_path, play(head + chunked(HELLO[:10], HELLO[10:]))) as it:
        answer = await it.ask()
        assert answer.body == HELLO
        assert len(answer.all("content-length") + answer.all("transfer-encoding")) == 1


# ---- answers without a body


@pytest.mark.fault("HDR-07")
@pytest.mark.parametrize(
    "bare",
    [
        raw_head(204, [("Transfer-Encoding", "chunked")]),
        raw_head(204, [("Content-Length", "0")]),
        raw_head(304, [("Content-Length", "17"), ("ETag", '"x"')]),
        raw_head(205, [("Content-Length", "0")]),
    ],
)
async def test_a_provider_that_answers_without_a_body_is_an_error_at_once(tmp_path: Path, bare: bytes) -> None:
    async with case(tmp_path, [play(bare), play(chat_answer("Hello"))]) as it, it.line() as line:
        it.rows += 2
        await line.send(it.request())
        async with asyncio.timeout(1.0):
            answer = await line.answer()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        await line.send(it.request())
        assert (await line.answer()).body == HELLO


@pytest.mark.fault("HDR-07")
async def test_head_has_the_length_of_get_and_no_body(tmp_path: Path) -> None:
    async with case(tmp_path) as it, it.line() as line:
        await line.send(it.request(path="/v1/models", method="GET"))
        got = await line.answer("GET")
        await line.send(it.request(path="/v1/models", method="HEAD"))
        head = await line.answer("HEAD")
        await line.send(it.request(path="/v1/models", method="GET"))  # nothing of a body came after the head
        assert (await line.answer("GET")).body == got.body
        assert (head.status, head.header("content-length")) == (200, str(len(got.body)))


# ---- cookies and repeats


@pytest.mark.fault("HDR-08")
async def test_a_cookie_is_kept_by_nobody(tmp_path: Path) -> None:
    async with case(tmp_path, play(http(200, [("Set-Cookie", "sid=A; Path=/")], HELLO))) as it:
        assert (await it.ask()).header("set-cookie") is None
        assert (await it.ask(key=OTHER)).header("set-cookie") is None
        assert [request.header(b"cookie") for request in it.up.requests] == [None, None]


@pytest.mark.fault("HDR-09")
@pytest.mark.parametrize(
    ("head", "status"),
    [
        ([("Content-Type", "application/json"), ("Content-Type", "text/event-stream"), ("Content-Length", str(len(HELLO)))], 502),
        ([("Content-Length", str(len(HELLO))), ("Content-Length", "5")], 502),
        ([("Content-Length", str(len(HELLO))), ("Content-Length", str(len(HELLO)))], 502),  # equal ones too: RFC 9110, 8.6 lets us refuse
        ([("Content-Length", "5"), ("Transfer-Encoding", "chunked")], 502),
        ([("Content-Length", str(len(HELLO))), ("X-Trace", "a"), ("X-Trace", "b")], 200),
    ],
)
async def test_a_provider_that_contradicts_itself_is_not_believed(tmp_path: Path, head: list[tuple[str, str]], status: int) -> None:
    async with case(tmp_path, play(raw_head(200, head), HELLO, end="fin")) as it:
        answer = await it.ask()
        assert answer.status == status
        if status == 502:
            assert answer.error["code"] == "upstream_error"


@pytest.mark.fault("HDR-09")
async def test_repeated_headers_of_a_client(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        assert (await it.ask(headers=[("X-Trace", "a"), ("X-Trace", "b")])).status == 200
        same = await it.ask(headers=[("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}"), ("X-Api-Key", KEY)])
        assert same.status == 200
        differing = await it.ask(headers=[("Authorization", f"Bearer {KEY}"), ("X-Api-Key", OTHER)])
        assert (differing.status, differing.error["code"]) == (400, "invalid_request")
        twice = await it.ask(headers=[("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {OTHER}")])
        assert (twice.status, twice.error["param"]) == (400, "authorization")
        coded = await it.ask(headers=[("Content-Encoding", "identity"), ("Content-Encoding", "gzip")])
        assert (coded.status, coded.error["code"]) == (415, "unsupported_encoding")
        assert len(it.up.requests) == 2


@pytest.mark.fault("HDR-09")
@pytest.mark.parametrize("second", [0, 1], ids=["equal", "unequal"])
async def test_two_lengths_of_a_client_are_refused(tmp_path: Path, second: int) -> None:
    """Equal ones as well: what stands in front of us may keep the one and drop the other."""
    body = b'{"model":"m","messages":[]}'
    async with case(tmp_path) as it:
        lengths = [("Content-Length", str(len(body))), ("Content-Length", str(len(body) + second))]
        answer = await it.raw(it.request(body, headers=lengths))
        assert (answer.status, answer.error["code"], answer.header("connection")) == (400, "invalid_request", "close")
        assert not it.up.requests
        it.rows += len(it.running.kept.seen)


# ---- Expect


@pytest.mark.fault("HDR-10")
async def test_a_body_is_asked_for_when_it_is_wanted(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2_000_000}]}).encode()
    async with case(tmp_path, play(chat_answer("Hello"))) as it, it.line() as line:
        it.rows += 1
        head = it.request(b"", headers=[("Expect", "100-continue"), ("Content-Length", str(len(body)))])
        await line.send(head)
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await line.send(body)
        assert (await line.answer()).body == HELLO
        assert it.up.requests[0].body == body
        assert it.up.requests[0].header(b"expect") is None


@pytest.mark.fault("HDR-10")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Authorization", "Bearer sg-wrong")], 401),
        ([("Content-Length", str(64 << 20))], 413),
        ([("Content-Encoding", "gzip")], 415),
        ([("X-Spangate-Tags", "no tag")], 400),
    ],
)
async def test_a_body_that_is_not_wanted_is_not_asked_for(tmp_path: Path, headers: list[tuple[str, str]], status: int) -> None:
    async with case(tmp_path) as it, it.line() as line:
        it.rows += 1
        named = {name for name, _ in headers}
        length = [] if "Content-Length" in named else [("Content-Length", "2000000")]
        await line.send(it.request(b"", headers=[("Expect", "100-continue"), *length, *headers]))
        answer = await line.answer()
        assert (answer.status, answer.interim) == (status, [])
        assert answer.header("connection") == "close"
        assert answer.error["message"]


@pytest.mark.fault("HDR-10")
@pytest.mark.parametrize(
    ("rule", "code", "path"),
    [
        ({"budget": {"limit": 2, "window": "total", "weights": {"input": 0, "output": 1}}}, "budget_exceeded", "/v1/chat/completions"),
        ({"budget": {"limit": 1, "unit": "requests", "window": "day"}}, "budget_exceeded", "/v1/completions"),
        ({"rate_limit": {"requests": "1/h"}}, "rate_limit_exceeded", "/v1/embeddings"),
    ],
)
async def test_a_body_that_no_budget_has_room_for_is_not_asked_for(tmp_path: Path, rule: dict[str, object], code: str, path: str) -> None:
    """The team's first call has used it up. Another team is asked for its body as ever."""
    keys = [{"name": "ci", "hash": key_hash(KEY)}]
    other = [{"name": "ci", "hash": key_hash(OTHER)}]
    given = {"search": {"policies": [rule], "keys": keys}, "other": {"keys": other}}
    async with case(tmp_path, play(chat_answer("Hello")), teams=given) as it:
        assert (await it.ask({"max_tokens": 2})).status == 200
        async with it.line() as line:
            it.rows += 1
            await line.send(it.request(b"", path=path, headers=[("Expect", "100-continue"), ("Content-Length", "2000000")]))
            answer = await line.answer()
        assert (answer.status, answer.interim, answer.error["code"]) == (429, [], code)
        assert answer.header("connection") == "close"
        assert len(it.up.requests) == 1
        seen = (await it.running.kept.count(2))[1]
        assert (seen.outcome, seen.request_bytes, len(seen.notes)) == ("refused", 0, 1)
        it.key = OTHER
        async with it.line() as line:
            it.rows += 1
            body = b'{"model": "m", "messages": []}'
            await line.send(it.request(b"", headers=[("Expect", "100-continue"), ("Content-Length", str(len(body)))]))
            assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await line.send(body)
            assert (await line.answer()).status == 200


# ---- what is reflected


@pytest.mark.fault("HDR-12")
@pytest.mark.parametrize(
    "value", ["a%0d%0aSet-Cookie:x", "a b", "x" * 200, "caf\xe9", "\x80\xff", "req_mine-42", "a\tb", "${jndi:ldap://x}"], ids=ascii
)
async def test_a_callers_request_id_never_shapes_an_answer(tmp_path: Path, value: str) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        answer = await it.ask(headers=[("X-Request-Id", value)])
        assert answer.status == 200
        ours = answer.all("x-request-id")
        assert len(ours) == 1
        assert ours[0].startswith("req_")
        assert ours[0] != value
        assert answer.header("set-cookie") is None
        (seen,) = await it.running.kept.count(1)
        kept = value if value.isascii() and value.isprintable() and " " not in value and len(value) <= 128 else ""
        assert seen.client_request_id == kept
        assert it.up.requests[0].header(b"x-request-id") is None


@pytest.mark.fault("HDR-12")
@pytest.mark.parametrize("value", ["a\x00b", "a\rb", "a\nb: c"], ids=ascii)
async def test_a_control_character_in_a_header_is_no_request(tmp_path: Path, value: str) -> None:
    async with case(tmp_path) as it:
        data = it.request(headers=[("X-Request-Id", value)])
        answer = await it.raw(data)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.header("connection") == "close"


@pytest.mark.fault("HDR-12")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["x\r\nX-Admin: 1", "x\ny", "x\x00y", "\ud83d", "modèle", "\u2028"], ids=ascii)
async def test_a_models_name_never_shapes_a_header_or_a_line(tmp_path: Path, model: str, stream: bool) -> None:
    models = {"*": {"targets": [{"provider": "up"}]}, "ok": {"targets": [{"provider": "script"}]}}
    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request))), models=models) as it:
        answer = await it.ask({"model": model, "stream": stream})
        assert answer.status == 200
        assert answer.header("x-admin") is None
        assert answer.header("x-spangate-model") == "".join(c if " " <= c <= "~" else "?" for c in model)
        assert it.up.requests[0].json()["model"] == model
        assert all("\n" not in line for line in it.log.lines if "X-Admin" in line)


@pytest.mark.fault("HDR-12")
@pytest.mark.parametrize("value", ["caf\xe9", "\x80\xff", "a\tb", "2, 3"], ids=ascii)
@pytest.mark.parametrize(("status", "name"), [(200, "OpenAI-Version"), (429, "Retry-After"), (200, "X-Request-Id")])
async def test_a_providers_header_never_breaks_an_answer(tmp_path: Path, value: str, status: int, name: str) -> None:
    async with case(tmp_path, play(http(status, [(name, value)], HELLO if status == 200 else b""))) as it:
        assert (await it.ask()).status == status


# ---- our own


async def test_every_answer_says_what_it_is(tmp_path: Path) -> None:
    async with case(tmp_path, lambda request: play(chat_answer("Hello", stream=wants_stream(request)))) as it:
        for stream in (False, True):
            answer = await it.ask({"stream": stream}, headers=[("traceparent", PARENT)])
            assert answer.header("x-spangate-trace-id") == TRACE
            assert answer.header("x-spangate-provider") == "up"
            assert answer.header("x-spangate-model") == "m"
            assert answer.header("x-spangate-attempts") == "1"
            assert answer.header("content-type") == ("text/event-stream" if stream else "application/json")
            (seen,) = [each for each in it.running.kept.seen if each.id == answer.header("x-request-id")]
            span = f"{seen.attempts[0].span_id:016x}"
            assert answer.all("server") == ["spangate"]
            assert it.up.requests[-1].header(b"traceparent") == f"00-{TRACE}-{span}-01".encode()


@pytest.mark.parametrize(("setting", "goes_on", "points"), [("trust", True, False), ("link", False, True), ("ignore", False, False)])
async def test_a_callers_trace_is_what_the_configuration_makes_of_it(tmp_path: Path, setting: str, goes_on: bool, points: bool) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), server={"inbound_trace": setting}) as it:
        answer = await it.ask(headers=[("traceparent", PARENT)])
        assert (answer.header("x-spangate-trace-id") == TRACE) is goes_on
        (seen,) = [each for each in it.running.kept.seen if each.id == answer.header("x-request-id")]
        assert (seen.linked is not None and f"{seen.linked[0]:032x}" == TRACE) is points


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    "values",
    [[], [PARENT.replace(TRACE, "0" * 32)], [PARENT.replace("00-4", "ff-4")], [PARENT.upper()], ["x" * 9000], [PARENT, PARENT]],
)
async def test_a_bad_traceparent_begins_a_new_trace(tmp_path: Path, values: list[str]) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        answer = await it.ask(headers=[("traceparent", value) for value in values])
        trace = answer.header("x-spangate-trace-id")
        assert trace is not None
        assert len(trace) == 32
        assert trace not in {"0" * 32, TRACE}


async def test_only_our_key_and_our_headers_reach_the_provider(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        await it.ask(headers=[("X-Forwarded-For", "1.2.3.4"), ("User-Agent", "curl"), ("Traceparent", "x"), ("Baggage", "a=b")])
        request = it.up.requests[0]
        assert {name.lower() for name, _ in request.headers} <= ALLOWED_UP
        assert request.header(b"authorization") == f"Bearer {PROVIDER_KEY}".encode()
        assert request.path == CHAT


async def test_a_head_too_large_in_all_is_refused(tmp_path: Path) -> None:
    async with case(tmp_path, server={"max_header": "4KiB"}) as it:
        for headers in ([("X-A", "a" * 5000)], [(f"X-{i}", "a" * 500) for i in range(9)], [(f"X-{i}", "") for i in range(300)]):
            data = it.request(headers=headers)
            answer = await it.raw(data)
            assert (answer.status, answer.error["code"]) == (431, "headers_too_large")
            assert answer.header("connection") == "close"
        async with it.line() as line:  # a piece at a time, and without an end
            await line.send(b"POST /v1/chat/completions HTTP/1.1\r\n")
            for number in range(12):
                await line.send(b"X-%d: %b\r\n" % (number, b"a" * 400))
                await asyncio.sleep(0)
            assert (await line.answer()).status == 431


async def test_a_new_limit_holds_for_new_connections(tmp_path: Path) -> None:
    async with case(tmp_path, play(chat_answer("Hello")), server={"max_header": "4KiB"}) as it:
        app, first = it.running.app, it.running.app.config.version
        assert app.config.path is not None
        assert (await it.raw(it.request(headers=[("X-A", "a" * 6000)]))).status == 431
        app.config.path.write_text(settings(it.up.base_url, server={"max_header": "8KiB"}), encoding="utf-8")
        await until(lambda: app.config.version != first, 3)
        assert (await it.ask(headers=[("X-A", "a" * 6000)])).status == 200


async def test_a_long_path_is_refused(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        answer = await it.raw(it.request(path="/v1/" + "a" * 40_000, method="GET"), method="GET")
        assert (answer.status, answer.error["code"]) == (431, "headers_too_large")


async def test_a_chunked_request_is_taken_and_goes_out_with_a_length(tmp_path: Path) -> None:
    body = json.dumps({"model": "m", "messages": []}).encode()
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        sent = chunked(*(body[i : i + 1] for i in range(len(body))))
        assert (await it.ask(sent, headers=[("Transfer-Encoding", "chunked")])).status == 200
        assert it.up.requests[0].body == body
        assert it.up.requests[0].header(b"content-length") == str(len(body)).encode()


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with case(tmp_path) as it, it.line() as line:
        it.rows += 5
        asked = [{"model": "ok", "messages": [{"role": "user", "content": f"n{i}"}]} for i in range(5)]
        await line.send(b"".join(it.request(each) for each in asked))
        told = [(await line.answer()).json()["choices"][0]["message"]["content"] for _ in asked]
        assert told == ["n0", "n1", "n2", "n3", "n4"]


async def test_a_stream_ends_its_chunks_and_keeps_the_connection(tmp_path: Path) -> None:
    async with case(tmp_path, play(sse(C("Hello"), F("stop"), D))) as it, it.line() as line:
        it.rows += 2
        for _ in range(2):
            await line.send(it.request({"stream": True}))
            answer = await line.answer()
            assert answer.body.endswith(D)
            assert answer.header("transfer-encoding") == "chunked"
