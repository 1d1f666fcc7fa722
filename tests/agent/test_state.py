"""agent/state.py: scopes, what two replies of one thread do to each other, and what can be written down."""

from __future__ import annotations

import pytest

from spangate.agent import AgentState, Conflict, HintBlock, MemoryStore, MiddlewareBase, NotJSON, TextBlock, ToolCallBlock, UserMsg
from spangate.agent.state import Thread


async def begun(store: MemoryStore, thread_id: str = "t") -> tuple[Thread, AgentState]:
    thread, state = Thread(store, "default/threads/a", thread_id), AgentState(thread_id)
    await thread.begin(state)
    return thread, state


def test_what_an_agent_says_in_one_reply_is_one_message() -> None:
    state = AgentState("t")
    state.append_context("a", [HintBlock("first")])
    state.append_context("a", [TextBlock("so")])
    state.context.append(UserMsg("u"))
    state.append_context("a", [TextBlock("and")])
    assert [[block.type for block in msg.content] for msg in state.context] == [["hint", "text"], ["text"], ["text"]]
    assert state.context[0].id == state.context[2].id == state.reply_id


def test_open_calls_are_settled_once() -> None:
    state = AgentState("t")
    state.append_context("a", [ToolCallBlock("c", "f"), ToolCallBlock("d", "f")])
    assert [call.id for call in state.open_calls()] == ["c", "d"]
    state.settle()
    state.settle()
    assert [(block.type, block.id) for block in state.context[0].content[2:]] == [("tool_result", "c"), ("tool_result", "d")]  # type: ignore[union-attr]


def test_two_middlewares_of_one_class_keep_their_own() -> None:
    class Counts(MiddlewareBase):
        pass

    class Named(MiddlewareBase):
        key = "mine"

    first, second = Counts(), Counts()
    state = AgentState("t", keys={id(first): "Counts", id(second): "Counts#2"})
    state.of(first)["n"] = 1
    state.of(second)["n"] = 2
    state.thread_of(first)["m"] = 3
    state.of(Named())["x"] = 0
    assert state.reply == {"Counts": {"n": 1}, "Counts#2": {"n": 2}, "mine": {"x": 0}}
    assert state.middle_context == {"Counts": {"m": 3}}
    assert state.thread == {"middle_context": {"Counts": {"m": 3}}}


async def test_a_reply_scope_ends_with_the_next_reply_a_thread_scope_does_not() -> None:
    store = MemoryStore()
    thread, state = await begun(store)
    state.reply["x"], state.thread["y"] = 1, 2
    await thread.end(state)
    record = await store.get("default/threads/a", "t")
    assert record is not None
    assert record.value["reply"] == {"id": state.reply_id, "cur_iter": 0, "scope": {"x": 1}}
    _, later = await begun(store)
    assert (later.reply, later.thread) == ({}, {"y": 2})
    later.thread["y"] = 3
    assert (await begun(store))[1].thread == {"y": 2}, "a copy is a copy"


async def test_two_replies_that_end_at_once_both_stay() -> None:
    store = MemoryStore()
    first, one = await begun(store)
    one.thread["kept"] = {"a": 1}
    await first.end(one)
    (left, mine), (right, theirs) = await begun(store), await begun(store)
    mine.context.append(UserMsg("mine"))
    theirs.context.append(UserMsg("theirs"))
    mine.thread["kept"]["b"] = 2
    theirs.thread["kept"]["c"] = 3
    del mine.thread["kept"]["a"]
    await right.end(theirs)
    await left.end(mine)
    _, after = await begun(store)
    assert [msg.text for msg in after.context] == ["theirs", "mine"]
    assert after.thread == {"kept": {"b": 2, "c": 3}}


async def test_the_same_value_changed_twice_is_said_aloud() -> None:
    store = MemoryStore()
    (left, mine), (right, theirs) = await begun(store), await begun(store)
    mine.thread["n"], theirs.thread["n"] = 1, 2
    await right.end(theirs)
    with pytest.warns(RuntimeWarning, match="Two replies changed n of one thread at once"):
        await left.end(mine)
    assert (await begun(store))[1].thread == {"n": 1}


async def test_what_is_no_json_is_refused_where_it_is() -> None:
    thread, state = await begun(MemoryStore())
    state.reply["m"] = {"list": [1, {"x": object()}]}
    with pytest.raises(NotJSON, match=r"reply\.scope\.m\.list\[1\]\.x is of type object"):
        await thread.end(state)


async def test_another_versions_state_is_not_guessed_at() -> None:
    store = MemoryStore()
    await store.put("default/threads/a", "t", {"schema": 99})
    with pytest.raises(ValueError, match="written by another version"):
        await begun(store)


class Busy(MemoryStore):
    async def put(self, namespace: str, key: str, value: object, *, expected: int | None = None) -> int:
        raise Conflict("busy")


async def test_a_thread_that_is_never_free_is_given_up() -> None:
    thread, state = await begun(Busy())
    with pytest.raises(Conflict, match="too many replies at once"):
        await thread.end(state)
