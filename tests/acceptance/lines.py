"""The lines that a middleware must live up to, and what several of them look at. A check is registered under its line, word for word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from spangate.agent import Agent, AgentEvent, Msg, ReplyStream, ScriptedModel, ToolBase, calls, tool
from spangate.agent.messages.chat import to_chat
from spangate.agent.messages.msg import ChatUsage
from spangate.agent.models.response import ChatResponse
from spangate.call.call import Call
from spangate.call.rules import Rule

Check = Callable[[], Awaitable[None]]
CHECKS: dict[str, Check] = {}


def accepts(line: str) -> Callable[[Check], Check]:
    """This function checks that line."""

    def register(check: Check) -> Check:
        assert line not in CHECKS, line
        CHECKS[line] = check
        return check

    return register


# ---- conversations


@tool
def look(of: str = "it") -> str:
    """Look."""
    return f"seen {of}"


def agent(model: ScriptedModel, *middlewares: Any, tools: Sequence[ToolBase] = (look,), prompt: str | None = None, **options: Any) -> Agent:
    return Agent("a", prompt, model, list(tools), list(middlewares), **options)


class Half(ScriptedModel):
    """A model whose provider leaves out one total, the other being 7."""

    unknown: Literal["input", "output"] = "output"

    async def pieces(self, *args: Any) -> AsyncIterator[ChatResponse]:
        told = ChatUsage(7, unknown="output") if self.unknown == "output" else ChatUsage(0, 7, unknown="input")
        async for piece in super().pieces(*args):
            yield piece if piece.usage is None else replace(piece, usage=told)


class Stalling(ScriptedModel):
    """A model that says one piece and no more; `begun` once that was taken."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def pieces(self, *args: Any) -> AsyncIterator[ChatResponse]:
        yield ChatResponse("so ", is_last=False)
        self.begun.set()
        await asyncio.Event().wait()


async def cancelled_amid(*middlewares: Any) -> None:
    """A reply that is cancelled in the midst of its model's answer."""
    model = Stalling()
    task = asyncio.create_task(agent(model, *middlewares)("hi"))
    await model.begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def stepping(steps: int, *, usage: dict[str, int] | None = None, **options: Any) -> ScriptedModel:
    """Calls a tool for so many steps, then says `done`."""
    rules = [{"answer": calls("look", id=f"c{number}"), "usage": usage or {}, "times": 1} for number in range(steps)]
    return ScriptedModel([*rules, {"answer": {"text": "done"}, "usage": usage or {}}], **options)


def endless(usage: dict[str, int] | None = None) -> ScriptedModel:
    """Calls a tool whenever it may, and says `enough` when it may not."""

    def answer(call: Call) -> Rule:
        may = call.body.get("tool_choice") != "none"
        return Rule.model_validate({"answer": {"tool_calls": [{"name": "look"}]} if may else {"text": "enough"}, "usage": usage or {}})

    return ScriptedModel([answer])


async def told(stream: ReplyStream) -> list[AgentEvent]:
    return [event async for event in stream]


def kinds(events: Iterable[AgentEvent]) -> list[str]:
    return [event.type for event in events]


def assert_valid(messages: Sequence[dict[str, Any]]) -> None:
    """Each call has exactly one result, right behind its message; no result without a call."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without a call, or in the wrong place"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, f"no result for {waiting}"
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting, f"no result for {waiting}"


def assert_history_valid(history: Sequence[Msg]) -> None:
    assert_valid(to_chat(history))


# ---- spans


class Spans(SpanProcessor):
    """Every span that began and ended, in order."""

    def __init__(self) -> None:
        self.begun: list[Span] = []
        self.ended: list[ReadableSpan] = []
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.begun.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        [span] = self.named(start)
        return span

    def assert_each_ended_once(self) -> None:
        ids = [span.context.span_id for span in self.ended if span.context]
        assert sorted(ids) == sorted(span.context.span_id for span in self.begun)
        assert len(set(ids)) == len(ids)


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def turned(times: int = 1) -> None:
    """Let the loop turn."""
    for _ in range(times):
        await asyncio.sleep(0)
