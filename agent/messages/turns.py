"""The order that providers insist on: each tool call has exactly one result, which follows the message of its call.

A reply is one message here, whose blocks tell what happened in order; `turns` cuts it where a provider's dialect begins a new message.
`mended` makes a history valid, whatever happened to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Literal

import msgspec

from .blocks import Block, HintBlock, ToolCallBlock, ToolResultBlock, ToolResultState
from .msg import Msg

UNANSWERED = "The call was interrupted; nobody knows what it did."


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes one message on the wire (of `tool`: one for each result, where the dialect wants it so)."""

    role: Literal["system", "user", "assistant", "tool"]
    blocks: Sequence[Block]
    of: Msg

    @property
    def is_first(self) -> bool:
        """It begins the message, so that what the message itself carries goes with it."""
        return not self.of.content or (bool(self.blocks) and self.blocks[0] is self.of.content[0])


@dataclass(slots=True)
class _Open:
    """An assistant's turn in the making: what it says, its results, and hints that have to wait for those."""

    of: Msg | None = None
    said: list[Block] = field(default_factory=list)
    results: list[tuple[Block, Msg]] = field(default_factory=list)
    hints: list[tuple[Block, Msg]] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """A call has no result yet."""
        calls = {block.id for block in self.said if isinstance(block, ToolCallBlock)}
        return bool(calls - {block.id for block, _ in self.results})

    def flush(self) -> Iterator[Turn]:
        if self.said and self.of is not None:
            yield Turn("assistant", self.said, self.of)
        for block, msg in self.results:
            yield Turn("tool", [block], msg)
        for block, msg in self.hints:
            yield Turn("user", [block], msg)
        self.of, self.said, self.results, self.hints = None, [], [], []


def turns(messages: Iterable[Msg]) -> Iterator[Turn]:
    """The messages as a provider wants them, in order. Nothing is added and nothing is left out."""
    now = _Open()
    for msg in messages:
        if msg.role != "assistant" and not any(isinstance(block, ToolResultBlock) for block in msg.content):
            yield from now.flush()
            yield Turn(msg.role, msg.content, msg)
            continue
        if not now.waits:
            yield from now.flush()
        if not msg.content:
            yield Turn("assistant" if msg.role == "assistant" else "user", [], msg)
        for block in msg.content:
            if isinstance(block, HintBlock):
                if not now.waits:
                    yield from now.flush()
                now.hints.append((block, msg))
            elif isinstance(block, ToolResultBlock):
                now.results.append((block, msg))
            elif msg.role != "assistant":
                now.hints.append((block, msg))  # Anthropic's way: results, and then what the user says
            else:
                if now.results or now.hints:
                    yield from now.flush()
                now.of = now.of or msg
                now.said.append(block)
    yield from now.flush()


def mended(messages: Sequence[Msg], *, words: str = UNANSWERED) -> list[Msg]:
    """The same history with every call answered once: open calls get a result that says they were interrupted, results without a
    call and second results are left out. What was right already is returned as it was."""
    open_calls: dict[str, ToolCallBlock] = {}
    sealed = False  # something came after the calls: what the model says next, it says without having seen the rest
    out: list[Msg] = []
    for msg in messages:
        if msg.role != "assistant" and not any(isinstance(block, ToolResultBlock) for block in msg.content):
            _answer(open_calls, out, words)
            out.append(msg)
            continue
        kept: list[Block] = []
        for block in msg.content:
            if isinstance(block, ToolResultBlock):
                if open_calls.pop(block.id, None) is None:
                    continue
                sealed = True
            elif isinstance(block, HintBlock) or msg.role != "assistant":
                sealed = True
            elif open_calls and sealed:
                kept += [_interrupted(call, words) for call in open_calls.values()]
                open_calls.clear()
            if not open_calls:
                sealed = False
            if isinstance(block, ToolCallBlock):
                if block.id in open_calls:
                    continue
                open_calls[block.id] = block
            kept.append(block)
        if len(kept) == len(msg.content) and all(map(is_, kept, msg.content)):
            out.append(msg)
        elif kept:
            out.append(_with(msg, kept))
    _answer(open_calls, out, words)
    return out


def _answer(open_calls: dict[str, ToolCallBlock], out: list[Msg], words: str) -> None:
    """Answers to the calls that nobody answered, put at the end of the last message that made one."""
    if not open_calls:
        return
    last = out[-1]
    out[-1] = _with(last, [*last.content, *(_interrupted(call, words) for call in open_calls.values())])
    open_calls.clear()


def _with(msg: Msg, blocks: list[Block]) -> Msg:
    return msgspec.structs.replace(msg, content=blocks)


def _interrupted(call: ToolCallBlock, words: str) -> ToolResultBlock:
    return ToolResultBlock(call.id, call.name, words, ToolResultState.INTERRUPTED)


def unanswered(messages: Sequence[Msg]) -> list[ToolCallBlock]:
    """The calls that have no result, in order."""
    answered = {block.id for msg in messages for block in msg.content if isinstance(block, ToolResultBlock)}
    return [block for msg in messages for block in msg.content if isinstance(block, ToolCallBlock) and block.id not in answered]
