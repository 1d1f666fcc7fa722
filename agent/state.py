"""The state that a reply works on: what was said, where the loop stands, and the scopes that middlewares keep things in.

    reply    until the next reply of the thread begins; survives a pause
    thread   as long as the conversation
    store    beyond it: `agent.store`, by namespace

All of it is JSON. A reply works on a copy of its thread and gives it back when it ends, so that two replies at once never see each
other's half; nothing of a reply is ever kept on an agent, a model, a tool or a middleware.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from .errors import Conflict
from .messages.blocks import Block, ToolCallBlock, new_id
from .messages.msg import Msg
from .messages.turns import mended, unanswered
from .stores.base import Store, written

SCHEMA = 1
_TRIES = 20
_turns: WeakValueDictionary[tuple[int, int, str, str], asyncio.Lock] = WeakValueDictionary()


class AgentState:
    """One reply's view of its conversation. `session_id` is the thread's id; `reply` and `thread` are the two scopes."""

    def __init__(self, session_id: str = "", *, keys: Mapping[int, str] | None = None) -> None:
        self.session_id = session_id
        self.reply_id = new_id()
        self.context: list[Msg] = []
        self.cur_iter = 0
        self.reply: dict[str, Any] = {}
        self.thread: dict[str, Any] = {}
        self.structured_schema: dict[str, Any] | None = None
        self.structured_output: Any = None
        self._keys = keys or {}

    @property
    def thread_id(self) -> str:
        return self.session_id

    @property
    def middle_context(self) -> dict[str, Any]:
        """What middlewares keep for the thread, by their own keys (AgentScope's name)."""
        kept: dict[str, Any] = self.thread.setdefault("middle_context", {})
        return kept

    def of(self, middleware: object) -> dict[str, Any]:
        """What this middleware keeps for this reply; two of one class in a stack have one each."""
        kept: dict[str, Any] = self.reply.setdefault(self.key_of(middleware), {})
        return kept

    def thread_of(self, middleware: object) -> dict[str, Any]:
        """What this middleware keeps for the thread."""
        kept: dict[str, Any] = self.middle_context.setdefault(self.key_of(middleware), {})
        return kept

    def key_of(self, middleware: object) -> str:
        return self._keys.get(id(middleware)) or getattr(middleware, "key", "") or type(middleware).__name__

    def append_context(self, name: str, blocks: Sequence[Block]) -> None:
        """Put blocks at the end of the agent's own message of this reply, which is begun if it isn't there."""
        last = self.context[-1] if self.context else None
        if last is not None and last.role == "assistant" and last.name == name and last.id == self.reply_id:
            last.content.extend(blocks)
        else:
            self.context.append(Msg(name, list(blocks), "assistant", id=self.reply_id))

    def open_calls(self) -> list[ToolCallBlock]:
        """The calls of this reply that have no result."""
        return unanswered([msg for msg in self.context if msg.id == self.reply_id])

    def settle(self) -> None:
        """Make the context valid, whatever happened: every call has its one result."""
        self.context[:] = mended(self.context)


class Thread:
    """A conversation in a store. `begin` gives a reply its copy, `end` takes it back."""

    def __init__(self, store: Store, namespace: str, thread_id: str) -> None:
        self._store = store
        self._namespace = namespace
        self.id = thread_id
        self._version = 0
        self._before: dict[str, Any] = {"context": [], "thread": {}}

    async def begin(self, state: AgentState) -> None:
        """Fill `state` with what was said and kept so far."""
        record = await self._store.get(self._namespace, self.id)
        if record is None:
            return
        self._version = record.version
        self._before = _checked(record.value, self.id)
        state.context[:] = [Msg.from_dict(each) for each in self._before["context"]]
        state.thread |= json.loads(written(self._before["thread"]))

    async def end(self, state: AgentState) -> None:
        """Keep what `state` has become. If another reply ended meanwhile, both stay: its messages first, then ours.

        Raises:
            NotJSON: a middleware keeps what can't be written down.
        """
        ours = kept(state)
        # Those of this process keep one after another, and so never meet: what is left are other processes.
        async with self._turn():
            merged, version = ours, self._version
            for _ in range(_TRIES):
                try:
                    self._version = await self._store.put(self._namespace, self.id, merged, expected=version)
                    return
                except Conflict:
                    record = await self._store.get(self._namespace, self.id)
                    theirs = _checked(record.value, self.id) if record else {"context": [], "thread": {}}
                    version = record.version if record else 0
                    merged = {**ours, **_merged(self._before, ours, theirs)}
            raise Conflict(f"The thread {self.id!r} is written by too many replies at once.")

    def _turn(self) -> asyncio.Lock:
        """The lock of all that end this thread on this loop; gone when nobody holds it."""
        place = (id(asyncio.get_running_loop()), id(self._store), self._namespace, self.id)
        lock = _turns.get(place)
        if lock is None:
            lock = _turns[place] = asyncio.Lock()
        return lock


def kept(state: AgentState) -> dict[str, Any]:
    """The state as it is stored."""
    return {
        "schema": SCHEMA,
        "context": [msg.to_dict() for msg in state.context],
        "thread": state.thread,
        "reply": {"id": state.reply_id, "cur_iter": state.cur_iter, "scope": state.reply},
    }


def _checked(value: Any, thread_id: str) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        found = value.get("schema") if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"The thread {thread_id!r} was written by another version (schema {found!r}, this one reads {SCHEMA}).")
    return value


def _merged(before: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    known = {msg["id"] for msg in before["context"]}
    there = {msg["id"] for msg in theirs["context"]}
    added = [msg for msg in ours["context"] if msg["id"] not in known and msg["id"] not in there]
    return {"context": [*theirs["context"], *added], "thread": _joined(before["thread"], ours["thread"], theirs["thread"], "")}


def _joined(before: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Both sides' changes. Where both changed one value the later writer's stands, and that is said aloud."""
    out = dict(theirs)
    for name, value in ours.items():
        was, other = before.get(name), theirs.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            out[name] = _joined(was if isinstance(was, dict) else {}, value, other, f"{path}{name}.")
        elif value != was:
            if name in theirs and other not in (was, value):
                warnings.warn(
                    f"Two replies changed {path}{name} of one thread at once; the later one stands.", RuntimeWarning, stacklevel=4
                )
            out[name] = value
    for name in before:
        if name not in ours and theirs.get(name) == before[name]:
            out.pop(name, None)
    return out
