"""What an answer is made of: a Delta's two halves, made from each other on demand; Opened and Closed as values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call import sse
from spangate.call.events import Closed, Delta, Envelope, Opened, Usage, dicts, dumped

ENVELOPE = Envelope(id="c1", model="m", created=7)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def chunk(**delta: Any) -> bytes:
    return sse.frame(json.dumps({"choices": [{"index": 0, "delta": delta}]}, ensure_ascii=False).encode())


# From bytes to what they say


def test_bytes_say_their_text() -> None:
    delta = Delta(chunk(role="assistant") + chunk(content="Hel") + b": ping\n\n" + chunk(content="lo 日本🙂\u2028"))
    assert delta.text == "Hello 日本🙂\u2028"
    assert len(delta.chunks) == 3


def test_bytes_go_on_as_they_came() -> None:
    raw = b'data:{"choices" : [ ]}\r\n\r\n'
    delta = Delta(raw)
    assert delta.chunks == ({"choices": []},)
    assert delta.raw is raw


@pytest.mark.parametrize(
    "frame",
    [
        b'data: {"choices":[{"del\n\n',
        b"data: [DONE]\n\n",
        b"data: 5\n\n",
        b"data: [1]\n\n",
        b"data: \xff\n\n",
        b"data:\n\n",
        b": ping\n\n",
        b"data: " + b"[" * 20000 + b"\n\n",
        b"data: {",
    ],
)
def test_what_is_not_a_json_object_is_left_out(frame: bytes) -> None:
    delta = Delta(chunk(content="a") + frame)
    assert [part["choices"][0]["delta"] for part in delta.chunks] == [{"content": "a"}]
    assert delta.raw.endswith(frame)


def test_a_whole_body_is_one_object() -> None:
    answer = {"choices": [{"message": {"content": "Hi", "tool_calls": [{"id": "t1"}]}}, {"message": {"content": " there"}}]}
    delta = Delta(json.dumps(answer).encode(), sse=False)
    assert delta.chunks == (answer,)
    assert delta.text == "Hi there"
    assert delta.tool_calls == [{"id": "t1"}]


def test_a_completion_says_its_text() -> None:
    assert Delta(b'{"choices":[{"text":"Once"}]}', sse=False).text == "Once"
    assert Delta(sse.frame(b'{"choices":[{"text":" upon"}]}')).text == " upon"


def test_tool_calls_in_the_order_of_arrival() -> None:
    parts = [{"index": 0, "id": "a"}, {"index": 0, "function": {"arguments": "{"}}]
    delta = Delta(chunk(tool_calls=parts[:1]) + chunk(content=None) + chunk(tool_calls=parts[1:]))
    assert delta.tool_calls == parts
    assert delta.text == ""


@pytest.mark.parametrize("choices", [5, True, "x", {"delta": {"content": "a"}}, [5, None, "x", []], None])
def test_choices_of_the_wrong_kind_are_none(choices: Any) -> None:
    delta = Delta.saying({"choices": choices})
    assert (delta.text, delta.tool_calls) == ("", [])


@pytest.mark.parametrize(
    "part", [{"content": 5}, {"content": [{"type": "text"}]}, {"content": None}, {"tool_calls": 5}, {"tool_calls": [5]}]
)
def test_parts_of_the_wrong_kind_say_nothing(part: dict[str, Any]) -> None:
    delta = Delta(chunk(**part))
    assert (delta.text, delta.tool_calls) == ("", [])


@given(st.dictionaries(st.sampled_from(["choices", "usage", "x"]), JSON) | JSON.map(lambda value: {"choices": [{"delta": value}]}))
def test_nothing_that_a_provider_says_raises(value: dict[str, Any]) -> None:
    for delta in (Delta.saying(value), Delta(dumped(value), sse=False), Delta(sse.frame(dumped(value)))):
        assert isinstance(delta.text, str)
        assert all(isinstance(call, dict) for call in delta.tool_calls)


# From words to bytes


@pytest.mark.parametrize(
    ("said", "delta"),
    [
        ({"text": "Hi"}, {"content": "Hi"}),
        ({"text": ""}, {"content": ""}),
        ({"role": "assistant", "text": "Hi"}, {"role": "assistant", "content": "Hi"}),
        ({"reasoning": "hm"}, {"reasoning_content": "hm"}),
        ({"tool_calls": [{"index": 0}]}, {"tool_calls": [{"index": 0}]}),
        ({}, {}),
    ],
)
def test_words_become_a_chunk_that_fits_in(said: dict[str, Any], delta: dict[str, Any]) -> None:
    made = Delta.of(ENVELOPE, **said, index=1, finish="stop")
    (frame,) = sse.frames(made.raw)
    assert json.loads(sse.data_of(frame) or b"") == {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "m",
        "choices": [{"index": 1, "delta": delta, "finish_reason": "stop"}],
    }


@given(st.lists(st.text(st.characters())))
def test_text_comes_back_from_the_bytes_whatever_it_holds(texts: list[str]) -> None:
    made = Delta.saying(*({"choices": [{"delta": {"content": text}}]} for text in texts))
    assert made.raw.isascii()
    assert Delta(made.raw).text == made.text == "".join(texts)


def test_a_lone_surrogate_goes_out_as_an_escape() -> None:
    made = Delta.of(ENVELOPE, text="\ud83d")
    assert b'"\\ud83d"' in made.raw
    assert Delta(made.raw).text == "\ud83d"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_json_has_no_number_for_goes_out_as_null(number: str) -> None:
    said = Delta(b'data: {"logprob":%b}\n\n' % number.encode()).chunks
    assert Delta.saying(*said).raw == b'data: {"logprob":null}\n\n'


@given(JSON)
def test_what_is_dumped_is_json_to_every_parser(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert dumped(json.loads(dumped(value), parse_constant=refuse)) == dumped(value)


# Values


def test_a_delta_is_what_its_bytes_are() -> None:
    made = Delta.saying({"a": 1})
    assert made == Delta(b'data: {"a":1}\n\n')
    assert hash(made) == hash(Delta(b'data: {"a":1}\n\n'))
    assert made != Delta(b'data: {"a":2}\n\n')
    assert made != b'data: {"a":1}\n\n'


def test_a_delta_never_shows_its_content() -> None:
    assert repr(Delta(b"secret")) == "Delta(6 bytes)"


def test_headers_are_added_and_the_rest_stays() -> None:
    opened = Opened(model="m", headers={"a": "1"}, stream=False)
    more = opened.with_headers(x_spangate_capped="900", a="2")
    assert more.headers == {"a": "2", "x-spangate-capped": "900"}
    assert (more.model, more.stream) == ("m", False)
    assert opened.headers == {"a": "1"}


@pytest.mark.parametrize(("value", "name"), [(Opened(), "model"), (Closed(), "finish"), (Usage(), "input"), (ENVELOPE, "id")])
def test_events_are_frozen(value: Any, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, "other")


@pytest.mark.parametrize(
    ("value", "objects"), [([{}, 1, {"a": 1}], [{}, {"a": 1}]), ([], []), ({"a": 1}, []), (None, []), (5, []), ("ab", [])]
)
def test_dicts(value: Any, objects: list[Any]) -> None:
    assert dicts(value) == objects
