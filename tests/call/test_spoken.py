"""call/spoken.py: text among the bytes of an answer. tests/exporters/test_said.py has more of it, as it comes in pieces."""

from __future__ import annotations

import json

import pytest

from spangate.call import sse
from spangate.call.spoken import PIECE, pieces_of, spoken_in, text_of, tokens_of, voices_in


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


def test_what_was_cut_off_within_a_letter_or_an_escape_says_the_rest() -> None:
    assert spoken_in(b'{"content":"caf\\u00e9 caf\\u00')[0] == len("café caf".encode())
    assert spoken_in('{"content":"\\n日本'.encode()[:-1])[0] == len("\n日".encode())
    assert text_of(b"caf\\u00e9 \\ud83d\\ude42 \\n caf\\u00") == "café 🙂 \n caf00"
    assert text_of("日本".encode()[1:]) == "本"


@pytest.mark.fault("USE-10")
def test_choices_that_come_in_turns_are_told_apart() -> None:
    data = b"".join(
        sse.frame(json.dumps({"choices": [{"index": index, "delta": {"content": words}}]}).encode())
        for words, index in (("Az", 0), ("Bl", 1), ("ure", 0), ("ue", 1))
    )
    assert voices_in(data) == [b"Azure", b"Blue"]


@pytest.mark.parametrize("most", [PIECE // 4, PIECE, 4 * PIECE])
def test_pieces_of_a_long_text_are_whole_words_from_all_over_it(most: int) -> None:
    text = b" ".join(b"%05d" % number for number in range(10_000))
    pieces = pieces_of(text, most)
    assert sum(map(len, pieces)) <= most
    words = [word for piece in pieces for word in piece.split()]
    assert {len(word) for word in words} == {5}
    assert max(map(int, words)) - min(map(int, words)) > (5000 if most > PIECE else 10)
    assert pieces_of(b"short", most) == [b"short"]
