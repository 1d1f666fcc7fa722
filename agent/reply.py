"""One reply: rounds of reasoning and acting, until an end passes all layers of `on_reply`.

per round: on_compress_context → on_reasoning (on_system_prompt, on_model_call) → on_tool_calls
           → for each call on_check_permission → on_acting
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from .acting import act
from .errors import DeadlineExceeded, InvalidInput, NoProgress
from .events import (
    AgentEvent,
    ExternalExecutionResultEvent,
    ReplyEndEvent,
    ReplyStartEvent,
    ToolResultEndEvent,
    UserConfirmResultEvent,
)
from .hooks import call_through, events_through
from .messages.blocks import Block, HintBlock, TextBlock, ToolCallBlock, ToolResultBlock, ToolResultState
from .messages.msg import Msg, as_messages, timestamp
from .messages.turns import UNANSWERED
from .models.response import ChatResponse
from .reasoning import end_of, reason
from .settings import ContextConfig, ErrorInfo, Jump, ReplyFinishedReason, ToolChoice
from .steps import total
from .structured import STRUCTURED, StructuredOutput, structured_tool
from .tools.tool import ToolBase
from .view import ReplyView

R = ReplyFinishedReason
NOT_MADE = "This call was not made."


class Reply:
    """The engine of one reply. `claim` tells whether a cancellation that arrived is the reply's own interrupt or deadline."""

    def __init__(self, view: ReplyView, claim: Callable[[], BaseException | None]) -> None:
        self.view = view
        self.state = view.state
        self._claim = claim
        self.answer: ChatResponse | None = None
        self.stopped = ""
        self.ending: str | None = None
        self.rejected = False
        self.halted: BaseException | None = None
        """An interrupt or a deadline that came while the outside had its turn."""
        self.delivered = False
        self.results: dict[str, ToolResultBlock] = {}
        self.open_blocks: dict[str, Block] = {}
        self._structured: StructuredOutput | None = None
        self._grace = 0
        self._again = self._jumped = False
        self._reason = R.COMPLETED
        self._error: ErrorInfo | None = None

    # what a round looks at

    def tool(self, name: str) -> ToolBase | None:
        if self._structured is not None and name == STRUCTURED:
            return self._structured
        return self.view.find_tool(name)

    def offered(self) -> list[dict[str, Any]]:
        own = [self._structured.definition()] if self._structured is not None else []
        return [*self.view.tool_definitions(), *own]

    @property
    def owes(self) -> bool:
        """A structured output was asked for and is not there yet."""
        return self._structured is not None and self._structured.output is None

    @property
    def _is_full(self) -> bool:
        return self.state.cur_iter >= self.view.react_config.max_iters

    # the core of on_reply

    async def run(self, inputs: Any, structured_schema: Any = None) -> AsyncGenerator[AgentEvent | Msg, None]:
        state = self.state
        if isinstance(inputs, UserConfirmResultEvent | ExternalExecutionResultEvent):
            raise InvalidInput("No reply of this thread waits for an answer.", param="inputs")
        if structured_schema is not None:
            self._structured = structured_tool(structured_schema)
            state.structured_schema = dict(self._structured.input_schema)
        said = as_messages(inputs)
        try:
            state.settle()
            state.context += [msgspec.structs.replace(each, content=list(each.content)) for each in said]
            yield ReplyStartEvent(reply_id=state.reply_id, session_id=state.session_id, name=self.view.name)
            while True:
                before = len(self.view.steps)
                async with aclosing(self._until_the_end()) as events:
                    async for event in events:
                        yield event
                end = ReplyEndEvent(reply_id=state.reply_id, session_id=state.session_id, finished_reason=self._reason, error=self._error)
                yield end
                if self.delivered or self._reason in (R.INTERRUPTED, R.ERROR):
                    break
                if len(self.view.steps) == before or (self._reason is R.EXCEED_MAX_ITERS and self._is_full):
                    raise NoProgress(
                        "The reply's end was kept back although nothing happened since; free a round (agent.state.cur_iter) first."
                    )
            yield self.message()
        finally:
            state.settle()

    async def _until_the_end(self) -> AsyncGenerator[AgentEvent, None]:
        """Rounds, and the events that close what was open when they had to stop."""
        self._reason, self._error, self.stopped, self.ending = R.COMPLETED, None, "", None
        try:
            async with aclosing(self._rounds_of_work()) as events:
                async for event in events:
                    for pending in self._pending():
                        yield pending
                    yield event
                    if self.halted is not None:
                        break
        except asyncio.CancelledError:
            self.halted = self._claim()
            if self.halted is None:
                raise
        if self.halted is not None:
            late = isinstance(self.halted, DeadlineExceeded)
            self._reason = R.ERROR if late else R.INTERRUPTED
            self._error = ErrorInfo(str(self.halted), type(self.halted).__name__, "deadline_exceeded") if late else None
            for event in self._closing():
                yield event
        for pending in self._pending():
            yield pending

    def _pending(self) -> Sequence[AgentEvent]:
        if not self.view.pending_events:
            return ()
        events, self.view.pending_events[:] = list(self.view.pending_events), []
        return events

    def _closing(self) -> list[AgentEvent]:
        reply_id = self.state.reply_id
        events = [end_of(block, reply_id) for block in self.open_blocks.values()]
        self.open_blocks = {}
        for call in self.state.open_calls():
            self.state.append_context(self.view.name, [ToolResultBlock(call.id, call.name, UNANSWERED, ToolResultState.INTERRUPTED)])
            events.append(ToolResultEndEvent(reply_id=reply_id, tool_call_id=call.id, state=ToolResultState.INTERRUPTED))
        return events

    async def _rounds_of_work(self) -> AsyncGenerator[AgentEvent, None]:
        state, config = self.state, self.view.react_config
        while True:
            if self._is_full and not (self.owes and self._grace < config.grace_iters):
                async with aclosing(self._round(ToolChoice("none"))) as events:
                    async for event in events:
                        yield event
                self._reason = R.CANCELLED if self.stopped else R.EXCEED_MAX_ITERS
                return
            choice = None
            if self.owes and (self._grace or self._is_full):
                choice = ToolChoice(STRUCTURED)
            async with aclosing(self._round(choice)) as events:
                async for event in events:
                    yield event
            state.cur_iter += 1
            if self._done():
                return
            # A model and tools that never wait leave a deadline, an interrupt and everybody else no turn.
            await asyncio.sleep(0)

    def _done(self) -> bool:
        """Whether the round that has just been was the last; sets why."""
        if self.stopped:
            self._reason = R.CANCELLED
            return True
        if self.ending is not None:
            self.state.append_context(self.view.name, [TextBlock(self.ending)])
            self._reason = R.LIMIT
            return True
        if self._again or self._jumped:
            return self._jumped
        answer = self.answer
        if answer is None:  # a layer of on_reasoning did without a model
            return True
        if self._structured is not None and not self.owes:
            self.state.structured_output = self._structured.output
            return True
        if answer.tool_calls:
            return self.rejected and self.view.react_config.stop_on_reject
        if self.owes:
            self._grace += 1
            return self._grace > self.view.react_config.grace_iters
        # Thinking alone is no answer: the model is asked to go on.
        return any(isinstance(block, TextBlock) and block.text for block in answer.content) or not answer.says_something

    async def _round(self, tool_choice: ToolChoice | None) -> AsyncGenerator[AgentEvent, None]:
        view = self.view
        self._begin_round()
        await self._compress()

        def core(tool_choice: ToolChoice | None) -> AsyncGenerator[AgentEvent, None]:
            return reason(self, tool_choice)

        async with aclosing(events_through(view.hooks, "on_reasoning", view, {"tool_choice": tool_choice}, core)) as events:
            async for event in events:
                yield event
        jump, view.jump = view.jump, None
        if jump in (Jump.MODEL, Jump.END):
            self._passed_over(jump)
            return
        if self.stopped or self.answer is None:
            return
        open_calls = {each.id for each in self.state.open_calls()}
        calls = [call for call in self.answer.tool_calls if call.id in open_calls]
        if calls:
            async with aclosing(act(self, calls)) as events:
                async for event in events:
                    yield event

    def _passed_over(self, jump: Jump) -> None:
        """A layer decided where to go on; calls that nobody makes now are answered so."""
        for call in self.state.open_calls():
            self.results[call.id] = ToolResultBlock(call.id, call.name, NOT_MADE, ToolResultState.INTERRUPTED)
        if self.answer is not None:
            self.keep_results(self.answer.tool_calls)
        self._again, self._jumped = jump is Jump.MODEL, jump is Jump.END

    def _begin_round(self) -> None:
        self.results, self.answer, self._again, self._jumped = {}, None, False, False

    async def _compress(self) -> None:
        view = self.view
        if view.hooks.stacks["on_compress_context"]:
            given = {"context_config": view.context_config, "instructions": None}
            await call_through(view.hooks, "on_compress_context", view, given, _keep_all)

    def keep_results(self, calls: Sequence[ToolCallBlock]) -> None:
        """Put the results that are there behind their calls, in the calls' order."""
        there = {block.id for msg in self.state.context if msg.id == self.state.reply_id for block in msg.blocks(ToolResultBlock)}
        found: list[Block] = [self.results[call.id] for call in calls if call.id in self.results and call.id not in there]
        if found:
            self.state.append_context(self.view.name, found)
        if self.view.steps:
            self.view.steps[-1].results = [self.results[call.id] for call in calls if call.id in self.results]

    # its end

    def message(self) -> Msg:
        """The reply's message: what the agent said at last, and what it cost. The context holds the way there."""
        state = self.state
        said: list[Block] = []
        for block in (block for msg in state.context if msg.id == state.reply_id and msg.role == "assistant" for block in msg.content):
            said = [] if isinstance(block, ToolResultBlock | HintBlock) else [*said, block]
        return Msg(
            self.view.name,
            [block for block in said if not isinstance(block, ToolCallBlock)],
            "assistant",
            id=state.reply_id,
            usage=total(self.view.steps),
            finished_at=timestamp(),
            finished_reason=self._reason,
            error=self._error,
            structured_output=state.structured_output,
        )


async def _keep_all(context_config: ContextConfig, instructions: Any) -> None:
    """Nothing is compressed unless a middleware does it."""
