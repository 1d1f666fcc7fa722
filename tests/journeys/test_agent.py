"""An agent and a gateway are one system: one trace from the reply to the provider and the tool, tokens counted once, and nothing of one
reply in another, however many run at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from spangate.agent import (
    Agent,
    ChatModelBase,
    GatewayModel,
    MiddlewareBase,
    MiddlewareFault,
    Msg,
    OpenAIChatModel,
    PolicyMiddleware,
    TracingMiddleware,
    tool,
)
from spangate.call.call import Caller
from spangate.policies.access import Access
from spangate.policies.time_limit import TimeLimit

from case import KEY
from otlp_sink import attributes
from told import CLIENT, ERROR, SERVER, Call, Told, told
from upstream import C, D, F, Play, Request, U, chat_chunk, http, play, sse

TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")


@dataclass
class Traced:
    """A gateway and an agent's tracer, which tell the same collector."""

    it: Told
    provider: TracerProvider

    @property
    def url(self) -> str:
        return self.it.it.running.url

    async def spans(self) -> list[Span]:
        """All there are, of both."""
        assert await asyncio.to_thread(self.provider.force_flush)
        return self.it.sink.spans


@asynccontextmanager
async def traced(folder: Path, script: Any) -> AsyncIterator[Traced]:
    async with told(folder, script) as it:
        provider = TracerProvider(shutdown_on_exit=False)
        # Only what force_flush sends is sent: the gateway's spans are counted before the agent's arrive.
        exporter = OTLPSpanExporter(f"{it.sink.endpoint}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=10_000, schedule_delay_millis=600_000))
        try:
            yield Traced(it, provider)
        finally:
            await asyncio.to_thread(provider.shutdown)


def tool_turn(arguments: str, tokens: tuple[int, int], *, stream: bool) -> bytes:
    """An answer that calls `lookup`."""
    call = {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": arguments}}
    if not stream:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        return http(200, body=json.dumps(body).encode())
    begun = chat_chunk([{"index": 0, "delta": {"role": "assistant", "tool_calls": [{"index": 0, **call}]}, "finish_reason": None}])
    return sse(begun, F("tool_calls"), U(*tokens), D)


def text_turn(text: str, tokens: tuple[int, int], *, stream: bool) -> bytes:
    if stream:
        return sse(C(text[:3]), C(text[3:]), F("stop"), U(*tokens), D)
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return http(
        200,
        body=json.dumps(
            {"id": "c2", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        ).encode(),
    )


def by_role(request: Request) -> Play:
    """The tool first, and once its result is there, that."""
    asked = request.json()
    last, stream = asked["messages"][-1], bool(asked.get("stream"))
    if last["role"] == "tool":
        return play(text_turn(f"It is {last['content']}", (31, 5), stream=stream))
    return play(tool_turn(json.dumps({"of": last["content"]}), (20, 3), stream=stream))


seen_in_tools: list[tuple[str, trace.SpanContext]] = []


@tool
async def lookup(of: str) -> str:
    """Look it up."""
    seen_in_tools.append((of, trace.get_current_span().get_span_context()))
    return f"<{of}>"


def named(spans: Sequence[Span], name: str) -> list[Span]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start_time_unix_nano)


def check_tree(reply: Msg, spans: Sequence[Span], calls: Sequence[Call], requests: Sequence[Request], agent: str = "support") -> Span:
    """One whole tree: the reply, its two model calls, under each of them the gateway's call and its attempt, and the tool. Its root."""
    ids = {span.span_id for span in spans}
    [root] = [span for span in spans if span.parent_span_id not in ids]
    assert (root.name, root.parent_span_id) == (f"invoke_agent {agent}", b"")
    assert {span.trace_id for span in spans} == {root.trace_id}
    chats = [span for span in named(spans, "chat m") if span.parent_span_id == root.span_id]
    [acting] = named(spans, "execute_tool lookup")
    assert acting.parent_span_id == root.span_id
    assert len(chats) == len(calls) == len(requests) == 2
    for chat, call, request in zip(chats, calls, requests, strict=True):
        assert (chat.kind, call.span.kind, call.span.parent_span_id) == (CLIENT, SERVER, chat.span_id)
        [attempt] = call.attempts
        assert attempt.parent_span_id == call.span.span_id
        assert request.header(b"traceparent") == f"00-{root.trace_id.hex()}-{attempt.span_id.hex()}-01".encode()
        assert (call.row["trace_id"], call.row["reply"]) == (root.trace_id.hex(), reply.id)
        assert chat.start_time_unix_nano <= call.span.start_time_unix_nano
    assert len(spans) == 8
    return root


def check_tokens(root: Span, spans: Sequence[Span], calls: Sequence[Call]) -> None:
    """What the provider said, once: in the rows, and on the spans that viewers take for a model's answer. The reply's own span bears the
    sum."""
    assert [call.tokens for call in calls] == [(20, 3, "provider"), (31, 5, "provider")]
    told_of = [attributes(span) for span in spans if attributes(span).get("gen_ai.operation.name") == "chat"]
    counted = [tuple(said[name] for name in TOKENS) for said in told_of if TOKENS[0] in said]
    assert sorted(counted) == [(20, 3), (31, 5)]
    assert len(told_of) == 4, "the agent's model calls stand there too, without usage"
    assert [attributes(root)[name] for name in TOKENS] == [51, 8]
    assert [
        span for span in spans if span is not root and TOKENS[0] in attributes(span) and "spangate.deployment.name" not in attributes(span)
    ] == []


@pytest.mark.parametrize("stream", [True, False])
async def test_one_trace_from_the_reply_to_the_provider_and_the_tool(tmp_path: Path, stream: bool) -> None:
    seen_in_tools.clear()
    async with traced(tmp_path, by_role) as both:
        model = OpenAIChatModel("m", api_key=KEY, base_url=both.url, stream=stream)
        agent = Agent("support", "Help.", model, [lookup], [TracingMiddleware(both.provider), PolicyMiddleware(Access(), TimeLimit())])
        reply = await agent("order 7", thread="thread-9")
        assert reply.text == "It is <order 7>"
        await model.aclose()
        both.it.it.rows = 2
        calls = await both.it.calls()
        spans = await both.spans()
        root = check_tree(reply, spans, calls, both.it.it.up.requests)
        check_tokens(root, spans, calls)
        assert reply.usage is not None
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (51, 8)
        assert {call.row["thread"] for call in calls} == {"thread-9"}
        assert {attributes(span)["gen_ai.conversation.id"] for span in spans if span.kind != SERVER} == {"thread-9"}
        [(_, inside)] = seen_in_tools
        assert (inside.trace_id, inside.span_id) == (
            int.from_bytes(root.trace_id, "big"),
            int.from_bytes(named(spans, "execute_tool lookup")[0].span_id, "big"),
        )
        for request in both.it.it.up.requests:
            assert [name for name, _ in request.headers if name.lower().startswith(b"x-spangate")] == [], "a vendor is told nothing of ours"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_gateway_in_process_is_in_the_same_trace(tmp_path: Path, stream: bool) -> None:
    async with traced(tmp_path, by_role) as both:
        app = both.it.it.running.app
        caller = Caller(team="search", key="ci")
        inside = app.endpoints.gateway.next_for(caller, "m")
        model = GatewayModel(inside, "m", caller=caller, recorder=app.setting.recorder, stream=stream)
        agent = Agent("support", "Help.", model, [lookup], [TracingMiddleware(both.provider)])
        reply = await agent("order 7", thread="thread-9")
        assert reply.text == "It is <order 7>"
        both.it.it.rows = 2
        calls = await both.it.calls()
        spans = await both.spans()
        root = check_tree(reply, spans, calls, both.it.it.up.requests)
        check_tokens(root, spans, calls)
        assert {(call.row["thread"], call.row["team"], call.row["outcome"]) for call in calls} == {("thread-9", "search", "completed")}


class RaisesBefore(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        raise LookupError("before")


class RaisesAfter(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        await next_handler()
        raise LookupError("after")


class ReturnsNone(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        await next_handler()


class AsksTwice(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        first = await next_handler()
        await first.response()
        return await next_handler()


class RaisesInTheMiddle(MiddlewareBase):
    async def on_reasoning(self, agent: Any, input_kwargs: Any, next_handler: Any) -> AsyncIterator[Any]:
        async for event in next_handler():
            yield event
            if event.type == "MODEL_CALL_START":
                continue
            raise LookupError("in the middle")


# What each costs: how many requests go out for one reply, and what is raised.
FAULTY: list[tuple[type[MiddlewareBase], int, type[Exception] | None]] = [
    (RaisesBefore, 0, LookupError),
    (RaisesAfter, 1, LookupError),
    (ReturnsNone, 1, MiddlewareFault),
    (AsksTwice, 2, None),
    (RaisesInTheMiddle, 1, LookupError),
]


class Passes(MiddlewareBase):
    async def on_model_call(self, agent: Any, input_kwargs: Any, next_handler: Any) -> Any:
        return await next_handler()


@pytest.mark.fault("AGT-10")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_whatever_a_middleware_does_wrong_is_accounted_and_told_once(tmp_path: Path, position: int, stream: bool) -> None:
    """Each request that went out is one row, one call and one attempt; each span ends once; the error names the middleware."""

    def script(request: Request) -> Play:
        return play(text_turn("Hello", (7, 2), stream=stream))

    async with traced(tmp_path, script) as both:
        model = OpenAIChatModel("m", api_key=KEY, base_url=both.url, stream=stream)
        for faulty, sent, error in FAULTY:
            stack: list[MiddlewareBase] = [TracingMiddleware(both.provider), PolicyMiddleware(Access(), TimeLimit()), Passes()]
            stack.insert(position, faulty())
            before = len(both.it.it.up.requests)
            if error is None:
                assert (await Agent(faulty.__name__, None, model, middlewares=stack)("go")).text == "Hello"
            else:
                with pytest.raises(error) as caught:
                    await Agent(faulty.__name__, None, model, middlewares=stack)("go")
                assert faulty.__name__ in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
            assert len(both.it.it.up.requests) == before + sent, faulty.__name__
        await model.aclose()
        both.it.it.rows = sum(sent for _, sent, _ in FAULTY)
        calls = await both.it.calls()  # a row, a call's span and an attempt's for each, which tell the same
        spans = await both.spans()
        assert len({span.span_id for span in spans}) == len(spans)
        for faulty, sent, error in FAULTY:
            [root] = named(spans, f"invoke_agent {faulty.__name__}")
            chats = [span for span in named(spans, "chat m") if span.parent_span_id == root.span_id]
            assert len(chats) == len([call for call in calls if call.span.trace_id == root.trace_id]) == sent, faulty.__name__
            assert (root.status.code == ERROR) == (error is not None)


async def test_a_thread_that_nobody_named_is_none(tmp_path: Path) -> None:
    async with traced(tmp_path, by_role) as both:
        model = OpenAIChatModel("m", api_key=KEY, base_url=both.url)
        reply = await Agent("support", None, model, [lookup])("order 7")
        await model.aclose()
        both.it.it.rows = 2
        assert {(call.row["reply"], call.row["thread"]) for call in await both.it.calls()} == {(reply.id, "")}


async def test_a_thread_of_any_name_gets_through(tmp_path: Path) -> None:
    async with traced(tmp_path, by_role) as both:
        model = OpenAIChatModel("m", api_key=KEY, base_url=both.url)
        for name in ("Gespräch 7", "x\r\nx-spangate-user: eve", "y" * 1000):
            await Agent("support", None, model, [lookup])("order 7", thread=name)
        await model.aclose()
        both.it.it.rows = 6
        rows = [call.row for call in await both.it.calls()]
        assert [row["thread"] for row in rows[::2]] == [row["thread"] for row in rows[1::2]]
        assert [row["thread"][:15] for row in rows[::2]] == ["Gespr%C3%A4ch 7", "x%0D%0Ax-spanga", "y" * 15]
        assert {row["user"] for row in rows} == {""}


def models(url: str) -> Iterator[ChatModelBase]:
    """Two models between ten agents: clients are shared as well."""
    pair = [OpenAIChatModel("m", api_key=KEY, base_url=url, stream=stream) for stream in (True, False)]
    while True:
        yield from pair


async def test_100_replies_of_10_agents_through_one_gateway_keep_apart(tmp_path: Path) -> None:
    async with traced(tmp_path, by_role) as both:
        shared = [TracingMiddleware(both.provider), PolicyMiddleware(Access(), TimeLimit())]
        asked = models(both.url)
        used = [next(asked) for _ in range(10)]
        agents = [Agent(f"agent-{number}", "Help.", used[number], [lookup], shared) for number in range(10)]
        replies = await asyncio.gather(*(agents[number % 10](f"order {number}", thread=f"thread-{number}") for number in range(100)))
        for model in set(used):
            assert isinstance(model, OpenAIChatModel)
            await model.aclose()
        both.it.it.rows = 200
        calls = await both.it.calls()
        spans = await both.spans()
        assert len(spans) == 800
        requests = {request.header(b"traceparent"): request for request in both.it.it.up.requests}
        traces = set()
        for number, reply in enumerate(replies):
            assert reply.text == f"It is <order {number}>"
            own = [call for call in calls if call.row["reply"] == reply.id]
            assert {call.row["thread"] for call in own} == {f"thread-{number}"}
            trace_id = own[0].span.trace_id
            traces.add(trace_id)
            in_trace = [span for span in spans if span.trace_id == trace_id]
            sent = [requests[f"00-{trace_id.hex()}-{call.attempts[0].span_id.hex()}-01".encode()] for call in own]
            assert [request.json()["messages"][1]["content"] for request in sent] == [f"order {number}"] * 2
            root = check_tree(reply, in_trace, own, sent, agent=f"agent-{number % 10}")
            check_tokens(root, in_trace, own)
            said = [attributes(span) for span in in_trace]
            assert {each["spangate.reply.id"] for each in said if "spangate.reply.id" in each} == {reply.id}
            assert {each["gen_ai.conversation.id"] for each in said if "gen_ai.conversation.id" in each} == {f"thread-{number}"}
        assert len(traces) == 100
