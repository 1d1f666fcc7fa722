"""proxy/providers/openai.py: the provider contract, what goes out, and its settings. Faults of the wire: test_openai_faults.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from proxy.providers.contract import CONTRACT, Check
from proxy.providers.openai_server import KEY, PLAYS, Wishes, asked, on_stage
from proxy.providers.stage import SCENARIOS, TEXT, USAGE, asking, chunks, closed, failing, text, told, whole
from pydantic import ValidationError

from spangate.call.body import Body
from spangate.call.call import Target
from spangate.call.errors import UpstreamError, UpstreamUnreachable
from spangate.call.events import Opened
from spangate.proxy.kinds import Kinds
from spangate.proxy.providers.openai import FLAVORS, OpenAI, outgoing
from spangate.proxy.providers.provider import Parts
from spangate.proxy.upstream import Upstream

from upstream import Play, Request, error, http, play, raw_head, refusing_port


def test_every_scenario_has_a_play() -> None:
    assert PLAYS.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("check", CONTRACT.values(), ids=CONTRACT)
async def test_contract(check: Check) -> None:
    await check(on_stage)


def good(request: Request) -> Play:
    return PLAYS["answers"](Wishes(request))


# ---- what goes out


async def test_the_request_is_what_the_caller_sent_to_the_model_chosen() -> None:
    async with asked(good) as (provider, up, _):
        await told(provider, asking(temperature=0.5, x_new={"a": [1, None]}))
        request = await up.request()
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    messages = [{"role": "user", "content": "Say hello"}]
    assert request.json() == {"model": "m-1", "messages": messages, "temperature": 0.5, "x_new": {"a": [1, None]}}


async def test_the_headers_are_ours() -> None:
    async with asked(good) as (provider, up, _):
        await told(provider, asking())
        request = await up.request()
    assert request.header(b"authorization") == b"Bearer " + KEY.encode()
    assert request.header(b"accept-encoding") == b"identity"
    assert request.header(b"content-type") == b"application/json"
    names = {name.lower() for name, _ in request.headers}
    assert names == {
        b"host", b"content-type", b"accept", b"accept-encoding", b"user-agent", b"authorization", b"content-length", b"traceparent"
    }  # fmt: skip


@pytest.mark.parametrize(("op", "path"), [("chat", "/chat/completions"), ("completions", "/completions"), ("embeddings", "/embeddings")])
async def test_each_operation_has_its_path(op: Any, path: str) -> None:
    async with asked(play(error(500))) as (provider, up, _):
        await failing(provider, asking(op))
        assert (await up.request()).path == f"/v1{path}"


def test_an_unchanged_body_goes_out_byte_for_byte() -> None:
    body = Body({"model": b'"m"', "x": b"1.50"}, raw=b'{ "model":"m", "x": 1.50 }')
    assert outgoing(body, "m", Target("p", "m"), asks_usage=False) is body
    renamed = outgoing(body, "m", Target("p", "other"), asks_usage=False)
    assert b"".join(renamed.pieces()) == b'{"model":"other","x":1.50}'


@pytest.mark.parametrize(
    ("flavor", "capped", "given", "sent"),
    [
        ("openai", True, {"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ("openai", True, {"max_tokens": 5}, {"max_tokens": 5}),
        *((flavor, False, {"max_completion_tokens": 5}, {"max_tokens": 5}) for flavor in ("ollama", "vllm", "llamacpp", "mistral")),
        ("ollama", True, {"max_completion_tokens": 5, "max_tokens": 9}, {"max_tokens": 5}),
        ("ollama", True, {"max_completion_tokens": 5, "max_tokens": None}, {"max_tokens": 5}),
        ("ollama", False, {"max_completion_tokens": None}, {}),
        ("compatible", False, {"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ("compatible", True, {"max_completion_tokens": 5}, {"max_tokens": 5}),
    ],
)
async def test_a_cap_goes_out_in_the_field_that_the_server_reads(
    flavor: str, capped: bool, given: dict[str, Any], sent: dict[str, Any]
) -> None:
    async with asked(good, flavor=flavor) as (provider, up, _):
        call = asking(**given)
        await told(provider, replace(call, head=replace(call.head, capped=capped)))
        request = (await up.request()).json()
    assert {name: cap for name, cap in request.items() if name.startswith("max_")} == sent


# ---- usage frames


@pytest.mark.fault("USE-05")
async def test_who_did_not_ask_for_usage_sees_none() -> None:
    async with asked(good) as (provider, up, _):
        events = await told(provider, asking(stream=True))
        assert (await up.request()).json()["stream_options"] == {"include_usage": True}
    assert closed(events).usage == USAGE
    assert not any("usage" in chunk or not chunk["choices"] for chunk in chunks(events))


@pytest.mark.fault("USE-05")
async def test_who_asked_for_usage_gets_one_chunk_without_choices() -> None:
    async with asked(good) as (provider, _, _):
        events = await told(provider, asking(stream=True, usage_frame=True))
    assert [chunk["choices"] for chunk in chunks(events) if chunk.get("usage")] == [[]]


@pytest.mark.fault("USE-06")
async def test_other_stream_options_survive() -> None:
    async with asked(good) as (provider, up, _):
        events = await told(provider, asking(stream=True, stream_options={"include_usage": False, "include_obfuscation": False}))
        assert (await up.request()).json()["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert not any("usage" in chunk for chunk in chunks(events))


@pytest.mark.fault("USE-06")
async def test_a_whole_answer_gets_no_stream_options() -> None:
    async with asked(good) as (provider, up, _):
        await told(provider, asking())
        assert "stream_options" not in (await up.request()).json()


async def test_a_server_that_knows_no_stream_options_gets_none() -> None:
    async with asked(good, flavor="mistral") as (provider, up, _):
        events = await told(provider, asking(stream=True))
        assert "stream_options" not in (await up.request()).json()
    assert (text(events), closed(events).usage) == (TEXT, None)


# ---- what comes back


async def test_what_we_do_not_know_passes_byte_for_byte() -> None:
    raw = b'{ "model":"m-1", "choices":[{"message":{"content":"a","annotations":[1.50]},"finish_reason":"stop"}], "x_new":{"y":null} }'
    async with asked(play(http(body=raw))) as (provider, _, _):
        events = await told(provider, asking())
        assert whole(events)["x_new"] == {"y": None}
    assert [event.raw for event in events if hasattr(event, "raw")] == [raw]


async def test_the_providers_own_id_and_timings_go_on_and_nothing_else_does() -> None:
    headers = [("x-request-id", "req-theirs"), ("openai-processing-ms", "12"), ("set-cookie", "a=b"), ("x-ratelimit-limit-requests", "9")]
    async with asked(play(http(200, headers, b'{"model":"m-1","choices":[{"finish_reason":"stop"}]}'))) as (provider, _, _):
        opened = (await told(provider, asking()))[0]
    assert isinstance(opened, Opened)
    assert (opened.request_id, dict(opened.headers)) == ("req-theirs", {"openai-processing-ms": "12"})


async def test_the_status_decides_whether_another_try_may_help() -> None:
    for status, retryable in ((400, False), (401, False), (404, False), (408, True), (422, False), (429, True), (500, True), (529, True)):
        async with asked(play(error(status))) as (provider, _, _):
            _, fault = await failing(provider, asking())
            assert isinstance(fault, UpstreamError)
            assert (fault.status, fault.retryable) == (status, retryable)


@pytest.mark.fault("RL-04")
async def test_when_to_come_back_goes_on_and_nonsense_does_not() -> None:
    for said, heard in (("7", "7"), ("-7", None), ("Thu, 01 Jan 1970 00:00:00 GMT", None), ("1m2s", "62"), ("soon", None)):
        async with asked(play(error(429, headers=[("retry-after", said), ("retry-after-ms", "250")]))) as (provider, _, _):
            _, fault = await failing(provider, asking())
            assert isinstance(fault, UpstreamError)
            assert fault.headers == {"retry-after-ms": "250"} | ({"retry-after": heard} if heard else {})


async def test_a_redirect_is_an_error() -> None:
    async with asked(play(raw_head(302, [("Location", "http://evil.example/"), ("Content-Length", "0")]))) as (provider, up, _):
        _, fault = await failing(provider, asking())
        assert isinstance(fault, UpstreamError)
        assert (fault.status, fault.retryable, len(up.requests)) == (302, False, 1)


async def test_nobody_is_there() -> None:
    settings = OpenAI(kind="openai", base_url=f"http://127.0.0.1:{refusing_port()}/v1")
    client = Upstream()
    provider = settings.build(Parts("gone", client))
    before, fault = await failing(provider, asking())
    assert (before, type(fault)) == ([], UpstreamUnreachable)
    assert await provider.models() == []
    await client.aclose()


# ---- its list of models


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (http(body=b'{"object":"list","data":[{"id":"a"},{"id":"b"}]}'), ["a", "b"]),
        (http(body=b'{"data":[{"id":7},{},"x",{"id":"c"}]}'), ["c"]),
        (http(body=b'{"data":5}'), []),
        (http(body=b"[]"), []),
        (http(body=b"<html>"), []),
        (error(401), []),
        (http(body=b'{"data":[')[:-3], []),
    ],
)
async def test_models(answer: bytes, names: list[str]) -> None:
    async with asked(play(answer, end="fin")) as (provider, up, _):
        assert await provider.models() == names
        assert ((await up.request()).method, up.requests[0].path) == ("GET", "/v1/models")


# ---- settings


def test_addresses_come_with_the_flavor() -> None:
    assert FLAVORS["openai"].base_url == "https://api.openai.com/v1"
    OpenAI.model_validate({"kind": "openai", "api_key": "k"})
    OpenAI.model_validate({"kind": "openai", "flavor": "ollama"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"flavor": "compatible"}, "say base_url"),
        ({}, "api_key is missing"),
        ({"api_key": "k", "base_url": "api.openai.com"}, "http"),
        ({"api_key": "k", "base_url": "http://user:secret@host/v1"}, "no user name"),
    ],
)
def test_settings_that_cannot_work(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OpenAI.model_validate({"kind": "openai", **given})


def test_a_key_is_not_shown() -> None:
    settings = OpenAI.model_validate({"kind": "openai", "api_key": KEY})
    assert KEY not in repr(settings)
    assert KEY not in json.dumps(settings.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.example.com/v1/", "https://api.example.com/v1/chat/completions"),
        ("http://[::1]:8000", "http://[::1]:8000/chat/completions"),
        (f"https://gateway.example.com/{KEY}/openai", "https://gateway.example.com/***/openai/chat/completions"),
    ],
)
async def test_telemetry_knows_its_address_and_not_its_key(base_url: str, url: str) -> None:
    client = Upstream()
    place = OpenAI.model_validate({"kind": "openai", "api_key": KEY, "base_url": base_url}).build(Parts("up", client)).place
    await client.aclose()
    assert place.urls["chat"] == url
    assert place.urls.keys() == {"chat", "completions", "embeddings"}
    assert KEY not in repr(place)


def test_it_is_a_kind_of_provider() -> None:
    assert Kinds().providers["openai"] is OpenAI
