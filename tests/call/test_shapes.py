"""call/shapes.py: what a rule says, in OpenAI's shapes."""

from __future__ import annotations

import struct
from base64 import b64decode
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from spangate.call.body import Body
from spangate.call.call import Call, Head, Op, Target
from spangate.call.rules import Rule
from spangate.call.shapes import DIMENSIONS, Asked, Speech, model_of, pieces, unit_vector, usage_object, vectors


def call_of(op: Op = "chat", *, head: Head | None = None, **body: Any) -> Call:
    return Call(op, "m", Body.of({"model": "m", **body}), head=head or Head())


def speech_of(rule: dict[str, Any], call: Call | None = None) -> Speech:
    call = call or call_of(messages=[{"role": "user", "content": "one two"}])
    return Speech.of(Rule.model_validate(rule), call, Asked.of(call), serial=3, created=9)


# ---- what was asked


@pytest.mark.parametrize(
    ("call", "texts", "last"),
    [
        (call_of(messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]), ["s", "u"], "u"),
        (
            call_of(messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]),
            ["a", "b", "c"],
            "b",
        ),
        (
            call_of(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}, {"text": "y"}]}]),
            ["x", "y"],
            "xy",
        ),
        (call_of(messages=[{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": []}]), [], ""),
        (call_of(messages=[]), [], ""),
        (call_of(messages=5), [], ""),
        (call_of(messages=[5, {"content": {"text": "x"}}, {"role": "user", "content": [5, ["x"]]}]), [], ""),
        (call_of(), [], ""),
        (call_of("completions", prompt="p q"), ["p q"], "p q"),
        (call_of("completions", prompt=["p", "q"]), ["p", "q"], "q"),
        (call_of("completions", prompt=[1, 2]), [], ""),
        (call_of("embeddings", input=["i", "j"]), ["i", "j"], "j"),
    ],
)
def test_the_texts_of_a_call(call: Call, texts: list[str], last: str) -> None:
    assert Asked.of(call) == Asked(texts, last)


def test_the_model_is_the_target() -> None:
    assert model_of(call_of()) == "m"
    assert model_of(call_of().to(Target("p", "n"))) == "n"


# ---- pieces


@pytest.mark.parametrize(
    ("text", "count", "parts"),
    [
        ("one two  three\n", None, ["one", " two", "  three", "\n"]),
        ("word", None, ["word"]),
        ("", None, []),
        ("", 3, []),
        ("abcdef", 3, ["ab", "cd", "ef"]),
        ("abc", 9, ["a", "b", "c"]),
        ("abc", 1, ["abc"]),
    ],
)
def test_pieces(text: str, count: int | None, parts: list[str]) -> None:
    assert pieces(text, count) == parts


@given(st.text(), st.one_of(st.none(), st.integers(1, 50)))
def test_pieces_add_up(text: str, count: int | None) -> None:
    parts = pieces(text, count)
    assert "".join(parts) == text
    assert all(parts)
    assert count is None or len(parts) == min(count, len(text))


# ---- chats


def test_what_a_call_does_not_say_is_counted() -> None:
    speech = speech_of({"answer": {"text": "a b c", "reasoning": "d"}})
    assert (speech.usage.input, speech.usage.output, speech.finish) == (2, 4, "stop")


def test_details_never_exceed_their_totals() -> None:
    usage = speech_of({"usage": {"input": 3, "output": 2, "cached": 9, "cache_write": 9, "reasoning": 9}}).usage
    assert (usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning) == (3, 3, 0, 2, 2)


def test_an_answer_that_says_nothing_echoes() -> None:
    assert speech_of({"answer": {"chunks": 2}}).text == "one two"
    assert speech_of({"answer": {"text": ""}}).text == ""
    assert speech_of({"answer": {"reasoning": "hm"}}).text == ""


def test_reasoning_text_and_tool_calls_come_in_that_order() -> None:
    rule = {"answer": {"reasoning": "hm", "text": "a b", "tool_calls": [{"name": "f", "arguments": '{"x'}, {"name": "g", "id": "call_g"}]}}
    said = [chunk["choices"][0]["delta"] for step in speech_of(rule).content() for chunk in step]
    assert said == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "hm"},
        {"content": "a"},
        {"content": " b"},
        {"tool_calls": [{"index": 0, "id": "call_3_0_0", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x'}}]},
        {"tool_calls": [{"index": 1, "id": "call_g", "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
    ]


def test_chunks_cut_arguments_too() -> None:
    rule = {"answer": {"tool_calls": [{"name": "f", "arguments": {"city": "Rome"}}], "chunks": 4}}
    said = [chunk["choices"][0]["delta"] for step in speech_of(rule).content() for chunk in step]
    parts = [part["tool_calls"][0]["function"]["arguments"] for part in said[1:]]
    assert (len(parts), "".join(parts)) == (5, '{"city": "Rome"}')
    assert said[0]["content"] is None


def test_choices_are_said_alike_under_ids_of_their_own() -> None:
    call = call_of(messages=[{"role": "user", "content": "hi"}], head=Head(n=2))
    whole = speech_of({"answer": {"tool_calls": [{"name": "f"}]}}, call).whole(usage=True)
    assert [choice["message"]["tool_calls"][0]["id"] for choice in whole["choices"]] == ["call_3_0_0", "call_3_1_0"]
    assert speech_of({}, call).usage.output == 2


def test_usage_null_is_on_chunks_of_who_asked_for_usage() -> None:
    messages = [{"role": "user", "content": "hi"}]
    asked = speech_of({}, call_of(messages=messages, head=Head(stream=True, usage_frame=True)))
    assert all(chunk["usage"] is None for step in asked.content() for chunk in step)
    assert not any("usage" in chunk for step in speech_of({}).content() for chunk in step)


def test_cumulative_usage_grows_to_the_whole() -> None:
    speech = speech_of({"answer": {"text": "a b c d"}, "usage": "cumulative"})
    grown = [chunk["usage"]["completion_tokens"] for step in speech.content() for chunk in step]
    assert grown == [1, 1, 2, 3, 4]
    assert speech.end()[0]["usage"] == usage_object(speech.usage)


@pytest.mark.parametrize(
    "rule", [{}, {"answer": {"text": ""}}, {"answer": {"tool_calls": [{"name": "f"}]}}, {"answer": {"reasoning": "r"}}]
)
def test_openais_types_read_it(rule: dict[str, Any]) -> None:
    speech = speech_of(rule)
    for chunk in [*(chunk for step in speech.content() for chunk in step), *speech.end(opening=True), speech.usage_chunk()]:
        ChatCompletionChunk.model_validate(chunk)
    ChatCompletion.model_validate(speech.whole(usage=True))
    assert "usage" not in speech.whole(usage=False)


def test_a_legacy_completion() -> None:
    speech = speech_of({}, call_of("completions", prompt="one two"))
    Completion.model_validate(speech.whole(usage=True))
    said = [chunk for step in speech.content() for chunk in step] + speech.end()
    assert [chunk["choices"][0]["text"] for chunk in said] == ["one", " two", ""]
    assert {chunk["object"] for chunk in said} == {"text_completion"}


# ---- embeddings


def embedded(**body: Any) -> dict[str, Any]:
    call = call_of("embeddings", **body)
    return vectors(call, speech_of({}, call), usage=True)


def test_one_text_and_several() -> None:
    one, two = embedded(input="a b"), embedded(input=["a b", "c"])
    assert one["data"][0] == two["data"][0]
    assert [each["index"] for each in two["data"]] == [0, 1]
    assert (one["usage"], two["usage"]["prompt_tokens"]) == ({"prompt_tokens": 2, "total_tokens": 2}, 3)
    CreateEmbeddingResponse.model_validate(two)


def test_tokens_are_embedded_too() -> None:
    assert len(embedded(input=[1, 2, 3])["data"]) == 1
    assert len(embedded(input=[[1, 2], [3]])["data"]) == 2


@pytest.mark.parametrize(("asked", "length"), [(None, DIMENSIONS), (3, 3), (0, DIMENSIONS), (10**9, DIMENSIONS), ("3", DIMENSIONS)])
def test_dimensions(asked: Any, length: int) -> None:
    assert len(embedded(input="a", dimensions=asked)["data"][0]["embedding"]) == length


def test_base64_is_the_same_vector() -> None:
    packed = b64decode(embedded(input="a", dimensions=3, encoding_format="base64")["data"][0]["embedding"])
    assert struct.unpack("<3f", packed) == pytest.approx(unit_vector("a", 3), abs=1e-6)


@given(st.text(), st.integers(1, 40))
def test_vectors_have_length_one_and_the_text_decides_them(text: str, dimensions: int) -> None:
    vector = unit_vector(text, dimensions)
    assert isclose(sum(value * value for value in vector), 1.0)
    assert vector == unit_vector(text, dimensions)
