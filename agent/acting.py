"""Acting: the one place where tools are run. Which calls may run together, what each is allowed, and a result for every one of them.

A call is found, read and checked; then `on_check_permission`; then `on_acting` around the tool itself; then its result is cut to size and
kept. What goes wrong with a tool is its result; what goes wrong in a layer ends the reply, after the other calls have ended.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from .decisions import BatchPlan, PermissionBehavior, PermissionDecision, Planned
from .events import AgentEvent, ToolResultDataDeltaEvent, ToolResultEndEvent, ToolResultStartEvent, ToolResultTextDeltaEvent, shown
from .hooks import call_through, events_through
from .messages.blocks import DataBlock, TextBlock, ToolCallBlock, ToolCallState, ToolResultBlock, ToolResultState
from .tools.arguments import BadArguments, read
from .tools.chunks import Joining, ToolChunk, ToolResponse, as_chunk, weight
from .tools.running import cut, plain, ran
from .tools.tool import ToolBase

if TYPE_CHECKING:
    from .reply import Reply
    from .view import ReplyView

_AHEAD = 64  # events that tools may be ahead of whoever reads them
NOBODY_TO_ASK = "This call needs an approval that nobody can give here, so it was not made."


async def act(reply: Reply, calls: Sequence[ToolCallBlock]) -> AsyncGenerator[AgentEvent, None]:
    """Run these calls, those that may together, and answer all."""
    view = reply.view
    plan = await planned(view, calls)
    try:
        for group in groups(view, plan):
            if len(group) == 1:
                async with aclosing(_call(reply, group[0])) as events:
                    async for event in events:
                        yield event
            else:
                async with aclosing(_together(reply, group)) as events:
                    async for event in events:
                        yield event
    finally:
        reply.keep_results(calls)
    if plan.end is not None:
        reply.ending = plan.end


async def planned(view: ReplyView, calls: Sequence[ToolCallBlock]) -> BatchPlan:
    """What is to become of these calls, after `on_tool_calls`."""

    async def core(tool_calls: Sequence[ToolCallBlock]) -> BatchPlan:
        return BatchPlan.running(tool_calls)

    plan: BatchPlan = await call_through(
        view.hooks, "on_tool_calls", view, {"tool_calls": list(calls)}, core, check=_no_looser, wants="a BatchPlan"
    )
    known = {each.call.id: each for each in plan}
    return BatchPlan(tuple(known.get(call.id, Planned(call)) for call in calls), plan.end)


def _no_looser(returned: Any, inner: Any) -> BatchPlan | None:
    if not isinstance(returned, BatchPlan):
        return None
    return returned if inner is None else returned.at_least(inner)


def groups(view: ReplyView, plan: BatchPlan) -> list[list[Planned]]:
    """Neighbours that may run together, together. An unknown tool runs nothing, so it may stand beside any."""
    out: list[list[Planned]] = []
    open_group = False
    for each in plan:
        tool = view.find_tool(each.call.name)
        together = tool is None or tool.is_concurrency_safe or each.verdict != "run"
        if together and open_group:
            out[-1].append(each)
        else:
            out.append([each])
        open_group = together
    return out


async def _together(reply: Reply, group: Sequence[Planned]) -> AsyncGenerator[AgentEvent, None]:
    queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
    room = asyncio.Semaphore(_AHEAD)

    async def run(each: Planned) -> None:
        try:
            async with aclosing(_call(reply, each)) as events:
                async for event in events:
                    await room.acquire()
                    queue.put_nowait(event)
        finally:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(run(each)) for each in group]
    left = len(tasks)
    try:
        while left:
            event = await queue.get()
            if event is None:
                left -= 1
                continue
            room.release()
            yield event
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failed = [error for task in tasks if not task.cancelled() and (error := task.exception()) is not None]
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} tool calls failed at once", failed)


async def _call(reply: Reply, each: Planned) -> AsyncGenerator[AgentEvent, None]:
    """One call, to its result."""
    view, call = reply.view, each.call
    if call.id in reply.results:
        return
    yield ToolResultStartEvent(reply_id=view.reply_id, tool_call_id=call.id, tool_call_name=call.name)
    telling = Result(view.reply_id, call.id, *limits(reply, call))
    if each.verdict == "answer" and each.result is not None:
        response = ToolResponse(_content(each.result), each.result.state, each.result.metadata)
    elif each.verdict == "ask":
        response = ToolResponse.error(each.message or NOBODY_TO_ASK, ToolResultState.DENIED)
    else:
        refused = await _refusal(reply, call)
        if refused is not None:
            response = refused
        else:
            call.state = ToolCallState.ALLOWED
            pieces = Joining()
            async with aclosing(acted(reply, call)) as chunks:
                async for chunk in chunks:
                    pieces.add(chunk)
                    if not isinstance(chunk, ToolResponse):
                        for event in telling.events(chunk):
                            yield event
            response = pieces.whole()
    result = _kept(reply, call, response)
    for event in telling.rest(result):
        yield event
    yield ToolResultEndEvent(reply_id=view.reply_id, tool_call_id=call.id, state=result.state, metadata=result.metadata)


def _content(result: ToolResultBlock) -> list[Any]:
    return [TextBlock(result.output)] if isinstance(result.output, str) else list(result.output)


async def _refusal(reply: Reply, call: ToolCallBlock) -> ToolResponse | None:
    """Why this call is not run, if it isn't: nobody has such a tool, its arguments can't be used, or it is not permitted."""
    view, tool = reply.view, reply.tool(call.name)
    try:
        arguments = mended_arguments(call)
        arguments = tool.checked(arguments) if tool is not None else arguments
    except BadArguments as error:
        return ToolResponse.error(f"{call.name} was not run. {error}", error_type="invalid_arguments")
    except Exception as error:  # noqa: BLE001 - the tool's own check has failed, and so has the tool
        return _failed(call, error)
    if tool is None:
        return ToolResponse.error(view.toolkit.unknown(call.name), error_type="unknown_tool")

    async def core(tool_call: ToolCallBlock, tool: ToolBase, tool_input: dict[str, Any]) -> PermissionDecision:
        return PermissionDecision.allow()

    if not view.hooks.stacks["on_check_permission"]:
        return None
    given = {"tool_call": copy.deepcopy(call), "tool": copy.copy(tool), "tool_input": copy.deepcopy(arguments)}
    decision: PermissionDecision = await call_through(
        view.hooks, "on_check_permission", view, given, core, check=_is_decision, wants="a PermissionDecision"
    )
    if decision.behavior is PermissionBehavior.ALLOW:
        return None
    reply.rejected = True
    words = decision.message or (NOBODY_TO_ASK if decision.behavior is PermissionBehavior.ASK else f"{call.name} is not permitted.")
    return ToolResponse.error(words, ToolResultState.DENIED, error_type="denied")


def _is_decision(returned: Any, inner: Any) -> PermissionDecision | None:
    return returned if isinstance(returned, PermissionDecision) else None


def mended_arguments(call: ToolCallBlock) -> dict[str, Any]:
    """The arguments of a call. What is no JSON is written into the history as JSON: some providers refuse a history without it.

    Raises:
        BadArguments: they can't be used.
    """
    try:
        arguments, repaired = read(call.input)
    except BadArguments:
        call.input = json.dumps({"unreadable_arguments": call.input[:2000]}, ensure_ascii=False)
        raise
    if repaired or not call.input.strip():
        call.input = json.dumps(arguments, ensure_ascii=False)
    return arguments


def read_arguments(tool: ToolBase, text: str) -> dict[str, Any]:
    """The arguments of a call, as its tool takes them.

    Raises:
        BadArguments: they can't be used.
    """
    return tool.checked(read(text)[0])


async def acted(reply: Reply, call: ToolCallBlock) -> AsyncGenerator[ToolChunk, None]:
    """The pieces of one tool's result, through the `on_acting` layers. A tool's own failure becomes its result here, outside of them, so
    that a layer may retry it."""
    view = reply.view
    failed: list[BaseException] = []

    async def core(tool_call: ToolCallBlock) -> AsyncGenerator[ToolChunk, None]:
        tool = reply.tool(tool_call.name)
        if tool is None:
            yield ToolResponse.error(view.toolkit.unknown(tool_call.name), error_type="unknown_tool")
            return
        pieces, whole = Joining(), False
        try:
            arguments = read_arguments(tool, tool_call.input)
            injected = {"_agent_state": view.state} if tool.is_state_injected else {}
            async with aclosing(ran(tool, {**arguments, **injected})) as chunks:
                async for chunk in chunks:
                    pieces.add(chunk)
                    whole = isinstance(chunk, ToolResponse)
                    yield chunk
        except Exception as error:
            failed.append(error)
            raise
        if not whole:
            yield pieces.whole()

    try:
        async with aclosing(events_through(view.hooks, "on_acting", view, {"tool_call": call}, core)) as chunks:
            async for chunk in chunks:
                yield as_chunk(chunk)
    except Exception as error:
        if not any(error is each for each in failed):
            raise
        yield _failed(call, error)


def _failed(call: ToolCallBlock, error: Exception) -> ToolResponse:
    """What a tool's own failure is to the model: a result that says so."""
    kind, words = type(error).__name__, ""
    with suppress(Exception):  # what can't be said is not said
        words = str(error)[:2000]
    return ToolResponse.error(f"{call.name} failed: {kind}: {words}" if words else f"{call.name} failed: {kind}", error_type=kind)


def limits(reply: Reply, call: ToolCallBlock) -> tuple[int, int]:
    """How many characters of text, and of base64, of this call's result go to the model."""
    tool, config = reply.tool(call.name), reply.view.context_config
    own = tool.result_limit if tool is not None else None
    return config.tool_result_limit if own is None else own, config.tool_data_limit


def _kept(reply: Reply, call: ToolCallBlock, response: ToolResponse) -> ToolResultBlock:
    """The result, cut to size, where the loop finds it."""
    content, removed = cut(response.content, *limits(reply, call))
    metadata = plain(response.metadata) | ({"truncated": removed} if removed else {})
    state = ToolResultState.SUCCESS if response.state is ToolResultState.RUNNING else response.state
    only_text = len(content) == 1 and isinstance(content[0], TextBlock)
    output: Any = content[0].text if only_text and isinstance(content[0], TextBlock) else content or ""
    result = ToolResultBlock(call.id, call.name, output, state, metadata)
    reply.results[call.id] = result
    call.state = ToolCallState.FINISHED
    return result


class Result:
    """Tells one tool's pieces as events; at most as much as goes to the model."""

    def __init__(self, reply_id: str, call_id: str, limit: int, data_limit: int) -> None:
        self._reply_id, self._call_id = reply_id, call_id
        self._left, self._data_left = limit, data_limit
        self._told = False

    def events(self, chunk: ToolChunk) -> list[AgentEvent]:
        return [event for block in chunk.content for event in self._event(block)]

    def rest(self, result: ToolResultBlock) -> list[AgentEvent]:
        """What was not told as it came."""
        return [] if self._told else self.events(ToolChunk(_content(result)))

    def _event(self, block: TextBlock | DataBlock) -> list[AgentEvent]:
        self._told = True
        if isinstance(block, TextBlock):
            text, self._left = block.text[: max(self._left, 0)], self._left - len(block.text)
            return [ToolResultTextDeltaEvent(reply_id=self._reply_id, tool_call_id=self._call_id, delta=text)] if text else []
        if weight(block) > self._data_left:
            return []
        self._data_left -= weight(block)
        where = shown(block.source)
        return [ToolResultDataDeltaEvent(reply_id=self._reply_id, tool_call_id=self._call_id, block_id=block.id, **where)]
