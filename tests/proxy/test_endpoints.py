"""proxy/endpoints.py: which path is what, and that every call of a model operation is ended and told of exactly once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import pytest
from pydantic import BaseModel

from spangate.call.call import Call
from spangate.call.clock import SYSTEM
from spangate.call.events import Closed, Delta, Event, Opened
from spangate.call.seen import Place
from spangate.proxy import config
from spangate.proxy.endpoints import Endpoints, draining
from spangate.proxy.gateway import Gateway
from spangate.proxy.kinds import Kinds
from spangate.proxy.providers.provider import Parts, Provider
from spangate.proxy.upstream import Sender

from case import Case, case, logged
from exchange import Paper
from gateway import Kept, until
from upstream import chat_answer, play


class Odd(BaseModel):
    """A provider with a defect, or one that waits."""

    kind: Literal["odd"]
    name: str = "odd"
    place: ClassVar[Place] = Place("odd")

    def build(self, parts: Parts) -> Provider:
        return self

    async def models(self) -> list[str]:
        raise RuntimeError("a defect")

    async def answer(self, call: Call) -> AsyncIterator[Event]:
        model = call.model
        if model == "early":
            raise RuntimeError("a defect, with sg-secret in it")
        yield Opened(stream=call.head.stream, content_type="text/event-stream" if call.head.stream else "application/json")
        yield Delta(b"data: 1\n\n", sse=call.head.stream)
        yield Delta(b"data: 2\n\n", sse=call.head.stream)
        if model == "late":
            raise RuntimeError("a defect")
        if model == "slow":
            await asyncio.sleep(30)
        yield Closed()


class House:
    """Endpoints around that provider, and what they record."""

    def __init__(self) -> None:
        kinds = Kinds(providers={"odd": Odd})
        yaml = b"providers: {odd: {kind: odd}}\nmodels: {'*': {targets: [{provider: odd}]}}\n"
        self.kept = Kept()
        self.config = config.parse(yaml, "spangate.yaml", environ={}, kinds=kinds)
        self.endpoints = Endpoints(Gateway(self.config, cast("Sender", None)), self.kept, SYSTEM)

    async def ask(self, paper: Paper) -> Paper:
        await self.endpoints(paper)
        assert not self.endpoints.running
        assert self.endpoints.house.calls == self.endpoints.house.body_bytes == 0
        return paper

    @property
    def told(self) -> list[tuple[str | None, int, str]]:
        return [(seen.outcome, seen.status, seen.error_code) for seen in self.kept.seen]


def chat(model: str, *, stream: bool = True) -> Paper:
    return Paper(json.dumps({"model": model, "stream": stream, "messages": []}).encode())


def error(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data.removeprefix(b"data: "))["error"]
    return found


# ---- one call


async def test_a_good_call() -> None:
    house = House()
    paper = await house.ask(chat("fine"))
    assert (paper.status, paper.body, paper.ended) == (200, b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n", True)
    assert house.told == [("completed", 200, "")]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_defect_before_the_answer_is_a_500_without_its_words(stream: bool) -> None:
    house = House()
    async with logged() as log:
        paper = await house.ask(chat("early", stream=stream))
    assert (paper.status, error(paper.body)["code"]) == (500, "internal_error")
    assert b"secret" not in paper.body
    assert error(paper.body)["request_id"] == house.kept.seen[0].id
    assert len(log.unhandled) == 1
    assert house.kept.seen[0].id in log.unhandled[0]
    assert house.told == [("failed", 500, "internal_error")]


async def test_a_defect_in_a_stream_is_its_last_event() -> None:
    house = House()
    async with logged():
        paper = await house.ask(chat("late"))
    assert paper.status == 200
    assert error(paper.written[-1])["code"] == "internal_error"
    assert paper.ended
    assert house.told == [("failed", 200, "internal_error")]


async def test_a_defect_in_a_whole_answer_cuts_it() -> None:
    house = House()
    async with logged():
        paper = await house.ask(chat("late", stream=False))
    assert (paper.cut, paper.ended) == (True, False)
    assert house.told == [("failed", 200, "internal_error")]


async def test_a_client_that_left() -> None:
    house, paper = House(), chat("fine")
    paper.gone = True
    with pytest.raises(ConnectionError):
        await house.ask(paper)
    assert house.told == [("aborted", 499, "")]


# ---- calls that are stopped


async def stopped(house: House, paper: Paper, *, cancelled: bool = False) -> None:
    task = asyncio.create_task(house.ask(paper))
    await until(lambda: len(house.endpoints.running) == 1 and (paper.started or bool(paper.written)))
    (running,) = house.endpoints.running
    running.stop(draining())
    running.stop(draining())
    if cancelled:
        task.cancel()
    await task


async def test_a_stream_that_is_stopped_is_told_why() -> None:
    house, paper = House(), chat("slow")
    await stopped(house, paper)
    assert error(paper.written[-1])["code"] == "draining"
    assert paper.ended
    assert house.told == [("failed", 200, "draining")]


async def test_a_whole_answer_that_is_stopped_once_it_began_is_cut() -> None:
    house, paper = House(), chat("slow", stream=False)
    await stopped(house, paper)
    assert (paper.cut, paper.ended) == (True, False)
    assert house.told == [("failed", 200, "draining")]


async def test_one_that_is_stopped_as_its_client_leaves_is_the_clients() -> None:
    house, paper = House(), chat("slow")
    with pytest.raises(asyncio.CancelledError):
        await stopped(house, paper, cancelled=True)
    assert house.told == [("aborted", 499, "")]


async def test_one_that_is_stopped_while_its_client_takes_the_end_stays_completed() -> None:
    house, paper = House(), chat("fine")
    paper.taken.clear()
    task = asyncio.create_task(house.ask(paper))
    await until(lambda: bool(house.kept.seen))
    next(iter(house.endpoints.running)).stop(draining())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert paper.body.endswith(b"data: [DONE]\n\n")
    assert house.told == [("completed", 200, "")]


async def test_while_draining_a_call_is_refused_before_its_key_is_looked_at() -> None:
    house = House()
    house.endpoints.draining = True
    paper = await house.ask(chat("fine"))
    assert (paper.status, error(paper.body)["code"], paper.sent["retry-after"]) == (503, "draining", "1")
    assert house.told == [("refused", 503, "draining")]
    ready = await house.ask(Paper(path="/readyz", method="GET"))
    assert (ready.status, json.loads(ready.body)["status"]) == (503, "draining")
    assert (await house.ask(Paper(path="/healthz", method="GET"))).status == 200


async def test_a_full_house() -> None:
    house = House()
    house.endpoints.house.calls = 1000
    paper = chat("fine")
    await house.endpoints(paper)
    assert (paper.status, error(paper.body)["code"], paper.sent["retry-after"]) == (503, "overloaded", "1")
    assert house.endpoints.house.calls == 1000
    assert house.told == [("refused", 503, "overloaded")]


# ---- paths


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "words"),
    [
        ("GET", "/v1/chat/completions", 405, "method_not_allowed", "takes POST"),
        ("DELETE", "/v1/models", 405, "method_not_allowed", "takes GET or HEAD"),
        ("GET", "/v1/chat/completion", 404, "not_found", "Did you mean /v1/chat/completions?"),
        ("GET", "/nothing/of/the/kind", 404, "not_found", "There is nothing at /nothing/of/the/kind. There is: /v1/chat/completions, "),
        ("GET", "/metrics", 404, "not_found", "give spangate.yaml a section `telemetry`"),
        ("POST", "/v1/moderations", 404, "not_found", "There is nothing at /v1/moderations. There is: /v1/chat/completions, "),
        ("POST", "/chat/completions", 404, "not_found", "Did you mean /v1/chat/completions?"),
        ("POST", "/v1/chat/completions/", 404, "not_found", "Did you mean"),
        ("GET", "/docs/errors/none", 404, "not_found", "no such page"),
        ("OPTIONS", "/v1/models", 405, "method_not_allowed", "takes GET or HEAD"),
    ],
)
async def test_paths_that_are_none(method: str, path: str, status: int, code: str, words: str) -> None:
    house = House()
    paper = await house.ask(Paper(path=path, method=method))
    assert (paper.status, error(paper.body)["code"]) == (status, code)
    assert words in error(paper.body)["message"]
    assert ("allow" in paper.sent) == (status == 405)
    assert house.told == []


@pytest.mark.parametrize("path", ["/healthz", "/v1/models/x", "/nothing", "/docs/errors/"])
async def test_a_visit_names_itself_and_is_not_told(path: str) -> None:
    house = House()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    first, second = [await house.ask(Paper(path=path, method="PUT", traceparent=f"00-{trace}-00f067aa0ba902b7-01")) for _ in range(2)]
    for paper in (first, second):
        assert (paper.extra["x-request-id"], paper.extra["x-spangate-trace-id"]) == (error(paper.body)["request_id"], trace)
        assert paper.sent["x-spangate-attempts"] == "0"
    assert first.extra["x-request-id"] != second.extra["x-request-id"]
    assert house.told == []


@pytest.mark.parametrize("address", ["127.0.0.1", ""])
async def test_an_error_tells_where_its_page_is(address: str) -> None:
    """By the socket beside the database there is no such place: nobody opens pages there."""
    house, paper = House(), Paper(path="/nothing", method="GET", Host="gateway:8484")
    paper.client_address = address
    await house.ask(paper)
    assert error(paper.body)["doc_url"] == ("http://gateway:8484" if address else "") + "/docs/errors/not_found"


async def test_a_defect_of_a_page_is_a_500() -> None:
    house = House()
    async with logged() as log:
        paper = await house.ask(Paper(path="/v1/models", method="GET"))
    assert (paper.status, error(paper.body)["code"]) == (500, "internal_error")
    assert len(log.unhandled) == 1


async def test_a_call_keeps_the_configuration_that_it_began_with() -> None:
    house, paper = House(), chat("slow")
    task = asyncio.create_task(house.ask(paper))
    await until(lambda: bool(house.endpoints.running))
    house.endpoints.gateway = House().endpoints.gateway
    next(iter(house.endpoints.running)).stop(draining())
    await task
    assert house.kept.seen[0].config_version == house.config.version


# ---- through a network


async def asked(it: Case, **headers: str) -> None:
    answer = await it.ask(headers=list(headers.items()))
    assert answer.status == 200


async def test_what_a_call_is_called(tmp_path: Path) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    async with case(tmp_path, play(chat_answer("Hello"))) as it:
        await asked(it, **{"x-request-id": "mine", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        (seen,) = it.running.kept.seen
        assert (seen.client_request_id, seen.trace_hex, seen.team, seen.key) == ("mine", trace, "search", "ci")
        assert (seen.method, seen.path, seen.op, seen.model, seen.stream) == ("POST", "/v1/chat/completions", "chat", "m", False)
