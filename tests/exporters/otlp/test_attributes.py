"""exporters/otlp/attributes.py: values as AnyValue. That they are the SDK's is shown in test_encoding.py."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from spangate.call.events import Usage
from spangate.call.seen import Seen
from spangate.exporters.otlp.attributes import Pairs
from spangate.exporters.traces.spans import spans_of

from finished import attempt, call
from otlp_sink import attributes


def decoded(pairs: Pairs, said: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    return attributes(Resource.FromString(pairs.encode(said, b"\x0a", count)[0]))


def test_true_and_one_are_two_values() -> None:
    pairs = Pairs()
    for value in (1, True, 1.0, "1", 0, False, 0.0, ["1"], [1], [True]):
        said = decoded(pairs, {"k": value})["k"]
        assert (said, type(said)) == (value, type(value))
    assert [type(each) for each in decoded(pairs, {"k": [True, 1, 1.0]})["k"]] == [bool, int, float]


class Word(str):
    __slots__ = ()


class Number(int):
    pass


def test_subclasses_are_what_they_are_made_of() -> None:
    assert decoded(Pairs(), {"w": Word("a"), "n": Number(2**62), "t": (Word("b"),)}) == {"w": "a", "n": 2**62, "t": ["b"]}


def test_the_newest_stay() -> None:
    pairs = Pairs()
    field, dropped = pairs.encode({"a": 1, "b": 2, "c": 3}, b"\x0a", 2)
    assert attributes(Resource.FromString(field)) == {"b": 2, "c": 3}
    assert dropped == 1
    assert pairs.encode({"a": 1}, b"\x0a", 0) == (b"", 1)


def test_an_empty_key_is_left_out_however_often_it_comes() -> None:
    pairs = Pairs()
    for value in ("x", 1, True, 2.0, ["y"], "x"):
        assert pairs.encode({"": value}, b"\x0a") == (b"", 1)


def test_what_is_remembered_is_bounded() -> None:
    pairs = Pairs(kept=10)
    for number in range(100):
        assert decoded(pairs, {"k": f"v{number}", "n": number}) == {"k": f"v{number}", "n": number}
    assert all(len(memo) <= 10 for memo in vars(pairs).values() if isinstance(memo, dict))


# ---- what calls share


words = st.sampled_from(["", "a", "odd \ud800 \0", "b" * 300])
numbers = st.integers(-1, 3)
calls = st.builds(
    call,
    method=st.sampled_from(["POST", "BREW"]), model=words, team=words, user=words, host=words, client_address=words, user_agent=words,
    stream=st.booleans(), op=st.sampled_from(["", "chat", "embeddings"]), status=st.sampled_from([0, 200, 404, 502]),
    outcome=st.sampled_from(["completed", "refused", "failed", "aborted", "cut"]), error_code=words, thread=words,
    tags=st.dictionaries(words, words, max_size=2),
)  # fmt: skip
tries = st.fixed_dictionaries(
    {
        "provider": words, "target_model": words, "system": st.sampled_from(["", "openai"]), "address": words, "port": numbers,
        "stream": st.booleans(), "answered_model": words, "finish": st.none() | words, "response_id": words, "deltas": numbers,
        "reason": st.sampled_from(["first", "retry", "fallback", "hedge"]), "outcome": st.sampled_from([None, "success", "error"]),
        "error_type": words, "usage": st.none() | st.builds(Usage, numbers, numbers, cached=numbers),
        "request": st.dictionaries(st.sampled_from(["temperature", "seed", "n", "service_tier"]), numbers | st.floats() | words),
    }
)  # fmt: skip


@given(calls, st.lists(tries, max_size=2), st.none() | st.integers(0, 12))
def test_what_calls_share_changes_no_byte(seen: Seen, tried: list[dict[str, Any]], most: int | None) -> None:
    for each in tried:
        attempt(seen, **each)
    pairs = Pairs()
    for span in spans_of(seen):
        plain = dict(span.attributes)
        assert len(plain) == len(span.attributes), "what is shared and what is its own have other names"
        for _ in range(2):
            assert pairs.encode(span.attributes, b"\x4a", most) == Pairs().encode(plain, b"\x4a", most)
