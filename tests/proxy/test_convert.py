"""A whole answer as a stream and back again says the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.proxy.convert import Whole, as_chunks, as_frames, as_whole, encoded

from upstream import junk

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


@given(CHATS | COMPLETIONS, st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_bytes_become_the_same_stream_unread(answer: dict[str, Any], indent: int | None, ascii_only: bool, usage_frame: bool) -> None:
    frames = as_frames(json.dumps(answer, indent=indent, ensure_ascii=ascii_only).encode(), usage_frame=usage_frame)
    assert [json.loads(frame) for frame in frames] == as_chunks(answer, usage_frame=usage_frame)
    assert not any(b"\n" in frame or b"\r" in frame for frame in frames), "a line end would end a line of the event"


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"choices":', b'{"choices":{}}', b'{"choices":[1]}', b'{"choices":[{"message":{"tool_calls":[1]}}]}']
)
def test_bytes_of_another_shape_are_for_who_builds_them(raw: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        as_frames(raw, usage_frame=True)


def test_what_is_absent_or_null_in_bytes() -> None:
    assert as_frames(b"{}", usage_frame=True) == []
    (begun, ended) = as_frames(b'{"choices":[{"message":null,"finish_reason":null}],"usage":null}', usage_frame=True)
    assert json.loads(begun)["choices"] == [{"finish_reason": None}]
    assert json.loads(ended)["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]


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


JUNK = junk("index", "delta", "message", "text", "logprobs", "content", "tool_calls", "function", "name")
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


@pytest.mark.parametrize("odd", ["\ud83d", 2**70])
def test_what_msgspec_refuses_is_encoded_all_the_same(odd: Any) -> None:
    assert json.loads(encoded({"a": odd})) == {"a": odd}
    assert encoded({"a": float("nan")}) == b'{"a":null}'


# How long it takes


def seconds(work: Callable[[], object]) -> float:
    """The best of three, since others run here too."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x" * 2000},
        {"reasoning_content": "x" * 2000},
        {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 2000}}]},
        {"annotations": [0] * 250},
    ],
    ids=lambda delta: next(iter(delta)),
)
def test_a_stream_adds_up_in_time_that_its_length_decides(delta: dict[str, Any]) -> None:
    """A copy at each step would make the second half of 8 MiB a hundred times as dear as the first percent."""
    chunks = stream(*[delta] * 4000)
    assert seconds(lambda: as_whole(chunks)) < 40 * seconds(lambda: as_whole(chunks[:400])) + 0.01


def test_what_was_added_up_goes_on_growing() -> None:
    whole = Whole()
    for text in ("a", "b"):
        whole.add(stream({"content": text})[0])
        assert whole.answer()["choices"][0]["message"]["content"] == "ab"[: "ab".index(text) + 1]


def test_a_long_answer_is_turned_without_being_built() -> None:
    logprobs = {"content": [{"token": "t", "logprob": -0.5, "bytes": [116]}] * 40_000}
    raw = json.dumps({"choices": [{"index": 0, "message": {"content": "t" * 40_000}, "logprobs": logprobs}]}).encode()
    assert seconds(lambda: as_frames(raw, usage_frame=True)) < seconds(lambda: json.loads(raw)) / 2
