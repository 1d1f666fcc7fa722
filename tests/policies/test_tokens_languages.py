"""policies/tokens.py: what is counted of texts in many languages where a provider tells nothing, against the vocabulary's own count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spangate.call import sse
from spangate.call.body import Body
from spangate.call.call import Call, Head, Target
from spangate.exporters.said import Said
from spangate.policies.tokens import SHORT, Tokens
from spangate.policies.vocabulary import CACHE, Vocabulary

from paragraphs import PARAGRAPHS, written

WITHIN = 0.15
LENGTHS = {"a paragraph": 1, "some pages": 12, "a book": 400}
everything = pytest.mark.parametrize(("name", "length"), [(name, length) for name in PARAGRAPHS for length in LENGTHS])


@pytest.fixture(scope="module")
def tokens() -> Iterator[Tokens]:
    vocabulary = Vocabulary()
    assert vocabulary.load("o200k_base") is not None
    found = Tokens(vocabulary)
    yield found
    found.close()


def truth(tokens: Tokens, text: str) -> int:
    encoding = tokens._vocabulary.at_hand("o200k_base")
    assert encoding is not None
    return len(encoding.encode_ordinary(text))


def told(text: str, **more: Any) -> Call:
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": text}], **more}
    return Call(op="chat", model="gpt-5", body=Body.of(body), target=Target("up", "gpt-5"))


def escaped(call: Call) -> Call:
    """The same as Python's json writes it: no letter beyond ASCII as it is."""
    fields = {name: json.dumps(json.loads(bytes(raw))).encode() for name, raw in call.body.fields.items()}
    return call.with_body(Body(fields))


@everything
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_request(name: str, length: str, ascii_only: bool, tokens: Tokens) -> None:
    text = "\n\n".join([PARAGRAPHS[name]] * LENGTHS[length])
    asked = escaped(told(text)) if ascii_only else told(text)
    assert tokens.asked(asked) == pytest.approx(truth(tokens, text) + 7, rel=WITHIN)


@pytest.mark.parametrize("name", PARAGRAPHS)
async def test_a_long_request_that_may_wait_is_counted_whole(name: str, tokens: Tokens) -> None:
    text = PARAGRAPHS[name] * 40
    asked = told(text)
    assert len(text.encode()) > SHORT
    await tokens.prepare(asked)
    assert tokens.asked(asked) == pytest.approx(truth(tokens, text) + 7, rel=0.01)


def pieces(tokens: Tokens, text: str, size: int) -> Iterator[str]:
    encoding = tokens._vocabulary.at_hand("o200k_base")
    assert encoding is not None
    return written(text, encoding, size)


def event(index: int, words: str, *, ascii_only: bool) -> bytes:
    choice = {"index": index, "delta": {"content": words}, "finish_reason": None}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5", "choices": [choice]}
    return sse.frame(json.dumps(chunk, ensure_ascii=ascii_only).encode())


def counted(tokens: Tokens, said: Said) -> int:
    said.total()
    found = tokens.said("gpt-5", said.samples)
    assert found is not None
    return found


@everything
@pytest.mark.parametrize("size", [1, 12])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_stream(name: str, length: str, size: int, ascii_only: bool, tokens: Tokens) -> None:
    text = "\n\n".join([PARAGRAPHS[name]] * min(LENGTHS[length], 60))
    said = Said()
    for words in pieces(tokens, text, size):
        said.hear(event(0, words, ascii_only=ascii_only), sse=True)
    assert counted(tokens, said) == pytest.approx(truth(tokens, text), rel=WITHIN)


@everything
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_whole_answer(name: str, length: str, ascii_only: bool, tokens: Tokens) -> None:
    text = "\n\n".join([PARAGRAPHS[name]] * LENGTHS[length])
    said = Said()
    said.hear(json.dumps({"choices": [{"message": {"content": text}}]}, ensure_ascii=ascii_only).encode(), sse=False)
    assert counted(tokens, said) == pytest.approx(truth(tokens, text), rel=WITHIN)


@pytest.mark.parametrize("name", PARAGRAPHS)
@pytest.mark.fault("USE-10")
def test_two_choices_that_come_in_turns(name: str, tokens: Tokens) -> None:
    text = PARAGRAPHS[name]
    said = Said(several=True)
    for words in pieces(tokens, text, 1):
        for index in (0, 1):
            said.hear(event(index, words, ascii_only=False), sse=True)
    assert counted(tokens, said) == pytest.approx(2 * truth(tokens, text), rel=WITHIN)


def test_texts_of_all_kinds_in_one(tokens: Tokens) -> None:
    text = "\n\n".join(PARAGRAPHS.values())
    assert tokens.asked(told(text)) == pytest.approx(truth(tokens, text) + 7, rel=WITHIN)
    said = Said()
    for words in pieces(tokens, text * 5, 3):
        said.hear(event(0, words, ascii_only=False), sse=True)
    assert counted(tokens, said) == pytest.approx(5 * truth(tokens, text), rel=WITHIN)


def test_token_ids_are_counted_as_what_they_are(tokens: Tokens) -> None:
    asked = Call(op="embeddings", model="text-embedding-3-small", body=Body.of({"input": [[5, 17, 100_000], [3]]}), head=Head())
    tokens._vocabulary.load("cl100k_base")
    assert tokens.asked(asked) == 4


def test_without_a_vocabulary_a_token_is_four_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    bare = Tokens(Vocabulary(tmp_path / "nothing"))
    asked = told(PARAGRAPHS["English"])
    assert bare.asked(asked) == bare.input(asked).expected
    assert bare.said("gpt-5", []) is None
    bare.close()
