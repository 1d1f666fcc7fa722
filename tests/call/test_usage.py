"""call/usage.py: usage is read with distrust, and what isn't told is unknown, not nought."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spangate.call.events import Usage
from spangate.call.usage import MOST_TOKENS, NOTHING, believed, billed, usage_of

ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
COUNT = st.integers(-5, 50) | ODD
DETAILS = st.dictionaries(st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens"]), COUNT) | ODD
USAGE = st.fixed_dictionaries(
    {},
    optional={"prompt_tokens": COUNT, "completion_tokens": COUNT, "prompt_tokens_details": DETAILS, "completion_tokens_details": DETAILS},
)


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"prompt_tokens": 13, "completion_tokens": 20, "total_tokens": 33}, Usage(input=13, output=20)),
        ({"prompt_tokens": 13}, Usage(input=13, unknown="output")),
        ({"completion_tokens": 20, "prompt_tokens": None}, Usage(output=20, unknown="input")),
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(input=8)),
        ({"prompt_tokens": 8, "completion_tokens": "20", "total_tokens": 28}, Usage(input=8, output=20)),
        ({"prompt_tokens": -8, "completion_tokens": 20, "total_tokens": 28}, Usage(input=8, output=20)),
        ({"prompt_tokens": 13, "completion_tokens": -500, "total_tokens": -487}, Usage(input=13, unknown="output")),
        ({"prompt_tokens": 13, "completion_tokens": 20.7, "total_tokens": 5}, Usage(input=13, unknown="output")),
        ({"prompt_tokens": 1e30, "completion_tokens": 20}, Usage(output=20, unknown="input")),
        ({"prompt_tokens": float("nan"), "completion_tokens": 0}, Usage(unknown="input")),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage()),
        (
            {
                "prompt_tokens": 13,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(input=13, output=20, cached=8, cache_write=3, reasoning=7),
        ),
        (
            {
                "prompt_tokens": 13,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 70},
            },
            Usage(input=13, output=20, cached=10, cache_write=3, reasoning=20),
        ),
        ({"prompt_tokens": 5, "prompt_tokens_details": None, "completion_tokens_details": [1]}, Usage(input=5, unknown="output")),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": -1}}, Usage(input=5, unknown="output")),
        ({"prompt_tokens": 2**40, "completion_tokens": 1}, Usage(output=1, unknown="input")),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": True, "completion_tokens": "5"}, None),
        ({"prompt_tokens": 1.5}, None),
        ({"total_tokens": 33}, None),
        ({}, None),
        (None, None),
        ([], None),
        (5, None),
    ],
)
def test_usage(said: Any, usage: Usage | None) -> None:
    assert usage_of(said) == usage


@given(USAGE | ODD)
def test_details_never_exceed_their_totals(said: Any) -> None:
    usage = usage_of(said)
    if usage is not None:
        assert min(usage.cached, usage.cache_write, usage.reasoning) >= 0
        assert usage.cached + usage.cache_write <= usage.input < 2**40
        assert usage.reasoning <= usage.output < 2**40
        assert usage.source == "provider"


@pytest.mark.parametrize(("tokens", "found"), [(-1, 0), (0, 0), (7, 7), (MOST_TOKENS, MOST_TOKENS), (MOST_TOKENS + 1, MOST_TOKENS)])
def test_a_count_is_believed_within_reason(tokens: int, found: int) -> None:
    assert believed(tokens) == found


@pytest.mark.fault("USE-12")
@pytest.mark.parametrize(
    ("usage", "worked", "counts"),
    [
        (Usage(13, 20, cached=5), True, Usage(13, 20, cached=5)),
        (Usage(13, 20), False, Usage(13, 20)),
        (Usage(0, 0), True, Usage(0, 0)),
        (None, True, Usage(100, 50, source="estimated")),
        (None, False, NOTHING),
        (Usage(0, 20, unknown="input"), True, Usage(100, 20, source="estimated")),
        (Usage(13, 0, cached=5, unknown="output"), True, Usage(13, 50, cached=5, source="estimated")),
        (Usage(2**39, 20), True, Usage(MOST_TOKENS, 20, source="estimated")),
        (Usage(13, 2**39, reasoning=2**39), True, Usage(13, MOST_TOKENS, reasoning=MOST_TOKENS, source="estimated")),
    ],
)
def test_what_an_attempt_counts_for(usage: Usage | None, worked: bool, counts: Usage) -> None:
    assert billed(usage, lambda: 100, lambda: 50, worked=worked) == counts


def test_vectors_have_no_tokens_of_output() -> None:
    assert billed(Usage(8, unknown="output"), lambda: 100, lambda: 50, worked=True, vectors=True) == Usage(8)
    assert billed(None, lambda: 100, lambda: 50, worked=True, vectors=True) == Usage(100, 0, source="estimated")
