"""BM25: how well a few documents fit a query, by the words that they share. Pure; ideographs are cut into pairs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IDEOGRAPH = re.compile(r"[぀-ヿ㐀-䶿一-鿿가-힯]+")
K1, B = 1.5, 0.75


def terms(text: str) -> Iterator[str]:
    """The words of a text, in lower case; `camelCase` and `snake_case` are two each."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        low = word.casefold()
        for run in _IDEOGRAPH.findall(low):
            yield from ((run[i : i + 2] for i in range(len(run) - 1)) if len(run) > 1 else (run,))
        rest = _IDEOGRAPH.sub(" ", low)
        for each in rest.split():
            yield each
            # The cheapest stemming that lets a plural meet its singular.
            if len(each) > 3 and each.endswith("s"):
                yield each[:-1]


class BM25:
    """An index of documents; `scores(query)` gives one number for each, 0 for no word in common."""

    def __init__(self, documents: Sequence[str]) -> None:
        self._counts = [Counter(terms(document)) for document in documents]
        self._lengths = [counts.total() for counts in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0
        found: Counter[str] = Counter(term for counts in self._counts for term in counts)
        size = len(documents)
        self._weights = {term: math.log(1 + (size - n + 0.5) / (n + 0.5)) for term, n in found.items()}

    def scores(self, query: str) -> list[float]:
        wanted = set(terms(query))
        return [self._score(wanted, number) for number in range(len(self._counts))]

    def _score(self, wanted: Iterable[str], number: int) -> float:
        counts, length = self._counts[number], self._lengths[number]
        norm = K1 * (1 - B + B * length / (self._mean or 1.0))
        return sum(self._weights[term] * counts[term] * (K1 + 1) / (counts[term] + norm) for term in wanted if term in counts)


def softmax(scores: Sequence[float]) -> list[float]:
    """Scores as probabilities."""
    top = max(scores, default=0.0)
    powers = [math.exp(score - top) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]
