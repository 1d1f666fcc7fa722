"""proxy/pricing.py: what a target costs, by the file's prices and by the catalog."""

from __future__ import annotations

from decimal import Decimal

from spangate.call.call import Target
from spangate.call.seen import Place
from spangate.exporters.usage.settings import Price
from spangate.proxy.pricing import Pricing


def test_the_files_prices_come_first_then_the_catalog() -> None:
    Pricing.load()
    places = {"openai": Place("openai", "api.openai.com", 443), "local": Place("ollama", "127.0.0.1", 11434)}
    pricing = Pricing([Price(provider="local", model="*", input=Decimal("0.5"), output=Decimal(2))], places)
    ours, theirs = pricing(Target("local", "qwen")), pricing(Target("openai", "gpt-4o"))
    assert ours is not None
    assert ours(1000, 100) == 1000 * 500 + 100 * 2000
    assert theirs is not None
    assert theirs(1000, 0) > theirs(1000, 0, 1000) > 0
    assert pricing(Target("openai", "nobody-knows-this")) is None
    assert pricing(Target("gone", "qwen")) is None
