"""agent/models/bm25.py: words in common, weighed."""

from __future__ import annotations

import pytest

from spangate.agent.models.bm25 import BM25, softmax, terms


def test_words() -> None:
    assert list(terms("getWeather of_cities: CATS!")) == ["get", "weather", "of", "cities", "citie", "cats", "cat"]
    assert list(terms("编程数学 ok 日")) == ["编程", "程数", "数学", "ok", "日"]


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    scores = BM25(["chat about cats", "chat about mathematics", "chat about dogs and mathematics of cats"]).scores("cats mathematics")
    assert scores[2] > scores[0]
    assert BM25(["a", "b"]).scores("zzz") == [0.0, 0.0]
    assert BM25([]).scores("x") == []


def test_softmax() -> None:
    assert softmax([0.0, 0.0]) == [0.5, 0.5]
    assert sum(softmax([1000.0, 0.0, -3.0])) == pytest.approx(1.0)
    assert softmax([]) == []
