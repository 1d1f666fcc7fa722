"""What attempts cost, for metrics: priced as rows are, so that a dashboard and SQL tell the same figure."""

from __future__ import annotations

from collections.abc import Sequence

from ...call.seen import Attempt, Seen
from .prices import NANO, Prices
from .rows import Rows, cost_source, counted
from .settings import Price
from .spool_lines import closed


class Costs:
    """US dollars of an attempt, and how they are known; None: nobody knows its price, or it used nothing. For one thread."""

    def __init__(self, prices: Sequence[Price] = ()) -> None:
        self._prices = Prices(prices)
        self._rows = Rows(self._prices)

    def __call__(self, seen: Seen, attempt: Attempt) -> tuple[float, str] | None:
        usage = attempt.usage
        if usage is None or usage.unknown:  # estimated from all that is known of the call
            bill = self._rows.bills(closed(seen))[seen.attempts.index(attempt)]
            return None if bill is None or bill.cost is None else (bill.cost / NANO, bill.cost_source)
        rates = self._prices.rates(attempt.provider, attempt.system, attempt.address, attempt.target_model, attempt.started_ns)
        if rates is None:
            return None
        input, output, cached, cache_write, reasoning = counted(usage)
        return rates.nano(input, output, cached, cache_write, reasoning) / NANO, cost_source(usage, rates)
