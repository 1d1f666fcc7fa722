"""What a provider tells late, twice, cumulatively, by half or not at all, in many languages: what is settled is the truth, or a flagged
estimate near it, and budgets and rows say the same to the token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from journeys.scenes import SCENES, gateway_of
from tiktoken import Encoding

from spangate.policies.ledger.ledger import NANO
from spangate.policies.vocabulary import Vocabulary

from case import KEY, Case, case, key_hash
from paragraphs import PARAGRAPHS, written
from upstream import C, D, F, Misbehaving, Play, Request, chat_chunk, chunk, http, play, sse, sse_head

JSON = [("content-type", "application/json")]
WITHIN = 0.15
_vocabulary = Vocabulary()


def encoding() -> Encoding:
    found = _vocabulary.load("o200k_base")
    assert found is not None
    return found


def tokens_of(text: str) -> list[int]:
    return encoding().encode_ordinary(text)


def words_of(text: str) -> Iterator[str]:
    return written(text, encoding(), 2)


def truth(text: str) -> tuple[int, int]:
    """Of a request that says so, and is answered in the same words."""
    return 7 + len(tokens_of(text)), len(tokens_of(text))


def figures(input: int | None, output: int | None) -> dict[str, int]:
    told = {"prompt_tokens": input, "completion_tokens": output}
    return {name: tokens for name, tokens in told.items() if tokens is not None}


def told(input: int | None, output: int | None) -> bytes:
    return chat_chunk([], usage=figures(input, output))


def cumulative(text: str) -> bytes:
    found, output = b"", 0
    for words in words_of(text):
        output += 2
        usage = figures(truth(text)[0], min(output, truth(text)[1]))
        found += chat_chunk([{"index": 0, "delta": {"content": words}, "finish_reason": None}], usage=usage)
    return found + F("stop") + told(*truth(text)) + D


def said(text: str) -> bytes:
    return b"".join(map(C, words_of(text)))


TELLING: dict[str, Callable[[str], bytes]] = {
    "at the end": lambda text: said(text) + F("stop") + told(*truth(text)) + D,
    "late": lambda text: said(text) + F("stop") + C("") + told(*truth(text)) + D,
    "at once": lambda text: told(truth(text)[0], 0) + said(text) + F("stop") + told(*truth(text)) + D,
    "twice": lambda text: said(text) + F("stop") + told(*truth(text)) * 2 + D,
    "cumulatively": cumulative,
    "without an end": lambda text: said(text) + F("stop") + told(*truth(text)),
}
NOT_TELLING: dict[str, Callable[[str], bytes]] = {
    "nothing": lambda text: said(text) + F("stop") + D,
    "nothing, without an end": lambda text: said(text) + F("stop"),
    "input alone": lambda text: said(text) + F("stop") + told(truth(text)[0], None) + D,
    "output alone": lambda text: said(text) + F("stop") + told(None, truth(text)[1]) + D,
    "what makes no sense": lambda text: said(text) + F("stop") + told(-5, -7) + D,
}


def budgets(**models: Any) -> dict[str, Any]:
    rule = {"budget": {"name": "b", "limit": "100G", "window": "total", "models": ["m", "slow", "nowhere"], "cap_output": False}}
    return {"teams": {"search": {"keys": [{"name": "ci", "hash": key_hash(KEY)}], "policies": [rule]}}, **models}


def answering(telling: Callable[[str], bytes]) -> Callable[[Request], Play]:
    def answer(request: Request) -> Play:
        return play(sse(telling(request.json()["messages"][0]["content"])))

    return answer


async def asked_in_every_language(it: Case) -> list[list[Any]]:
    for text in PARAGRAPHS.values():
        answer = await it.ask({"stream": True, "messages": [{"role": "user", "content": text}]})
        assert answer.status == 200
    return await rows(it, "SELECT input_tokens, output_tokens, usage_source FROM calls ORDER BY started_at")


async def rows(it: Case, sql: str) -> Any:
    answer = await it.ask(json.dumps({"sql": sql}).encode(), path="/usage/sql")
    assert answer.status == 200, answer.body
    return answer.json()["rows"]


async def agree(it: Case) -> int:
    """What the budget, the calls and their attempts say was used: the same."""
    spent = sum([each.used for each in await it.running.app.books.ledger.every("default")])
    tables = [f"SELECT coalesce(sum(input_tokens + output_tokens), 0)::BIGINT FROM {name}" for name in ("calls", "attempts")]
    found = [(await rows(it, f"{table} WHERE target_model <> 'ok'"))[0][0] for table in tables]
    assert [each * NANO for each in found] == [spent, spent]
    assert (await rows(it, "SELECT sum(used)::BIGINT FROM budgets"))[0][0] in (found[0], None)
    return int(found[0])


@pytest.mark.fault("USE-01", "USE-02", "SSE-14")
@pytest.mark.parametrize("how", TELLING)
async def test_what_is_told_is_settled_to_the_token(how: str, tmp_path: Path) -> None:
    async with case(tmp_path, answering(TELLING[how]), **budgets()) as it:
        found = await asked_in_every_language(it)
        assert found == [[*truth(text), "provider"] for text in PARAGRAPHS.values()]
        assert await agree(it) == sum([sum(truth(text)) for text in PARAGRAPHS.values()])


@pytest.mark.fault("USE-12", "SSE-14")
@pytest.mark.parametrize("how", NOT_TELLING)
async def test_what_is_not_told_is_estimated_near_the_truth(how: str, tmp_path: Path) -> None:
    async with case(tmp_path, answering(NOT_TELLING[how]), **budgets()) as it:
        found = await asked_in_every_language(it)
        for (input, output, source), (name, text) in zip(found, PARAGRAPHS.items(), strict=True):
            assert (input, output) == pytest.approx(truth(text), rel=WITHIN), name
            assert source == "estimated"
        assert await agree(it) > 0


@pytest.mark.fault("USE-08")
async def test_who_leaves_in_the_middle_pays_for_what_came(tmp_path: Path) -> None:
    """Nobody waits for the count then. The vocabulary is there from the second such call on at the latest."""

    def answer(request: Request) -> Play:
        text = request.json()["messages"][0]["content"]
        return play(sse_head() + chunk(said(text)), end="hold")

    async with case(tmp_path, answer, **budgets()) as it:
        await it.running.app.books.tokens.ready("m")
        for text in PARAGRAPHS.values():
            *_, last = words_of(text)
            it.rows += 1
            async with it.line() as line:
                await line.send(it.request({"stream": True, "messages": [{"role": "user", "content": text}]}))
                await line.reader.readuntil(C(last))
                line.abort()
            await it.running.kept.count(it.rows)
        found = await rows(it, "SELECT input_tokens, output_tokens, usage_source, outcome FROM calls ORDER BY started_at")
        for (input, output, *rest), (name, text) in zip(found, PARAGRAPHS.items(), strict=True):
            assert (input, output) == pytest.approx(truth(text), rel=WITHIN), name
            assert rest == ["estimated", "aborted"]
        await agree(it)


@pytest.mark.fault("USE-13", "USE-08", "SSE-15", "CAN-04")
@pytest.mark.parametrize("kind", ["good", "failed", "left"])
async def test_budgets_and_rows_agree_however_a_call_goes(kind: str, tmp_path: Path) -> None:
    async with Misbehaving() as up:
        sections = gateway_of(up) | budgets()
        async with case(tmp_path, up, **sections) as it:
            for name, scene in SCENES[kind].items():
                up.script = scene.script
                it.rows += 1
                assert await scene.way(it, scene.request(it, 1)) == scene.status, name
                await it.running.kept.count(it.rows)
                await it.running.settled()
                await agree(it)
            up.script = ()


@pytest.mark.fault("USE-10")
async def test_two_choices_count_each_for_itself(tmp_path: Path) -> None:
    text = PARAGRAPHS["Spanish"]
    pairs = [(index, words) for words in words_of(text) for index in (0, 1)]
    pieces = [chat_chunk([{"index": index, "delta": {"content": words}, "finish_reason": None}]) for index, words in pairs]
    ends = [chat_chunk([{"index": index, "delta": {}, "finish_reason": "stop"}]) for index in (0, 1)]
    async with case(tmp_path, play(sse(*pieces, *ends, D)), **budgets()) as it:
        await it.ask({"stream": True, "n": 2})
        [[output]] = await rows(it, "SELECT output_tokens FROM calls")
        assert output == pytest.approx(2 * truth(text)[1], rel=WITHIN)
        await agree(it)


def whole(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()


@pytest.mark.parametrize("length", [1, 60])
async def test_whole_answers_without_usage(length: int, tmp_path: Path) -> None:
    """As Python writes JSON, no letter beyond ASCII as it is."""

    def answer(request: Request) -> Play:
        return play(http(200, JSON, whole(request.json()["messages"][0]["content"])))

    async with case(tmp_path, answer, **budgets()) as it:
        for text in PARAGRAPHS.values():
            assert (await it.ask({"messages": [{"role": "user", "content": text * length}]})).status == 200
        found: Sequence[Any] = await rows(it, "SELECT input_tokens, output_tokens FROM calls ORDER BY started_at")
        for (input, output), (name, text) in zip(found, PARAGRAPHS.items(), strict=True):
            assert (input, output) == pytest.approx(truth(text * length), rel=WITHIN), name
        await agree(it)
