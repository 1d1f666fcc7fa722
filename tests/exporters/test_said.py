"""exporters/said.py: how much text an answer said, whatever stands around it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call import sse
from spangate.call.spoken import spoken_in
from spangate.exporters.said import KEPT, LOOKED, Said

from case import case

ODD = 'a "quoted" \\ back\\slash\nline\ttab é 日本 🙂 data: {"content":"no"} '
WRAPPED = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "system_fingerprint": "fp", "usage": None}


def event(delta: dict[str, Any], **rest: Any) -> bytes:
    return sse.frame(json.dumps({**WRAPPED, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **rest}]}).encode())


def text_in(data: bytes) -> int:
    return spoken_in(data)[0]


def heard(*pieces: bytes, sse: bool = True) -> int:
    said = Said()
    for piece in pieces:
        said.hear(piece, sse=sse)
    return said.total()[0]


@given(
    st.sampled_from(["content", "reasoning_content", "reasoning", "refusal"]),
    st.text(max_size=30) | st.just(ODD),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_text_is_counted_as_it_is_not_as_it_is_written(name: str, text: str, ascii_only: bool, separators: tuple[str, str]) -> None:
    written = json.dumps({"choices": [{"delta": {name: text}}]}, ensure_ascii=ascii_only, separators=separators)
    assert text_in(b"data: " + written.encode() + b"\n\n") == len(text.encode())


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"city":"Rome"}'}}]}, 15),
        ({"tool_calls": [{"index": 0, "custom": {"name": "f", "input": "x y"}}]}, 3),
        ({"content": "a", "reasoning_content": "bc", "refusal": None}, 3),
        ({"content": [{"type": "text", "text": "abc"}]}, 3),
        ({"role": "assistant", "content": ""}, 0),
        ({"content": "\ud83d"}, 6),
    ],
)
def test_where_words_stand(said: dict[str, Any], size: int) -> None:
    assert text_in(event(said)) == size
    assert text_in(json.dumps({"choices": [{"message": said}]}).encode()) == size


def test_what_is_no_text() -> None:
    logprobs = {"content": [{"token": "Hello", "logprob": -0.1, "bytes": [72], "top_logprobs": []}]}
    assert text_in(event({"content": "Hello"}, logprobs=logprobs, obfuscation="x" * 20)) == 5
    assert text_in(b": keep-alive\n\ndata: {}\n\nevent: ping\ndata: {}\n\ndata: broken\n\n") == 0
    assert text_in(b'{"object":"list","data":[{"embedding":[1.5,2]}]}') == 0


def test_what_nobody_can_read_counts_as_it_is() -> None:
    assert heard(b"\x1f\x8b" + b"x" * 98, b"x" * 100, sse=False) == 200


@pytest.mark.fault("USE-08")
@pytest.mark.parametrize("count", [1, 10, 1000, 10_000])
@pytest.mark.parametrize("together", [1, 7])
def test_deltas_are_counted_however_many_come_together(count: int, together: int) -> None:
    said = Said()
    said.hear(event({"role": "assistant", "content": ""}), sse=True)
    for _ in range(count):
        said.hear(event({"content": "a"}) * together, sse=True)
    assert said.total() == (pytest.approx(count * together, rel=0.01), pytest.approx(count * together, rel=0.01))


@pytest.mark.parametrize("size", [1, 4, 40, 4000, 40_000])
@pytest.mark.parametrize("count", [1, 10, 1000])
def test_a_stream_of_even_pieces_is_told_exactly(size: int, count: int) -> None:
    assert heard(*[event({"content": "x" * size})] * count) == pytest.approx(size * count, rel=0.01)


def test_a_long_stream_that_changes_is_told_nearly() -> None:
    """Reasoning a letter at a time, then words, then arguments: parts stand for the whole."""
    pieces = [event({"reasoning_content": "x"})] * 2000 + [event({"content": ODD})] * 2000
    pieces += [event({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]})] * 2000
    assert heard(*pieces) == pytest.approx(2000 * (1 + len(ODD.encode()) + 7), rel=0.25)


def test_a_long_stream_costs_no_more_and_more() -> None:
    """What is kept and what is read stay small."""
    said, piece = Said(), event({"content": "word"})
    kept = []
    for _ in range(40_000):
        said.hear(piece, sse=True)
        kept.append(said._size)
    assert max(kept) <= KEPT
    assert sum(now < before for before, now in pairwise(kept)) < 30, "so often it was read"
    assert said.total()[0] == pytest.approx(160_000, rel=0.01)


def test_of_a_very_long_body_a_part_is_read() -> None:
    body = json.dumps({"choices": [{"message": {"content": "x" * (4 * LOOKED)}}]}).encode()
    assert heard(body, sse=False) == pytest.approx(4 * LOOKED, rel=0.01)


TEXT = "The quick brown fox jumps over the lazy dog, as foxes do. " * 20
ARGUMENTS = {"city": "Rome", "note": "a longer text that the model wrote. " * 20}
ANSWERS: dict[str, tuple[dict[str, Any], int]] = {
    "words": ({"text": TEXT}, len(TEXT)),
    "letters": ({"text": TEXT, "chunks": len(TEXT)}, len(TEXT)),
    "one chunk": ({"text": TEXT, "chunks": 1}, len(TEXT)),
    "reasoning": ({"text": TEXT, "reasoning": TEXT}, 2 * len(TEXT)),
    "a tool call": ({"tool_calls": [{"name": "f", "arguments": ARGUMENTS}], "chunks": 40}, len(json.dumps(ARGUMENTS))),
    "other letters": ({"text": "日本語のテキスト。" * 50}, 50 * 27),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_estimate_is_about_the_text(tmp_path: Path, name: str, stream: bool) -> None:
    """Of a provider that tells no usage; one that does is believed, and nothing is counted."""
    answer, size = ANSWERS[name]
    script = [
        {"when": {"contains": "omit"}, "answer": answer, "usage": "omit"},
        {"when": {"model": "ok", "contains": "tell"}, "answer": answer, "usage": {"input": 1, "output": 2}},
    ]
    providers = {"script": {"kind": "scripted", "script": script}}
    async with case(tmp_path, providers=providers, models={"ok": {"targets": [{"provider": "script"}]}}) as it:
        for word in ("omit", "tell"):
            told = await it.ask({"model": "ok", "stream": stream, "messages": [{"role": "user", "content": word}]})
            assert told.status == 200
        omitted, told_all = it.running.kept.seen
        (attempt,) = omitted.attempts
        assert attempt.usage is None
        assert attempt.answer_bytes == pytest.approx(size, rel=0.25)
        assert told_all.attempts[0].answer_bytes == 0


async def test_an_estimate_of_what_came_until_a_client_left(tmp_path: Path) -> None:
    script = [{"when": {"contains": "long"}, "answer": {"text": TEXT, "chunks": 100}, "fault": {"stall_after": 50}}]
    providers = {"script": {"kind": "scripted", "script": script}}
    async with case(tmp_path, providers=providers, models={"ok": {"targets": [{"provider": "script"}]}}) as it:
        it.rows += 1
        async with it.line() as line:
            await line.send(it.request({"model": "ok", "stream": True, "messages": [{"role": "user", "content": "long"}]}))
            for _ in range(51):  # the role, and what comes until it stalls
                await line.reader.readuntil(b"data: ")
        (seen,) = await it.running.kept.count(1)
        assert seen.outcome == "aborted"
        assert seen.attempts[0].answer_bytes == pytest.approx(len(TEXT) / 2, rel=0.25)
