"""One step of reasoning: put the request together, ask the model through its layers, tell the answer as events, keep it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from .asking import Asking, asking
from .errors import NoAnswer, is_cancelled
from .events import (
    AgentEvent,
    DataBlockDeltaEvent,
    DataBlockEndEvent,
    DataBlockStartEvent,
    ModelCallEndEvent,
    ModelCallStartEvent,
    TextBlockDeltaEvent,
    TextBlockEndEvent,
    TextBlockStartEvent,
    ThinkingBlockDeltaEvent,
    ThinkingBlockEndEvent,
    ThinkingBlockStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    shown,
)
from .hooks import call_through, prompt_through
from .messages.blocks import Block, DataBlock, TextBlock, ThinkingBlock, ToolCallBlock, new_id
from .messages.msg import ChatUsage, Msg, SystemMsg
from .messages.turns import mended
from .models.base import ChatModelBase
from .models.response import Answer, ChatResponse, Gathered, ModelStream, as_answer, primed
from .settings import ToolChoice
from .steps import Attempt, Step

if TYPE_CHECKING:
    from .reply import Reply
    from .view import ReplyView

ANSWER = "what next_handler() gave, a ChatResponse, or a generator of them"


async def reason(reply: Reply, tool_choice: ToolChoice | None = None) -> AsyncGenerator[AgentEvent, None]:
    """The core of `on_reasoning`. Leaves the answer in the context and in `reply.answer`; `reply.stopped` says that a layer ended the
    reply instead."""
    view = reply.view
    reply.answer = None
    prompt = await prompt_through(view.hooks, view, view.system_prompt)
    messages = mended(view.state.context)
    if prompt:
        messages = [SystemMsg(prompt), *messages]
    yield ModelCallStartEvent(reply_id=view.reply_id, model_name=view.model.model)
    began, before = time.monotonic(), len(view.attempts)
    telling = Telling(view)
    answer: Answer | None = None
    try:
        answer = await ask_model(view, messages, reply.offered(), tool_choice, view.model)
        async for piece in answer:
            if piece.is_last:
                reply.answer = piece
            for event in telling.events(piece):
                yield event
        for event in telling.ends():
            yield event
    finally:
        reply.open_blocks = telling.open
        if reply.answer is None:
            telling.keep_text()
        for stream in [*([answer] if answer is not None else []), *view.open_streams]:
            await stream.aclose()
        view.open_streams.clear()
    if reply.answer is None:
        raise NoAnswer("The model's stream ended without its last piece.")
    if reply.answer.stop:
        reply.stopped = reply.answer.stop
        return
    reply.answer.content = telling.whole(reply.answer)
    view.answer = reply.answer
    attempts = [each for each in view.attempts[before:] if each.purpose == "main"]
    _keep(reply, reply.answer, time.monotonic() - began, attempts)
    usage = reply.answer.usage or ChatUsage(source="none")
    yield ModelCallEndEvent(
        reply_id=view.reply_id,
        model_name=reply.answer.model or view.model.model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_input_tokens=usage.cache_input_tokens,
        cache_creation_input_tokens=usage.cache_creation_input_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        usage_source=usage.source,
        usage_unknown=usage.unknown,
        finished_reason=reply.answer.finished_reason,
        finish=reply.answer.finish,
    )


async def ask_model(
    view: ReplyView, messages: list[Msg], tools: list[dict[str, Any]] | list[Mapping[str, Any]], tool_choice: ToolChoice | None, model: Any
) -> Answer:
    """One call of a model through the `on_model_call` layers."""

    async def core(
        messages: Sequence[Msg], tools: Sequence[Mapping[str, Any]], tool_choice: ToolChoice | None, current_model: ChatModelBase
    ) -> Answer:
        return await _attempt(view, messages, tools, tool_choice, current_model)

    given = {"messages": messages, "tools": tools, "tool_choice": tool_choice, "current_model": model}
    answer: Answer = await call_through(view.hooks, "on_model_call", view, given, core, check=_is_answer, wants=ANSWER)
    return answer


def _is_answer(returned: Any, inner: Any) -> Answer | None:
    return as_answer(returned)


async def _attempt(
    view: ReplyView, messages: Sequence[Msg], tools: Sequence[Mapping[str, Any]], tool_choice: ToolChoice | None, model: ChatModelBase
) -> Answer:
    attempt = Attempt(model.model, view.purpose)
    view.attempts.append(attempt)
    token = asking.set(Asking.of(view))
    try:
        given: Any = await model(messages, tools or None, tool_choice)
        if not isinstance(given, ChatResponse | ModelStream) and isinstance(given, AsyncIterator):
            given = await primed(given, empty=f"{model.model} answered with nothing.")
        answer = as_answer(given)
    except BaseException as error:
        attempt.error = type(error).__name__
        attempt.usage = error.usage if isinstance(error, NoAnswer) else None
        _from_inside(error, model.model)
        raise
    finally:
        asking.reset(token)
    if answer is None:
        raise NoAnswer(f"{model.model} gave no answer: a model returns a ChatResponse or a generator of them.")

    def record(whole: ChatResponse) -> None:
        attempt.usage = whole.usage or attempt.usage
        whole.model = whole.model or model.model

    if isinstance(answer, ModelStream):
        answer = Tried(answer, attempt)
    answer = answer.then(record)
    view.open_streams.append(answer)
    return answer


def _from_inside(error: BaseException, model: str) -> None:
    """
    Raises:
        NoAnswer: the error is a cancellation, and nobody has cancelled the reply: it came out of the model, which failed.
    """
    if isinstance(error, asyncio.CancelledError) and not is_cancelled():
        raise NoAnswer(f"{model} was cancelled by something that it waited for.") from error


class Tried(ModelStream):
    """A stream whose attempt knows what it used so far, and how it failed, if it does."""

    def __init__(self, source: ModelStream, attempt: Attempt) -> None:
        super().__init__(source)
        self._attempt = attempt

    async def __anext__(self) -> ChatResponse:
        try:
            piece = await super().__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._attempt.error = type(error).__name__
            _from_inside(error, self._attempt.model)
            raise
        self._attempt.usage = piece.usage or self._attempt.usage
        return piece


def _keep(reply: Reply, answer: ChatResponse, duration: float, attempts: list[Attempt]) -> None:
    view = reply.view
    if answer.content:
        view.state.append_context(view.name, answer.content)
    calls = answer.tool_calls
    step = Step(len(view.steps), answer.text, calls, [], answer.finish, answer.usage, answer.model, duration, bool(attempts), attempts)
    view.steps.append(step)


class Telling:
    """Tells the pieces of one answer as events: a start, deltas and an end for each block."""

    def __init__(self, view: ReplyView) -> None:
        self._view = view
        self._reply_id = view.reply_id
        self._gathered = Gathered()
        self._taken = {
            block.id for msg in view.state.context if msg.id == view.reply_id for block in msg.content if block.type == "tool_call"
        }
        self._ids: dict[str, str] = {}
        self.open: dict[str, Block] = {}
        self._saying: list[Block] = []

    def events(self, piece: ChatResponse) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        for given in piece.content:
            block = self._named(given)
            # The last piece holds the whole answer: what was told is not told again.
            if piece.is_last and block.id in self._gathered:
                continue
            self._gathered.add(ChatResponse([block], is_last=False))
            if block.id not in self.open:
                # A new block ends those that said something; calls stay open side by side.
                events += [self._end(each) for each in self._saying if each.id in self.open]
                self._saying = []
                started = self._start(block)
                if started:
                    self.open[block.id] = block
                    if not isinstance(block, ToolCallBlock):
                        self._saying.append(block)
                events += started
            events += self._delta(block)
        return events

    def ends(self) -> list[AgentEvent]:
        return [self._end(block) for block in list(self.open.values())]

    def whole(self, answer: ChatResponse) -> list[Block]:
        """The blocks of the answer, under the ids that were told."""
        return [self._named(block) for block in answer.content]

    def keep_text(self) -> None:
        """The answer broke off: what it had said stays in the context, calls that were not whole do not."""
        said = [block for block in self._gathered.content if isinstance(block, TextBlock) and block.text]
        if said:
            self._view.state.append_context(self._view.name, said)

    def _named(self, block: Block) -> Block:
        """A tool call under an id that no other call of this reply has."""
        if not isinstance(block, ToolCallBlock):
            return block
        if block.id not in self._ids:
            self._ids[block.id] = block.id if block.id and block.id not in self._taken else f"call_{new_id()[:24]}"
            self._taken.add(self._ids[block.id])
        name = self._ids[block.id]
        return block if name == block.id else msgspec.structs.replace(block, id=name)

    def _start(self, block: Block) -> list[AgentEvent]:
        if isinstance(block, TextBlock):
            return [TextBlockStartEvent(reply_id=self._reply_id, block_id=block.id)]
        if isinstance(block, ThinkingBlock):
            return [ThinkingBlockStartEvent(reply_id=self._reply_id, block_id=block.id)]
        if isinstance(block, ToolCallBlock):
            return [ToolCallStartEvent(reply_id=self._reply_id, tool_call_id=block.id, tool_call_name=block.name)]
        if isinstance(block, DataBlock):
            media = block.source.media_type
            return [DataBlockStartEvent(reply_id=self._reply_id, block_id=block.id, media_type=media, name=block.name)]
        return []

    def _delta(self, block: Block) -> list[AgentEvent]:
        if isinstance(block, TextBlock):
            return [TextBlockDeltaEvent(reply_id=self._reply_id, block_id=block.id, delta=block.text)] if block.text else []
        if isinstance(block, ThinkingBlock):
            return [ThinkingBlockDeltaEvent(reply_id=self._reply_id, block_id=block.id, delta=block.thinking)] if block.thinking else []
        if isinstance(block, ToolCallBlock):
            return [ToolCallDeltaEvent(reply_id=self._reply_id, tool_call_id=block.id, delta=block.input)] if block.input else []
        if isinstance(block, DataBlock):
            return [DataBlockDeltaEvent(reply_id=self._reply_id, block_id=block.id, **shown(block.source))]
        return []

    def _end(self, block: Block) -> AgentEvent:
        self.open.pop(block.id, None)
        return end_of(block, self._reply_id)


def end_of(block: Block, reply_id: str) -> AgentEvent:
    """The event that ends this block."""
    if isinstance(block, ToolCallBlock):
        return ToolCallEndEvent(reply_id=reply_id, tool_call_id=block.id)
    kind = {"thinking": ThinkingBlockEndEvent, "data": DataBlockEndEvent}.get(block.type, TextBlockEndEvent)
    return kind(reply_id=reply_id, block_id=block.id)
