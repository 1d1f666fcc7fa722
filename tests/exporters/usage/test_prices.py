"""What tokens cost: the catalog to the last digit, the operator's own prices before it."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from genai_prices.data import providers
from genai_prices.types import ModelPrice, Usage

from spangate.exporters.usage.prices import REMEMBERED, Prices, Rates, _rates
from spangate.exporters.usage.settings import Price

AT = 1_800_000_000 * 10**9


def usd(rates: Rates | None, *counts: int) -> Decimal:
    assert rates is not None
    return Decimal(rates.nano(*counts)).scaleb(-9)


def catalogued(model: str, system: str = "openai", address: str = "") -> Rates | None:
    return Prices().rates("up", system, address, model, AT)


def test_the_catalog_to_the_last_digit() -> None:
    """Each price of each model of each provider: tiers, caches, reasoning, a fee a call; as genai-prices itself calculates."""
    random = Random(3)
    compared = 0
    for each in (model for provider in providers for model in provider.models):
        for prices in [each.prices] if isinstance(each.prices, ModelPrice) else [part.prices for part in each.prices]:
            rates = _rates(prices)
            if rates is None:
                continue
            input, output = random.choice([random.randrange(1000), random.randrange(500_000)]), random.randrange(20_000)
            cached = random.randrange(input + 1)
            cache_write, reasoning = random.randrange(input - cached + 1), random.randrange(output + 1)
            usage = Usage(
                input_tokens=input,
                output_tokens=output,
                cache_read_tokens=cached,
                cache_write_tokens=cache_write,
                output_reasoning_tokens=reasoning,
            )
            assert usd(rates, input, output, cached, cache_write, reasoning) == round(prices.calc_price(usage)["total_price"], 9), each.id
            compared += 1
    assert compared > 2000


def test_cached_tokens_are_part_of_the_input() -> None:
    assert usd(catalogued("gpt-5-mini"), 1_000_000, 0) == Decimal("0.25")
    assert usd(catalogued("gpt-5-mini"), 1_000_000, 0, 1_000_000) == Decimal("0.025")
    assert usd(catalogued("gpt-5-mini"), 1000, 100, 400) == Decimal("0.00036")


def test_a_tier_prices_all_tokens() -> None:
    rates = catalogued("gemini-2.5-pro", "gcp.gemini", "generativelanguage.googleapis.com")
    assert usd(rates, 200_000, 0) == Decimal("0.25")
    assert usd(rates, 200_001, 0) == Decimal("0.5000025")


def test_where_it_lives_comes_before_what_it_is_called() -> None:
    """Many providers speak OpenAI's dialect."""
    there = catalogued("llama-3.3-70b-versatile", "openai", "api.groq.com")
    assert there is not None
    assert there == catalogued("llama-3.3-70b-versatile", "groq")
    assert catalogued("llama-3.3-70b-versatile", "openai") is None


def test_prices_change_with_the_date() -> None:
    changing = next(
        (provider, model)
        for provider in providers
        for model in provider.models
        if isinstance(model.prices, list) and any(hasattr(price.constraint, "start_date") for price in model.prices)
    )
    provider, model = changing
    prices: Any = model.prices
    start = next(price.constraint.start_date for price in prices if hasattr(price.constraint, "start_date"))
    known = Prices()
    seconds = (start.toordinal() - 719163) * 86400
    before, after = (known.rates("up", provider.id, "", model.id, at * 10**9) for at in (seconds - 1, seconds))
    assert (before, after) == (_rates(model.get_prices(at(seconds - 1))), _rates(model.get_prices(at(seconds))))


def at(seconds: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("system", "model"), [("openai", "no-such-model"), ("ollama", "qwen3:8b"), ("", ""), ("scripted", "m"), ("x" * 300, "y" * 300)]
)
def test_what_nobody_knows_has_no_price(system: str, model: str) -> None:
    assert catalogued(model, system) is None


def test_the_operators_prices_come_first() -> None:
    prices = Prices(
        [
            Price(provider="local", model="*", input=Decimal(0), output=Decimal(0)),
            Price(model="gpt-5-mini", input=Decimal("0.1"), output=Decimal("0.2"), cached=Decimal("0.01")),
            Price(model="gpt-*", input=Decimal(9), output=Decimal(9)),
        ]
    )
    mine = prices.rates("up", "openai", "", "gpt-5-mini", AT)
    assert mine is not None
    assert mine.source == "override"
    assert usd(mine, 1_000_000, 1_000_000, 500_000) == Decimal("0.255")
    assert usd(prices.rates("up", "openai", "", "gpt-5", AT), 1_000_000, 0) == 9
    assert usd(prices.rates("local", "openai", "", "gpt-5", AT), 1_000_000, 1) == 0
    catalog = prices.rates("up", "anthropic", "", "claude-sonnet-4-5", AT)
    assert catalog is not None
    assert catalog.source == "catalog"


@pytest.mark.parametrize(("output", "nano"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3), (7, 4)])
def test_half_a_billionth_goes_to_the_even_one(output: int, nano: int) -> None:
    rates = Prices([Price(model="*", input=Decimal(0), output=Decimal("0.0005"))]).rates("p", "", "", "m", AT)
    assert rates is not None
    assert rates.nano(0, output) == nano


def test_no_price_overflows_its_column() -> None:
    rates = Prices([Price(model="*", input=Decimal(10**6), output=Decimal(10**6))]).rates("p", "", "", "m", AT)
    assert rates is not None
    assert rates.nano(2**31, 2**31) == 10**18 - 1


def test_thousands_of_unknown_names_are_not_kept() -> None:
    prices = Prices()
    for number in range(3 * REMEMBERED):
        assert prices.rates("up", "openai", "", f"unknown-{number}", AT) is None
    assert len(prices._found) == REMEMBERED


def test_the_catalog_is_loaded_by_whoever_needs_it_first() -> None:
    """Importing is free, and nothing of it reaches for the network."""
    program = """
import socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from spangate.exporters.usage.prices import Prices
assert "genai_prices" not in sys.modules and "duckdb" not in sys.modules
assert Prices().rates("up", "openai", "api.openai.com", "gpt-5-mini", 0)
assert "genai_prices.data" in sys.modules
import threading; assert threading.active_count() == 1
"""
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0
