"""agent/models/classifier.py: a choice among descriptions, without a key."""

from __future__ import annotations

import pytest

from spangate.agent import BM25Classifier, SingleChoice

OPTIONS = {"fast": "Small talk, greetings and simple questions", "strong": "Mathematics, proofs, programming and long reasoning"}


@pytest.mark.parametrize(("text", "name"), [("A proof in mathematics, please", "strong"), ("a simple question", "fast"), ("quux", "fast")])
async def test_it_takes_the_option_that_shares_the_most(text: str, name: str) -> None:
    classified = await BM25Classifier()(text, {"model": SingleChoice(OPTIONS)})
    choice = classified.answers["model"]
    assert choice.answer == name
    assert sum(choice.probabilities.values()) == pytest.approx(1.0)
    assert (choice.confidence == 0.5) is (text == "quux")


async def test_a_choice_needs_options() -> None:
    with pytest.raises(ValueError, match="at least one option"):
        await BM25Classifier()("x", {"model": SingleChoice({})})
