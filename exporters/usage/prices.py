"""What tokens cost: the operator's prices first, then genai-prices' catalog as it was installed. Nothing here speaks to a network.

Prices are integers, fine enough for every digit of the catalog, so that nothing is rounded before the end. The catalog takes a third of
a second to import: it is loaded by the first call that needs it, which is the usage writer's, never the loop's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import gcd
from typing import TYPE_CHECKING, Any, Literal

from .settings import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

CostSource = Literal["catalog", "override"]

REMEMBERED = 1024  # models whose prices are kept at hand, the last looked up
NANO = 10**9
ATTO = 10**18
MILLION = 10**6
DEAREST = 10**18 - 1  # billionths of a dollar that a row holds

Tiers = tuple[tuple[int, int], ...]  # (above how many input tokens, price), the highest first, the last above -1


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices of one model for a million tokens (`call`: a million calls). `unit`: how many of what they are in are a billionth of a dollar
    a token."""

    source: CostSource
    input: Tiers
    output: Tiers
    cached: Tiers
    cache_write: Tiers
    reasoning: Tiers
    call: int = 0
    unit: int = MILLION * ATTO // NANO

    def nano(self, input: int, output: int, cached: int = 0, cache_write: int = 0, reasoning: int = 0) -> int:
        """What these tokens cost, in billionths of a dollar. `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""
        asked = self.input[0][1] if len(self.input) == 1 else _at(self.input, input)
        answered = self.output[0][1] if len(self.output) == 1 else _at(self.output, input)
        total = self.call + input * asked + output * answered
        if cached or cache_write or reasoning:
            total += cached * (_at(self.cached, input) - asked) + cache_write * (_at(self.cache_write, input) - asked)
            total += reasoning * (_at(self.reasoning, input) - answered)
        if (unit := self.unit) > 1:
            total, rest = divmod(total, unit)
            total += 2 * rest > unit or (2 * rest == unit and total % 2 == 1)  # half to even, as Decimal rounds
        return min(total, DEAREST)

    def reduced(self) -> Rates:
        """The same in the coarsest unit that tells each price: figures of a machine word, and mostly nothing to divide."""
        tiers = (self.input, self.output, self.cached, self.cache_write, self.reasoning)
        by = gcd(self.unit, self.call, *(price for each in tiers for _, price in each))
        input, output, cached, cache_write, reasoning = [tuple((above, price // by) for above, price in each) for each in tiers]
        return Rates(self.source, input, output, cached, cache_write, reasoning, self.call // by, self.unit // by)


Changing = Callable[[int], Rates | None]  # by the time, in nanoseconds


def _at(tiers: Tiers, tokens: int) -> int:
    for above, price in tiers:
        if tokens > above:
            return price
    return 0


class Prices:
    """Prices by the configuration's name of the provider, what OpenTelemetry calls it, its address, and its name of the model."""

    def __init__(self, overrides: Sequence[Price] = ()) -> None:
        self._overrides = tuple(overrides)
        self._found: dict[tuple[str, str, str, str], Rates | Changing | None] = {}

    def rates(self, provider: str, system: str, address: str, model: str, at_ns: int) -> Rates | None:
        """What the model cost at that time; None: nobody knows."""
        key = (provider, system, address, model)
        try:
            found = self._found[key]
        except KeyError:
            found = self._found[key] = self._look_up(*key)
            if len(self._found) > REMEMBERED:
                del self._found[next(iter(self._found))]
        return found if found is None or isinstance(found, Rates) else found(at_ns)

    def _look_up(self, provider: str, system: str, address: str, model: str) -> Rates | Changing | None:
        for price in self._overrides:
            if price.fits(provider, model):
                return _override(price)
        return _catalogued(system, address, model)


def _override(price: Price) -> Rates:
    input, output = _flat(price.input), _flat(price.output)
    return Rates(
        "override",
        input,
        output,
        _flat(price.cached) if price.cached is not None else input,
        _flat(price.cache_write) if price.cache_write is not None else input,
        _flat(price.reasoning) if price.reasoning is not None else output,
    ).reduced()


def _catalogued(system: str, address: str, model: str) -> Rates | Changing | None:
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import ModelPrice

    providers = get_snapshot().providers
    provider = _provider(providers, system, address)
    found = provider.find_model(model, all_providers=providers) if provider else None
    if found is None:
        return None
    return _rates(found.prices) if isinstance(found.prices, ModelPrice) else _changing(found)


def _provider(providers: Sequence[Provider], system: str, address: str) -> Provider | None:
    """By where it lives, since many speak OpenAI's dialect, else by its name."""
    from genai_prices.data_snapshot import find_provider_by_id

    url = f"https://{address}"
    by_address = next((each for each in providers if address and re.match(each.api_pattern, url)), None)
    return by_address or (find_provider_by_id(list(providers), system) if system else None)


def _changing(model: ModelInfo) -> Changing:
    """Prices that depend on the date or the hour."""
    known: dict[int, Rates | None] = {}

    def at(at_ns: int) -> Rates | None:
        prices = model.get_prices(datetime.fromtimestamp(at_ns / NANO, UTC))
        if id(prices) not in known:  # of the catalog, which stays
            known[id(prices)] = _rates(prices)
        return known[id(prices)]

    return at


def _rates(prices: ModelPrice) -> Rates | None:
    """None: the model is paid for in something other than tokens."""
    input, output = _tiers(prices.input_mtok), _tiers(prices.output_mtok)
    if not input and not output:
        return None
    return Rates(
        "catalog",
        input,
        output,
        _tiers(prices.cache_read_mtok) if prices.cache_read_mtok is not None else input,
        _tiers(prices.cache_write_mtok) if prices.cache_write_mtok is not None else input,
        _tiers(prices.output_reasoning_mtok) if prices.output_reasoning_mtok is not None else output,
        _atto(prices.requests_kcount) * 1000 if isinstance(prices.requests_kcount, Decimal) else 0,
    ).reduced()


def _tiers(price: Any) -> Tiers:
    """Crossing a tier's start prices all tokens at its rate."""
    if price is None:
        return ()
    if isinstance(price, Decimal):
        return _flat(price)
    return (*((tier.start, _atto(tier.price)) for tier in reversed(price.tiers)), *_flat(price.base))


def _flat(price: Decimal) -> Tiers:
    return ((-1, _atto(price)),)


def _atto(price: Decimal) -> int:
    return round(price * ATTO)
