"""The official OpenAI client through the gateway, unchanged but for URL and key: the same content to the byte, and its usual errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from spangate.call.clock import Clock

from case import CHAT, KEY, OTHER, PROVIDER_KEY, Case, Stumbling, case, key_hash
from upstream import C, D, error, http, play, sse
from vendor import provider, whole

TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
HI: Any = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def clients(it: Case, retries: int = 0) -> AsyncIterator[tuple[AsyncOpenAI, AsyncOpenAI]]:
    """A client of the provider itself, and one of the gateway."""
    direct = AsyncOpenAI(base_url=it.up.base_url, api_key=PROVIDER_KEY, max_retries=retries)
    through = AsyncOpenAI(base_url=it.running.url, api_key=KEY, max_retries=retries)
    async with direct, through:
        yield direct, through


WISHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "tools": {"tools": TOOLS, "tool_choice": "auto"},
    "format": {"response_format": {"type": "json_object"}},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "more": {"reasoning_effort": "low", "service_tier": "flex", "extra_body": {"x_new": {"a": [1, 1.50]}}, "user": "é\u2028"},
    "limits": {"max_tokens": 10, "max_completion_tokens": 20},
}


@pytest.mark.fault("CLI-02")
@pytest.mark.fault("CLI-06")
@pytest.mark.parametrize("wish", WISHES)
async def test_a_whole_answer_is_the_same_to_the_byte(tmp_path: Path, wish: str) -> None:
    async with case(tmp_path, provider) as it, clients(it) as both:
        it.rows += 1
        answers = [await client.chat.completions.with_raw_response.create(model="m", messages=HI, **WISHES[wish]) for client in both]
        assert answers[0].content == answers[1].content
        assert answers[0].parse() == answers[1].parse()
        assert it.up.requests[0].body == it.up.requests[1].body


@pytest.mark.fault("CLI-02")
@pytest.mark.fault("CLI-06")
@pytest.mark.parametrize("asks_usage", [False, True])
@pytest.mark.parametrize("wish", WISHES)
async def test_a_stream_is_the_same_to_the_byte(tmp_path: Path, wish: str, asks_usage: bool) -> None:
    wanted = WISHES[wish] | ({"stream_options": {"include_usage": True}} if asks_usage else {})
    async with case(tmp_path, provider) as it, clients(it) as both:
        it.rows += 2
        raw, chunks = [], []
        for client in both:
            request = client.chat.completions.with_streaming_response.create(model="m", messages=HI, stream=True, **wanted)
            async with request as answer:
                raw.append(b"".join([piece async for piece in answer.iter_bytes()]))
            stream = await client.chat.completions.create(model="m", messages=HI, stream=True, **wanted)
            chunks.append([chunk.model_dump() async for chunk in stream])
        assert raw[0] == raw[1]
        assert chunks[0] == chunks[1]
        sent = [request.json() for request in it.up.requests]
        assert sent[2] == sent[0] | {"stream_options": {"include_usage": True}}
        assert [seen.usage and (seen.usage.input, seen.usage.output) for seen in it.running.kept.seen] == [(7, 2), (7, 2)]


def synchronous(base_url: str, key: str) -> list[Any]:
    """What a program without asyncio does, in a thread."""
    with OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        whole = client.chat.completions.create(model="m", messages=HI)
        with client.chat.completions.create(model="m", messages=HI, stream=True) as stream:
            chunks = [chunk.model_dump() for chunk in stream]
        calls = client.chat.completions.create(model="m", messages=HI, tools=TOOLS).choices[0].message.tool_calls
        parsed = client.chat.completions.parse(model="m", messages=HI, response_format=Weather).choices[0].message.parsed
        packed = client.embeddings.create(model="m", input="x").data[0].embedding
        floats = client.embeddings.create(model="m", input=["x"], encoding_format="float").data[0].embedding
        text = client.completions.create(model="m", prompt="x").choices[0].text
        return [whole.model_dump(), chunks, calls, parsed, packed, floats, text]


class Weather(BaseModel):
    city: str
    degrees: int


async def test_the_synchronous_client(tmp_path: Path) -> None:
    async with case(tmp_path, provider) as it:
        it.rows += 7
        through = await asyncio.to_thread(synchronous, it.running.url, KEY)
        direct = await asyncio.to_thread(synchronous, it.up.base_url, PROVIDER_KEY)
        assert through == direct
        assert through[3] == Weather(city="Rome", degrees=21)
        assert through[4] == through[5] == [1.0, 2.0, 3.0]


async def test_the_asynchronous_client(tmp_path: Path) -> None:
    async with case(tmp_path, provider) as it, clients(it) as (_, client):
        it.rows += 5
        parsed = await client.chat.completions.parse(model="m", messages=HI, response_format=Weather)
        assert parsed.choices[0].message.parsed == Weather(city="Rome", degrees=21)
        async with client.chat.completions.stream(model="m", messages=HI, tools=TOOLS) as stream:
            final = await stream.get_final_completion()
        calls = final.choices[0].message.tool_calls
        assert calls is not None
        assert [(call.function.name, call.function.arguments) for call in calls] == [("weather", '{"city": "Rome"}')]
        for form, sent in (("base64", "AACAPwAAAEAAAEBA"), ("float", [1.0, 2.0, 3.0])):
            raw = await client.embeddings.with_raw_response.create(model="m", input="x", encoding_format=form)  # type: ignore[arg-type]
            assert raw.http_response.json()["data"][0]["embedding"] == sent
        assert (await client.embeddings.create(model="m", input="x")).data[0].embedding == [1.0, 2.0, 3.0]


@pytest.mark.fault("CLI-01")
@pytest.mark.parametrize(
    "caps", [{"max_tokens": 10, "max_completion_tokens": 20}, {"max_tokens": 10}, {"max_completion_tokens": 20}, {"max_tokens": None}, {}]
)
async def test_both_limits_go_through_as_they_came(tmp_path: Path, caps: dict[str, Any]) -> None:
    async with case(tmp_path, provider) as it:
        assert (await it.ask(caps)).status == 200
        sent = it.up.requests[0].json()
        assert {name: value for name, value in sent.items() if name.startswith("max_")} == caps


@pytest.mark.fault("CLI-05")
async def test_unknown_and_forbidden_models_look_alike(tmp_path: Path) -> None:
    names = ("fast", "fast-mini", "secret", "ok")
    models = {name: {"targets": [{"provider": "script" if name == "ok" else "up"}]} for name in names}
    teams = {
        "search": {"models": ["f*", "ok"], "keys": [{"name": "ci", "hash": key_hash(KEY)}]},
        "other": {"models": ["secret"], "keys": [{"name": "ci", "hash": key_hash(OTHER)}]},
    }
    async with case(tmp_path, provider, models=models, teams=teams) as it, clients(it) as (_, client):
        assert [model.id async for model in client.models.list()] == ["fast", "fast-mini", "ok"]
        for name in ("fast", "fast-mini", "ok"):
            model = await client.models.retrieve(name)
            assert (model.id, model.object) == (name, "model")
        other = client.with_options(api_key=OTHER)
        assert [model.id async for model in other.models.list()] == ["secret"]
        told = []
        for name in ("secret", "sacred"):
            it.rows += 1
            with pytest.raises(openai.NotFoundError) as refused:
                await client.chat.completions.create(model=name, messages=HI)
            told.append(json.dumps(refused.value.body).replace(name, "NAME"))
        first, second = (json.loads(each) | {"request_id": "", "trace_id": ""} for each in told)
        assert first == second
        assert first["code"] == "model_not_found"
        assert "fast" in first["message"]
        it.rows += 1
        with pytest.raises(openai.NotFoundError, match="Did you mean 'fast'"):
            await client.chat.completions.create(model="fest", messages=HI)


@pytest.mark.parametrize("name", ["org/model", "model:v1", "a%2Fb", "a+b"])
async def test_a_model_is_retrieved_by_any_name(tmp_path: Path, name: str) -> None:
    models = {each: {"targets": [{"provider": "script"}]} for each in (name, "ok")}
    async with case(tmp_path, models=models) as it, clients(it) as (_, client):
        model = await client.models.retrieve(name)
        assert (model.id, model.object, model.owned_by) == (name, "model", "script")
        with pytest.raises(openai.NotFoundError) as refused:
            await client.models.retrieve(f"{name}/none")
        assert refused.value.code == "model_not_found"


# ---- errors


Asking = Callable[[AsyncOpenAI, Case], Awaitable[Any]]


async def chat(client: AsyncOpenAI, it: Case, **more: Any) -> Any:
    return await client.chat.completions.create(**({"model": "m", "messages": HI} | more))


async def overloaded(client: AsyncOpenAI, it: Case) -> Any:
    first = asyncio.ensure_future(it.ask())
    await it.up.request()
    try:
        return await chat(client, it)
    finally:
        it.up.requests[0].connection.hang_up()
        await first


FORBIDDEN: Any = [{"type": "function", "function": {"name": "rm_all", "parameters": {"type": "object", "properties": {}}}}]
RULES = [
    {"access": {"tools": {"deny": ["rm_*"]}, "operations": ["chat", "completions"]}},
    {"budget": {"name": "b", "limit": 0, "window": "total", "models": ["spent"]}},
]

ERRORS: dict[str, tuple[Asking, Any, type[openai.APIStatusError], dict[str, Any]]] = {
    "400": (
        lambda client, it: chat(client, it, messages="hi"),
        (),
        openai.BadRequestError,
        {"status_code": 400, "code": "invalid_request", "type": "invalid_request_error", "param": "messages"},
    ),
    "400 of the provider": (
        chat,
        play(http(400, (), b'{"error":{"message":"too hot","type":"t","param":"temperature","code":"c"}}')),
        openai.BadRequestError,
        {"status_code": 400, "code": "c", "type": "t", "param": "temperature"},
    ),
    "401": (
        lambda client, it: chat(client.with_options(api_key="sg-wrong"), it),
        (),
        openai.AuthenticationError,
        {"status_code": 401, "code": "invalid_api_key", "type": "authentication_error"},
    ),
    "403": (
        lambda client, it: chat(client, it, tools=FORBIDDEN),
        (),
        openai.PermissionDeniedError,
        {"status_code": 403, "code": "tool_not_allowed", "type": "permission_error", "param": "tools"},
    ),
    "403 of another operation": (
        lambda client, it: client.embeddings.create(model="m", input="x"),
        (),
        openai.PermissionDeniedError,
        {"status_code": 403, "code": "operation_not_allowed", "type": "permission_error", "param": None},
    ),
    "404": (
        lambda client, it: chat(client, it, model="nobody"),
        (),
        openai.NotFoundError,
        {"status_code": 404, "code": "model_not_found", "type": "invalid_request_error", "param": "model"},
    ),
    "409": (chat, play(error(409, "conflict", type="c")), openai.ConflictError, {"status_code": 409, "type": "c"}),
    "413": (
        lambda client, it: chat(client, it, user="x" * 200_000),
        (),
        openai.APIStatusError,
        {"status_code": 413, "code": "request_too_large", "type": "invalid_request_error"},
    ),
    "422": (chat, play(error(422, "odd", type="u")), openai.UnprocessableEntityError, {"status_code": 422, "type": "u"}),
    "429": (
        chat,
        play(error(429, "slow down", type="requests", code="rate_limit_exceeded", headers=[("Retry-After", "3")])),
        openai.RateLimitError,
        {"status_code": 429, "code": "rate_limit_exceeded", "type": "requests"},
    ),
    "429 of a budget": (
        lambda client, it: chat(client.with_options(max_retries=2), it, model="spent"),
        (),
        openai.RateLimitError,
        {"status_code": 429, "code": "budget_exceeded", "type": "insufficient_quota"},
    ),
    "502": (
        chat,
        play(error(500, "oh")),
        openai.InternalServerError,
        {"status_code": 502, "code": "upstream_error", "type": "server_error"},
    ),
    "503": (
        overloaded,
        play(asyncio.Event()),
        openai.InternalServerError,
        {"status_code": 503, "code": "overloaded", "type": "server_error"},
    ),
    "504": (
        lambda client, it: chat(client, it, model="hasty"),
        play(end="hold"),
        openai.InternalServerError,
        {"status_code": 504, "code": "upstream_timeout", "type": "server_error"},
    ),
}


@pytest.mark.fault("CLI-04")
@pytest.mark.parametrize("name", ERRORS)
async def test_each_error_is_the_exception_that_programs_expect(tmp_path: Path, name: str) -> None:
    ask, script, kind, fields = ERRORS[name]
    hasty = {"targets": [{"provider": "up"}], "time_limit": {"total": "150ms"}}
    models = {name: {"targets": [{"provider": "script" if name == "ok" else "up"}]} for name in ("m", "ok", "spent")} | {"hasty": hasty}
    limits = {"max_body": "100KiB", "max_calls": 1 if name == "503" else 10}
    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": RULES}}
    async with case(tmp_path, script, models=models, server=limits, teams=teams) as it, clients(it) as (_, client):
        it.rows += 1
        with pytest.raises(kind) as raised:
            await ask(client, it)
        told = raised.value
        assert type(told) is kind
        assert {name: getattr(told, name) for name in fields} == fields
        assert told.request_id is not None
        assert told.request_id.startswith("req_")
        body: Any = told.body
        assert body["request_id"] == told.request_id
        assert body["trace_id"] == told.response.headers["x-spangate-trace-id"]
        assert body["message"]
        assert body["doc_url"].startswith(f"{it.running.address.url}/docs/errors/")
        page = await it.ask(path=body["doc_url"], method="GET")  # in absolute form, as proxies are asked
        assert (page.status, page.header("content-type")) == (200, "text/markdown; charset=utf-8")
        if name == "429 of a budget":
            assert told.response.headers["x-should-retry"] == "false"  # nor did it: there is one row
        elif fields["status_code"] in {429, 503}:
            assert int(told.response.headers["retry-after"]) > 0


@pytest.mark.fault("CLI-04")
async def test_a_defect_of_ours_is_a_500(tmp_path: Path) -> None:
    clock = Stumbling()
    teams = {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY), "expires": "2999-01-01"}]}}
    async with case(tmp_path, provider, clock=Clock(wall=clock.wall), teams=teams) as it, clients(it) as (_, client):
        it.rows += 1
        clock.stumbles_at = clock.asked + 2
        with pytest.raises(openai.InternalServerError) as raised:
            await chat(client, it)
        assert (raised.value.status_code, raised.value.code, raised.value.type) == (500, "internal_error", "server_error")
        assert len(it.log.unhandled) == 1
        it.log.unhandled.clear()


@pytest.mark.fault("CLI-04")
async def test_an_error_in_a_stream_is_an_exception(tmp_path: Path) -> None:
    async with case(tmp_path, play(sse(C("a"))[:-5], end="rst")) as it, clients(it) as (_, client):
        it.rows += 1
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        with pytest.raises(openai.APIError) as raised:
            assert [chunk.choices[0].delta.content async for chunk in stream] == ["a"]
        assert (raised.value.code, raised.value.type) == ("upstream_incomplete", "server_error")


@pytest.mark.fault("CLI-04")
async def test_the_clients_own_retries_go_well(tmp_path: Path) -> None:
    busy = play(error(429, "slow down", headers=[("Retry-After-Ms", "10"), ("Retry-After", "1")]))
    async with case(tmp_path, [busy, busy, play(http(200, (), whole({})))]) as it, clients(it, retries=2) as (_, client):
        it.rows += 3
        assert (await chat(client, it)).choices[0].message.content == "Héllo 🙂"
        assert not [name for request in it.up.requests for name, _ in request.headers if b"stainless" in name.lower()]


# ---- old and odd clients


@pytest.mark.fault("CLI-08")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("version", "headers"), [("1.0", []), ("1.0", [("Connection", "keep-alive")]), ("1.1", [("Connection", "close")])])
async def test_http_1_0_and_close(tmp_path: Path, version: str, headers: list[tuple[str, str]], stream: bool) -> None:
    async with case(tmp_path, provider) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request({"stream": stream}, version=version, headers=headers))
        answer = await line.answer()
        assert answer.status == 200
        assert answer.body.endswith(D if stream else b"}\n")
        if version == "1.0":
            assert answer.header("transfer-encoding") is None
        if stream or version == "1.1" or not headers:
            assert await line.closed()
        else:
            assert answer.header("connection") == "keep-alive"


@pytest.mark.fault("CLI-08")
async def test_http_1_0_reads_errors_too(tmp_path: Path) -> None:
    async with case(tmp_path) as it, it.line() as line:
        it.rows += 1
        await line.send(it.request(version="1.0", key="sg-wrong"))
        assert (await line.answer()).error["code"] == "invalid_api_key"
        assert await line.closed()


SURFACE = [
    ("GET", CHAT, 405, "POST"),
    ("PUT", CHAT, 405, "POST"),
    ("DELETE", "/v1/embeddings", 405, "POST"),
    ("OPTIONS", CHAT, 405, "POST"),
    ("HEAD", CHAT, 405, "POST"),
    ("POST", "/v1/models", 405, "GET, HEAD"),
    ("PATCH", "/healthz", 405, "GET, HEAD"),
    ("HEAD", "/v1/models", 200, None),
    ("HEAD", "/healthz", 200, None),
    ("GET", "/v1/nope", 404, None),
    ("POST", "/v1/nope", 404, None),
    ("GET", "/", 404, None),
    ("GET", "/%00", 404, None),
    ("GET", "/v1/models%0d%0aX: y", 400, None),
    ("GET", "/v1/chat/completion", 404, None),
    ("GET", "/../etc/passwd", 404, None),
    ("GET", "/docs/errors/nope", 404, None),
    ("GET", "/docs/errors/../../etc/passwd", 404, None),
    ("GET", "/admin", 404, None),
    ("OPTIONS", "*", 404, None),
    ("TRACE", "/v1/models", 405, "GET, HEAD"),
    ("BREW", "/v1/models", 405, "GET, HEAD"),
    ("CONNECT", "evil.example:443", 404, None),
]


@pytest.mark.fault("CLI-09")
@pytest.mark.parametrize(("method", "path", "status", "allow"), SURFACE)
async def test_unknown_routes_and_methods(tmp_path: Path, method: str, path: str, status: int, allow: str | None) -> None:
    async with case(tmp_path) as it:
        answer = await it.ask(b"", path=path, method=method, headers=[("Origin", "https://app.example")])
        assert (answer.status, answer.header("allow")) in {(status, allow), (400, None) if method in {"BREW", "CONNECT"} else ()}
        if status != 200 and method != "HEAD":
            assert answer.error["code"] in {"not_found", "method_not_allowed", "invalid_request"}
        assert answer.header("content-type") == "application/json"
        assert not [name for name, _ in answer.headers if name.startswith("access-control")]
        assert "aiohttp" not in str(answer).lower()
        assert "python" not in str(answer).lower()


@pytest.mark.fault("CLI-09")
async def test_an_unknown_path_says_what_was_meant(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        answer = await it.ask(path="/v1/chat/completion", method="GET")
        assert answer.error["message"] == "There is nothing at /v1/chat/completion. Did you mean /v1/chat/completions?"
        answer = await it.ask(path="/chat/completions")
        assert "/v1/chat/completions" in answer.error["message"]


@pytest.mark.fault("CLI-09")
async def test_cors_is_on_for_the_origins_that_are_named(tmp_path: Path) -> None:
    async with case(tmp_path, provider, server={"cors": ["https://app.example"]}) as it:
        asking = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "authorization,x-stainless-os")]
        asked = await it.ask(method="OPTIONS", headers=[("Origin", "https://app.example"), *asking], key="")
        assert asked.status == 204
        assert asked.header("access-control-allow-origin") == "https://app.example"
        assert asked.header("access-control-allow-headers") == "authorization,x-stainless-os"
        for body, key, status in (({}, KEY, 200), ({"stream": True}, KEY, 200), ({}, "sg-wrong", 401)):
            answer = await it.ask(body, headers=[("Origin", "https://app.example")], key=key)
            assert (answer.status, answer.header("access-control-allow-origin")) == (status, "https://app.example")
            assert answer.header("vary") == "origin"
        for origin in ("https://evil.example", "https://app.example.evil", "http://app.example", "null"):
            answer = await it.ask(method="OPTIONS", headers=[("Origin", origin), *asking])
            assert (answer.status, answer.header("access-control-allow-origin")) == (405, None)
            assert (await it.ask(headers=[("Origin", origin)])).header("access-control-allow-origin") is None
