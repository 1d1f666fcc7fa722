"""policies/tokens.py: estimates that learn, and counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from spangate.call.body import Body
from spangate.call.call import Call, Caller, Head, Target
from spangate.call.events import Usage
from spangate.policies.content import content_of
from spangate.policies.tokens import FEW, MOST_WAITING, PAUSE, UNKNOWN_OUTPUT, WARM, Errors, Missed, Tokens
from spangate.policies.vocabulary import CACHE, Vocabulary

TEXT = "All happy families are alike; each unhappy family is unhappy in its own way. " * 20


def call(text: str = TEXT, *, team: str = "search", model: str = "gpt-4o", n: int = 1, target: Target | None = None, **fields: Any) -> Call:
    body = Body.of({"model": model, "messages": [{"role": "user", "content": text}], **fields})
    return Call(op="chat", model=model, body=body, head=Head(n=n), caller=Caller(team=team), target=target)


def test_an_estimate_is_never_below_a_token_for_four_bytes() -> None:
    tokens, asked = Tokens(), call(target=Target("p", "m"))
    least = content_of(asked).text_tokens
    assert least == -(-len(bytes(asked.body.fields["messages"])) // 4)
    assert tokens.input(asked).upper >= tokens.input(asked).expected == least
    for _ in range(100):
        tokens.learn(asked, Usage(input=least // 10))
    assert tokens.input(asked).upper == least
    assert tokens.input(asked).expected < least // 5


def test_an_estimate_learns_what_its_provider_counts() -> None:
    tokens, random = Tokens(), Random(3)
    dear, cheap = Target("dear", "m"), Target("cheap", "m")
    for _ in range(60):
        asked = call(TEXT * random.randint(1, 5))
        base = content_of(asked).text_tokens
        tokens.learn(replace(asked, target=dear), Usage(input=round(base * random.uniform(1.8, 2.0))))
        tokens.learn(replace(asked, target=cheap), Usage(input=base))
    asked = call()
    base = content_of(asked).text_tokens
    estimate = tokens.input(replace(asked, target=dear))
    assert estimate.expected == pytest.approx(1.9 * base, rel=0.06)
    assert 2.0 * base <= estimate.upper <= 2.4 * base
    assert tokens.input(replace(asked, target=cheap)).upper <= 1.2 * base
    assert tokens.input(replace(asked, target=Target("dear", "a new one"))).expected == pytest.approx(1.9 * base, rel=0.06)


def test_what_is_no_text_is_counted_by_table_and_teaches_nothing() -> None:
    tokens = Tokens()
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "auto"}}
    asked = call(messages=[{"role": "user", "content": [image]}], target=Target("p", "gpt-4o"))
    before = tokens.input(asked)
    assert before.expected > 1445
    tokens.learn(asked, Usage(input=10))
    assert tokens.input(asked) == before


def test_what_is_usual_of_a_team_and_model() -> None:
    tokens = Tokens()
    assert tokens.output("search", "gpt-4o") == UNKNOWN_OUTPUT
    for _ in range(FEW):
        tokens.learn(call(), Usage(input=100, output=300))
        tokens.learn(call(team="long"), Usage(input=100, output=5000))
    assert 300 <= tokens.output("search", "gpt-4o") <= 360
    assert 5000 <= tokens.output("long", "gpt-4o") <= 6000
    assert 300 <= tokens.output("new", "gpt-4o", share=0.4) <= 360, "of a team that nobody knows: what all use"
    assert tokens.output("search", "other") == UNKNOWN_OUTPUT


def test_each_of_several_answers_counts() -> None:
    tokens = Tokens()
    for _ in range(FEW):
        tokens.learn(call(n=4), Usage(input=100, output=400))
    assert 100 <= tokens.output("search", "gpt-4o") <= 120


def test_what_was_cut_would_have_been_longer() -> None:
    tokens = Tokens()
    for _ in range(40):
        cap = tokens.output("search", "gpt-4o")
        wanted = 4000
        tokens.learn(call(), Usage(input=100, output=min(cap, wanted)), cut=wanted > cap)
    assert tokens.output("search", "gpt-4o") >= 4000


def test_by_how_much_estimates_missed_is_told() -> None:
    tokens, asked = Tokens(), call(target=Target("p", "m"))
    held = tokens.input(asked)
    assert tokens.learn(asked, Usage(input=2 * held.expected, output=512), held) == Missed(input=-0.5, output=1.0)
    assert tokens.input_errors == Errors(1, held.expected, 2 * held.expected, 2 * held.expected - held.upper)
    assert tokens.output_errors == Errors(1, UNKNOWN_OUTPUT, 512, 0)


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(input=10, output=10, source="estimated"), (False, False)),
        (Usage(input=10, unknown="output"), (True, False)),
        (Usage(output=10, unknown="input"), (False, True)),
        (Usage(), (True, True)),
    ],
)
def test_only_what_a_provider_told_teaches(usage: Usage, told: tuple[bool, bool]) -> None:
    tokens = Tokens()
    missed = tokens.learn(call(), usage)
    assert (missed.input is not None, missed.output is not None) == told
    assert (tokens.input_errors.calls, tokens.output_errors.calls) == told


def test_vectors_have_no_output() -> None:
    asked = Call(op="embeddings", model="m", body=Body.of({"input": TEXT}))
    assert Tokens().learn(asked, Usage(input=400)).output is None


def test_the_first_answers_teach_and_later_some_each_second() -> None:
    tokens = Tokens()
    assert all(tokens.due(0.0) for _ in range(WARM))
    busy = sum([tokens.due(number / 1000) for number in range(1000)])
    assert 0.9 / PAUSE - 1 <= busy <= 1 / PAUSE
    assert all(tokens.due(2.0 + number) for number in range(10)), "who has few teaches with each"


def test_made_up_names_take_no_room() -> None:
    tokens = Tokens(room=8)
    for number in range(1000):
        made_up = f"model-{number}" * (1 if number % 2 else 100)
        tokens.learn(call("hi", team=f"t{number}", model=made_up, target=Target("p", made_up)), Usage(input=2, output=2))
    assert len(tokens._ratios) <= 8
    assert len(tokens._usual) <= 8
    assert tokens.input(call(target=Target("p", "m"))).upper > 0


# ---- counts


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tokens:
    monkeypatch.setenv(CACHE, str(tmp_path))
    return Tokens()


async def test_a_count_is_that_of_the_models_vocabulary(counting: Tokens) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    content = [{"type": "text", "text": "tiktoken is great!"}, image]
    asked = call(messages=[{"role": "user", "content": content}])
    assert await counting.count(call("tiktoken is great!")) == 3 + 3 + 1 + 6
    assert await counting.count(asked) == 3 + 3 + 1 + 6 + 1445
    assert await counting.count_text("tiktoken is great!", "gpt-4") == 6
    counting.close()


async def test_others_go_on_while_a_long_text_is_counted(counting: Tokens) -> None:
    await counting.count_text("", "gpt-4o")
    turns = 0
    counted = asyncio.ensure_future(counting.count(call(TEXT * 600)))
    while not counted.done():
        turns += 1
        await asyncio.sleep(0)
    assert counted.result() == pytest.approx(len(TEXT) * 600 / 4.9, rel=0.15)
    assert turns > 20
    counting.close()


async def test_without_a_vocabulary_or_time_nothing_is_counted(tmp_path: Path, counting: Tokens) -> None:
    tokens = Tokens(Vocabulary(tmp_path / "nothing"))
    assert await tokens.count(call()) is None
    assert await tokens.count_text(TEXT, "gpt-4o") is None
    tokens.close()
    tokens.close()
    assert await counting.count(call(messages=[{}] * 10_000)) is None
    assert await counting.count_text("x" * (5 << 20), "gpt-4o") is None
    found = await asyncio.gather(*(counting.count_text("hi", "gpt-4o") for _ in range(MOST_WAITING + 5)))
    assert found == [1] * MOST_WAITING + [None] * 5
    counting.close()
