"""Classifiers: models that choose among options and say how sure they are. `BM25Classifier` needs no key and no network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import msgspec

from ..messages.msg import ChatUsage
from .bm25 import BM25, softmax


class SingleChoice(msgspec.Struct, frozen=True):
    """A question with one answer. `options` maps each answer to what speaks for it."""

    options: Mapping[str, str]
    instructions: str = ""


class Choice(msgspec.Struct, frozen=True):
    """How likely each option is."""

    probabilities: Mapping[str, float]

    @property
    def answer(self) -> str:
        """The likeliest; of equals the first."""
        return max(self.probabilities, key=lambda name: self.probabilities[name])

    @property
    def confidence(self) -> float:
        return self.probabilities[self.answer]


class Classified(msgspec.Struct, frozen=True):
    """The answers, by question."""

    answers: Mapping[str, Choice]
    usage: ChatUsage | None = None


class ClassifierModelBase(ABC):
    """Answers questions about a text. `model` is its name."""

    model: str = ""

    @abstractmethod
    async def __call__(self, text: str, questions: Mapping[str, SingleChoice]) -> Classified:
        """An answer for each question."""


class BM25Classifier(ClassifierModelBase):
    """Chooses the option whose description shares the most words with the text; probabilities by softmax. If none shares any, all are
    equally likely and the first is the answer."""

    model = "bm25"

    async def __call__(self, text: str, questions: Mapping[str, SingleChoice]) -> Classified:
        return Classified({name: _chosen(text, question) for name, question in questions.items()})


def _chosen(text: str, question: SingleChoice) -> Choice:
    if not question.options:
        raise ValueError("A choice needs at least one option.")
    index = BM25([f"{name} {description}" for name, description in question.options.items()])
    return Choice(dict(zip(question.options, softmax(index.scores(text)), strict=True)))
