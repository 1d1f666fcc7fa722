"""How often a call goes to the shared counters before it is sent, and that nobody waits for what is settled there.

One call after the other, to a provider of our own that knows when it was asked. From that moment on the server stands still until the
answer is there: whoever wanted anything of it before they answer would be late.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from cases import CASES
from counters import Control, Step
from processes import Unusable
from proxies import Proxy

CALLS, WARM = 40, 3
STILL = 0.3  # seconds that the server stands still at the most; the gateway would give it up after half a second
PATIENCE = 10.0  # seconds
SETTLE = "settle"
OF_NO_CALL = frozenset({"beat", "ping", "hgetall", "hset", "hdel"})  # signs of life, and a look at the kill switches
ANSWER = {
    "id": "chatcmpl-trips",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "bench-model-2026",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Two bulges."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 31, "completion_tokens": 3, "total_tokens": 34},
}


@dataclass(frozen=True)
class Trips:
    """Of so many calls: how often one went to the server `before` its provider was asked, at the most; and how many `waited` for the
    server after that, before they were answered."""

    calls: int
    before: int
    waited: int


@contextmanager
def provider(asked: Callable[[], None]) -> Iterator[int]:
    """A model server that does `asked` between a request and its answer; its port."""

    class Answering(Quiet):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked()
            body = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Answering) as port:
        yield port


class Quiet(BaseHTTPRequestHandler):
    """One that keeps connections, and whose log nobody reads."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def served(by: type[Quiet]) -> Iterator[int]:
    """A server of that kind, each connection in a thread of its own; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), by)
    serving = Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class Moments:
    """When the provider was asked. From then on the server runs no script of anybody's, for STILL seconds or until `go_on`."""

    def __init__(self, server: Control) -> None:
        self._server = server
        self.last = 0.0

    def asked(self) -> None:
        self.last = time.time()
        self._server.say("CLIENT", "PAUSE", str(round(STILL * 1000)), "WRITE")

    def go_on(self) -> None:
        self._server.say("CLIENT", "UNPAUSE")


def count(proxy: Proxy, server: Control, moments: Moments, calls: int = CALLS, *, patience: float = PATIENCE) -> Trips:
    """Ask, and see what that took; each call is to be settled within `patience` seconds.

    Raises:
        Unusable: a call wasn't answered, or is never settled.
    """
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=PATIENCE)
    try:
        for _ in range(WARM):
            _ask(proxy, connection, server, moments, patience)
        asked = [_ask(proxy, connection, server, moments, patience) for _ in range(calls)]
    finally:
        connection.close()
    before = [_between(server.steps, began, sent) for began, sent, _ in asked]
    return Trips(calls, max(before), sum(answered - sent >= STILL for _, sent, answered in asked))


def _ask(proxy: Proxy, connection: HTTPConnection, server: Control, moments: Moments, patience: float) -> tuple[float, float, float]:
    """One call, until it is settled: when it began, when the provider was asked, when it was answered."""
    settled = _settled(server.steps)
    began = time.time()
    headers = {"authorization": f"Bearer {proxy.key}", "content-type": "application/json"}
    connection.request("POST", CASES[0].path, CASES[0].body(), headers)
    answer = connection.getresponse()
    answer.read()
    answered = time.time()
    moments.go_on()
    if answer.status != 200 or moments.last < began:
        raise Unusable(f"{proxy.name}: status {answer.status}; its last words:\n{proxy.process.last_words() if proxy.process else ''}")
    if not server.hears(lambda: _settled(server.steps) > settled, patience):
        raise Unusable(f"{proxy.name}: a call that ended is not settled")
    return began, moments.last, answered


def _settled(steps: Sequence[Step]) -> int:
    return sum(step.name == SETTLE for step in steps)


def _between(steps: Sequence[Step], begin: float, end: float) -> int:
    """What the gateway asked in that time, without what it asks whether or not there are calls."""
    return sum(begin <= step.at < end for step in steps if step.name not in OF_NO_CALL)
