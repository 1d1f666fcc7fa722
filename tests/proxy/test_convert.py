"""A whole answer as a stream and back again says the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.convert import as_chunks, as_whole

TEXT = st.text(max_size=5)
LOGPROB = st.fixed_dictionaries(
    {"token": TEXT, "logprob": st.floats(-9, 0), "bytes": st.none() | st.lists(st.integers(0, 255), max_size=2)}
)
LOGPROBS = st.none() | st.fixed_dictionaries({"content": st.lists(LOGPROB, max_size=2), "refusal": st.none()})


def calls(count: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    function = st.fixed_dictionaries({"name": st.text(min_size=1, max_size=3), "arguments": TEXT})
    custom = st.fixed_dictionaries({"name": st.text(min_size=1, max_size=3), "input": TEXT})
    one = st.fixed_dictionaries({"type": st.just("function"), "function": function}) | st.fixed_dictionaries(
        {"type": st.just("custom"), "custom": custom, "extra_content": st.just({"google": {"thought_signature": "s"}})}
    )
    return st.lists(one, min_size=1, max_size=count).map(lambda some: [{"id": f"call_{n}", **each} for n, each in enumerate(some)])


MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | TEXT},
    optional={
        "refusal": st.none() | TEXT,
        "reasoning_content": TEXT,
        "annotations": st.lists(st.fixed_dictionaries({"type": TEXT}), max_size=2),
        "audio": st.none() | st.fixed_dictionaries({"id": TEXT, "data": TEXT}),
        "tool_calls": calls(3),
    },
)
FINISH = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def numbered(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"index": index, **choice} for index, choice in enumerate(choices)]


def answers(kind: str, choice: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "id": TEXT,
            "object": st.just(kind),
            "created": st.integers(0, 2**33),
            "model": TEXT,
            "choices": st.lists(choice, min_size=1, max_size=3).map(numbered),
            "usage": st.just(USAGE),
        },
        optional={"system_fingerprint": st.none() | TEXT, "service_tier": TEXT},
    )


CHATS = answers("chat.completion", st.fixed_dictionaries({"message": MESSAGE, "logprobs": LOGPROBS, "finish_reason": FINISH}))
COMPLETIONS = answers("text_completion", st.fixed_dictionaries({"text": TEXT, "logprobs": st.none(), "finish_reason": FINISH}))


@given(CHATS | COMPLETIONS)
def test_there_and_back_again(answer: dict[str, Any]) -> None:
    assert as_whole(as_chunks(answer, usage_frame=True)) == answer


@given(CHATS | COMPLETIONS)
def test_a_usage_frame_only_for_who_asked(answer: dict[str, Any]) -> None:
    asked, unasked = as_chunks(answer, usage_frame=True), as_chunks(answer, usage_frame=False)
    assert asked[:-1] == unasked
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"] == USAGE
    assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in unasked)


def test_a_whole_answer_as_a_stream() -> None:
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = {"id": "c1", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": ""}]}
    head = {"id": "c1", "model": "m", "object": "chat.completion.chunk"}
    delta = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]}
    assert as_chunks(answer, usage_frame=True) == [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]


def stream(*deltas: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    return [{"object": "chat.completion.chunk", "choices": [{"index": index, "delta": delta}]} for delta in deltas]


def test_a_stream_adds_up() -> None:
    chunks = [
        *stream({"role": "assistant", "content": ""}, {"content": "Hel"}),
        *stream({"content": "B"}, index=1),
        *stream({"content": "lo", "annotations": [1]}, {"content": None, "annotations": [2]}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": {"content": [1], "refusal": None}}], "usage": None},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}, {"index": 0, "logprobs": {"content": [2]}}]},
        {"choices": [], "usage": USAGE, "model": "m"},
    ]
    first = {"role": "assistant", "content": "Hello", "annotations": [1, 2]}
    assert as_whole(chunks) == {
        "object": "chat.completion",
        "model": "m",
        "usage": USAGE,
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": first, "logprobs": {"content": [1, 2], "refusal": None}},
            {"index": 1, "finish_reason": "length", "message": {"role": "assistant", "content": "B"}},
        ],
    }


def part(index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    named = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {**named, "function": function}


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        pytest.param(
            [part(0, "A", "a", ""), part(1, "B", "b", ""), part(0, arguments='{"t":"A"}'), part(1, arguments='{"t":"B"}')],
            [("A", "a", '{"t":"A"}'), ("B", "b", '{"t":"B"}')],
            id="TOOL-01: parallel calls, later parts without ids",
        ),
        pytest.param(
            [part(0, "A", "f", '{"q":1}'), part(0, "B", "f", '{"q":2}')],
            [("A", "f", '{"q":1}'), ("B", "f", '{"q":2}')],
            id="TOOL-02: index 0 for every call",
        ),
        pytest.param(
            [part(0, "A", "f", "{"), part(1, arguments='"q":'), part(2, arguments="1}")],
            [("A", "f", '{"q":1}')],
            id="TOOL-04: fragments with a growing index",
        ),
        pytest.param([part(0, "A", "f", '{"a'), part(0, "A", "f", '":1}')], [("A", "f", '{"a":1}')], id="id and name on each part"),
        pytest.param([part(0, "A", "f", "{"), part(0, "", arguments="}")], [("A", "f", "{}")], id="an empty id is none"),
        pytest.param([part(None, "A", "f", "1"), part(None, "B", "g", "2")], [("A", "f", "1"), ("B", "g", "2")], id="no index at all"),
        pytest.param([part(0, None, "f", "1"), part(1, None, "g", "2")], [(None, "f", "1"), (None, "g", "2")], id="no ids at all"),
        pytest.param([part(0, "A", "f", {"q": 1})], [("A", "f", '{"q": 1}')], id="arguments as an object"),
    ],
)
def test_tool_calls_are_put_together(parts: list[dict[str, Any]], calls: list[tuple[str | None, str, str]]) -> None:
    message = as_whole(stream(*({"tool_calls": [each]} for each in parts)))["choices"][0]["message"]
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]] == calls
    assert as_whole(stream({"tool_calls": parts}))["choices"][0]["message"] == message, "in one chunk or in many"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["index", "delta", "message", "text", "logprobs", "content", "tool_calls", "function", "name"]), inner
        )
    ),
    max_leaves=6,
)
JUNK_CHOICES = st.lists(
    st.dictionaries(st.sampled_from(["index", "delta", "message", "text", "logprobs", "finish_reason"]), JUNK), max_size=3
)
JUNK_CHUNKS = st.lists(st.fixed_dictionaries({}, optional={"object": JUNK, "choices": JUNK_CHOICES | JUNK, "usage": JUNK}), max_size=4)


@given(JUNK_CHUNKS)
def test_nothing_that_a_provider_streams_raises(chunks: list[dict[str, Any]]) -> None:
    whole = as_whole(chunks)
    assert isinstance(whole["choices"], list)
    assert isinstance(as_chunks(whole, usage_frame=True), list)
    for chunk in chunks:
        assert isinstance(as_chunks(chunk, usage_frame=True), list)
