"""call/spoken.py: text among the bytes of an answer. tests/exporters/test_said.py has more of it, as it comes in pieces."""

from __future__ import annotations

import json

import pytest

from spangate.call import sse
from spangate.call.spoken import spoken_in, tokens_of


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"", 0),
        (b"not JSON at all", 15),
        (b'{"choices":[{"message":{"content":"abc","reasoning":"de"}}]}', 5),
        (sse.frame(json.dumps({"choices": [{"delta": {"content": 'say "hi"\n'}}]}).encode()), 9),
        (b'{"usage":{"prompt_tokens":3}}', 0),
    ],
)
def test_only_words_count(data: bytes, size: int) -> None:
    assert spoken_in(data)[0] == size


def said(*deltas: dict[str, object]) -> bytes:
    return b"".join(sse.frame(json.dumps({"choices": [{"delta": delta}]}).encode()) for delta in deltas)


@pytest.mark.parametrize(
    ("data", "deltas"),
    [
        (said({"role": "assistant", "content": ""}, {"content": "a"}, {"content": "b"}, {}), 2),
        (said({"reasoning": "a", "reasoning_content": "a"}), 1),
        (said({"tool_calls": [{"function": {"arguments": "{"}}]}), 1),
        (b'{"choices":[{"message":{"content":"abc"}}]}', 0),
        (b"data that is no stream", 0),
    ],
)
def test_an_event_that_says_something_is_a_delta(data: bytes, deltas: int) -> None:
    assert spoken_in(data)[1] == deltas


@pytest.mark.fault("USE-08")
@pytest.mark.parametrize(("text", "deltas", "tokens"), [(0, 0, 0), (1, 0, 1), (9, 0, 3), (10, 10, 10), (400, 10, 100)])
def test_a_delta_is_a_token_at_the_least(text: int, deltas: int, tokens: int) -> None:
    assert tokens_of(text, deltas) == tokens
