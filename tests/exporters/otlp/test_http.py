"""exporters/otlp/http.py: a real collector at its best and at its worst."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from spangate.exporters.otlp.config import Target
from spangate.exporters.otlp.encoding import GATEWAY, Encoder, frame
from spangate.exporters.otlp.http import HttpSender, Result
from spangate.exporters.record import Resource, Span

from otlp_sink import Sink
from upstream import refusing_port, self_signed


def body() -> bytes:
    encoder = Encoder()
    start = encoder.resource(Resource({"service.name": "test"})), encoder.scope(GATEWAY)
    return frame(*start, [encoder.span(Span(1, 2, "s", 2, 3, 4))])


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


opened: list[HttpSender] = []


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def to(url: str, **target: Any) -> HttpSender:
    opened.append(HttpSender(Target(url, **{"timeout": 3.0} | target)))
    return opened[-1]


def sender(sink: Sink, **target: Any) -> HttpSender:
    return to(sink.endpoint + "/v1/traces", **target)


def test_it_is_sent(sink: Sink) -> None:
    sending = sender(sink, headers={"x-team": "a"})
    assert [sending.send(body()) for _ in range(3)] == [Result()] * 3
    assert sink.connections == 1, "the connection is kept"
    headers = sink.requests[0].headers
    assert (headers["content-type"], headers["x-team"]) == ("application/x-protobuf", "a")
    assert headers["user-agent"].startswith("spangate/")
    assert sink.resource == {"service.name": "test"}


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed(sink: Sink, coding: Any) -> None:
    assert sender(sink, compression=coding).send(body() * 100) == Result()
    assert sink.requests[0].headers["content-encoding"] == coding
    assert sink.requests[0].size < len(body() * 100)
    assert len(sink.spans) == 100


def test_a_busy_collector_says_when_to_come_back(sink: Sink) -> None:
    sink.mode, sink.busy_for, sink.retry_after = "busy", 2, "0.1"
    began = time.monotonic()
    assert sender(sink).send(body()) == Result()
    assert 0.2 <= time.monotonic() - began < 1.5
    assert len(sink.requests) == 3


def test_a_busy_collector_that_never_has_time(sink: Sink) -> None:
    sink.mode, sink.retry_after = "busy", None
    began = time.monotonic()
    assert sender(sink, timeout=0.5).send(body()) == Result("unavailable", "status 503")
    assert time.monotonic() - began < 0.5, "there was no time for the first wait"
    assert len(sink.requests) == 1


def test_what_a_collector_refuses_is_not_sent_again(sink: Sink) -> None:
    sink.mode = "refusing"
    assert sender(sink).send(body()) == Result("rejected", "status 400")
    assert len(sink.requests) == 1


def test_what_it_takes_in_part(sink: Sink) -> None:
    sink.mode, sink.rejects = "partial", 7
    assert sender(sink).send(body()) == Result(rejected=7)


def test_the_head_of_the_last_answer_is_kept(sink: Sink) -> None:
    sending = sender(sink)
    assert sending.heard == {}
    sending.send(body())
    assert sending.heard["content-type"] == "application/x-protobuf"
    assert "date" in sending.heard


def test_a_mute_collector_costs_the_time_limit(sink: Sink) -> None:
    sink.mode = "mute"
    began = time.monotonic()
    assert sender(sink, timeout=0.3).send(body()) == Result("timeout", "no answer in time")
    assert 0.25 < time.monotonic() - began < 1.0


def test_a_dead_collector_is_tried_again() -> None:
    began = time.monotonic()
    sending = to(f"http://127.0.0.1:{refusing_port()}/v1/traces", timeout=1.5)
    assert sending.send(body()) == Result("unreachable", "ConnectionRefusedError")
    assert 0.7 < time.monotonic() - began < 1.5


def test_a_name_that_nobody_knows() -> None:
    assert to("http://collector.invalid:4318", timeout=0.1).send(body()).reason == "unreachable"


def test_closing_ends_the_wait() -> None:
    sending = to(f"http://127.0.0.1:{refusing_port()}/v1/traces", timeout=30)
    threading.Timer(0.1, sending.close).start()
    began = time.monotonic()
    assert sending.send(body()).reason == "unreachable"
    assert time.monotonic() - began < 1.0


def test_closing_breaks_off_what_is_under_way(sink: Sink) -> None:
    sink.mode = "mute"
    sending = sender(sink, timeout=30)
    threading.Timer(0.1, sending.close).start()
    began = time.monotonic()
    assert sending.send(body()).reason == "unreachable"
    assert time.monotonic() - began < 1.0
    assert sending.send(body()) == Result("failed", "closed")


def test_a_kept_connection_that_was_closed_is_opened_again(sink: Sink) -> None:
    sending = sender(sink)
    assert sending.send(body()) == Result()
    assert sending._connection is not None
    sending._connection.sock.shutdown(socket.SHUT_RDWR)
    assert sending.send(body()) == Result()
    assert sink.connections == 2


def test_a_header_that_is_none() -> None:
    headers = {"a": "b\r\nc: d"}
    assert to(f"http://127.0.0.1:{refusing_port()}", headers=headers, timeout=0.1).send(body()).reason == "unreachable"


def answering(answer: bytes, every: float = 0.0) -> Iterator[str]:
    """The address of somebody who answers whatever they get with this, a byte `every` so many seconds."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        got = b""
        while b"spangate.gateway" not in got:  # head and body come in two
            got += connection.recv(1 << 16)
        with suppress(OSError):  # who asked has left
            for piece in [answer] if not every else [answer[at : at + 1] for at in range(len(answer))]:
                connection.sendall(piece)
                time.sleep(every)  # part of the scenario
        connection.close()
        listener.close()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\xff\xff\xff", Result()),
        (b"HTTP/1.1 200 OK\r\n\r\n\x0a\x02\x08\x05", Result(rejected=5)),
        (b"HTTP/1.1 200 OK\r\n\r\n\x0a\x0b\x08" + b"\xff" * 9 + b"\x01", Result()),
        (b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 0\r\n\r\n", Result("rejected", "status 302")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", Result()),
        (b"SSH-2.0-OpenSSH\r\n", Result("unreachable", "BadStatusLine")),
        (b"", Result("unreachable", "RemoteDisconnected")),
    ],
)
def test_strange_answers(answer: bytes, result: Result) -> None:
    for url in answering(answer):
        assert to(url, timeout=0.2).send(body()) == result


@pytest.mark.fault("TEL-01")
@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 500, b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n" + b"a" * 500],
    ids=["head", "body"],
)
def test_a_collector_that_drips_costs_the_time_limit_too(answer: bytes) -> None:
    for url in answering(answer, every=0.01):
        began = time.monotonic()
        assert to(url, timeout=0.8).send(body()) == Result("timeout", "no answer in time")
        assert 0.75 < time.monotonic() - began < 1.5


# ---- TLS


def test_tls_with_the_collectors_certificate(tmp_path: Any) -> None:
    made = self_signed()
    certificate = tmp_path / "ca.pem"
    certificate.write_text(made.pem)
    with Sink() as sink:
        sink._server.socket = made.server.wrap_socket(sink._server.socket, server_side=True)
        url = sink.endpoint.replace("http://127.0.0.1", "https://localhost") + "/v1/traces"
        assert to(url, certificate=str(certificate), timeout=3).send(body()) == Result()
        assert to(url, timeout=0.3).send(body()) == Result("unreachable", "SSLCertVerificationError")
    assert to(url, certificate=str(tmp_path / "none.pem"), timeout=0.1).send(body()).words == "FileNotFoundError"
