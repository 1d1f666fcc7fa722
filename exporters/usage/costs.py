"""What attempts cost, for metrics: the bills that become rows, so that a dashboard and SQL tell the same figure."""

from __future__ import annotations

from collections.abc import Sequence

from ...call.seen import Attempt, Seen
from .prices import NANO, Prices
from .rows import Bill, Place, Rows
from .settings import Price
from .spool_lines import closed


class Costs:
    """US dollars of an attempt, and how they are known; None: nobody knows its price, or it used nothing. For one thread."""

    def __init__(self, prices: Sequence[Price] = ()) -> None:
        self._rows = Rows(Prices(prices))

    def __call__(self, seen: Seen, attempt: Attempt) -> tuple[float, str] | None:
        usage = attempt.usage
        if usage is not None and not usage.unknown:
            place = Place(attempt.provider, attempt.system, attempt.address, attempt.target_model, attempt.started_ns)
            bill: Bill | None = self._rows.priced(place, usage)
        else:  # estimated from all that is known of the call
            bill = self._rows.bills(closed(seen))[seen.attempts.index(attempt)]
        return None if bill is None or bill.cost is None else (bill.cost / NANO, bill.cost_source)
