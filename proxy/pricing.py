"""What targets cost, for budgets in US dollars: by the same prices as rows are. The catalog is loaded beforehand, off the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..call.call import Target
from ..call.clock import SYSTEM, Clock
from ..call.seen import Place
from ..exporters.usage.prices import Prices
from ..exporters.usage.settings import Price
from ..policies.bounds import Price as Function


class Pricing:
    """The price of a target; None: nobody knows it. `places` are the configuration's providers."""

    def __init__(self, overrides: Sequence[Price], places: Mapping[str, Place], clock: Clock = SYSTEM) -> None:
        self._prices = Prices(overrides)
        self._places = places
        self._clock = clock

    def __call__(self, target: Target) -> Function | None:
        place = self._places.get(target.provider, Place())
        rates = self._prices.rates(target.provider, place.system, place.address, target.model, self._clock.wall())
        return None if rates is None else rates.nano

    @staticmethod
    def load() -> None:
        """Have the catalog at hand. Takes a tenth of a second, so not for the loop."""
        Prices().rates("", "", "", "", 0)
