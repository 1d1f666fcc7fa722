"""What budgets have used, by name, scope and window: summed up from the notes of calls that have ended, and from what calls held that
were interrupted. It is written together with their rows, so that nothing counts twice, and read when a gateway starts.

A note `budget.settled` says what a call has used of one budget; the opening line of a call says what it holds, in `holds.budgets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from .spool_lines import Noted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SETTLED = "budget.settled"
FIELDS = ("name", "scope", "unit", "window", "mode", "resets_at", "settled", "limit")
"""What of a note counts, and the order in which `holds.budgets` has it."""
NANO = 10**9
MOST = 9 * 10**27  # billionths that a row holds

TABLE = """CREATE TABLE budgets (organisation VARCHAR, name VARCHAR, scope VARCHAR, unit VARCHAR, "window" VARCHAR, mode VARCHAR,
    resets_at TIMESTAMP, "limit" DECIMAL(38, 9), used DECIMAL(38, 9), calls BIGINT)"""

_ADD = """MERGE INTO budgets AS known USING (
    SELECT unnest($1::VARCHAR[]) AS organisation, unnest($2::VARCHAR[]) AS name, unnest($3::VARCHAR[]) AS scope,
        unnest($4::VARCHAR[]) AS unit, unnest($5::VARCHAR[]) AS "window", unnest($6::VARCHAR[]) AS mode,
        unnest($7::VARCHAR[])::TIMESTAMP AS resets_at, unnest($8::VARCHAR[])::DECIMAL(38, 9) AS "limit",
        unnest($9::VARCHAR[])::DECIMAL(38, 9) AS used, unnest($10::BIGINT[]) AS calls
) AS more ON known.organisation = more.organisation AND known.name = more.name AND known.scope = more.scope AND known.unit = more.unit
    AND known."window" = more."window" AND known.mode = more.mode AND known.resets_at IS NOT DISTINCT FROM more.resets_at
WHEN MATCHED THEN UPDATE SET used = known.used + more.used, calls = known.calls + more.calls, "limit" = more."limit"
WHEN NOT MATCHED THEN INSERT (organisation, name, scope, unit, "window", mode, resets_at, "limit", used, calls) VALUES
    (more.organisation, more.name, more.scope, more.unit, more."window", more.mode, more.resets_at, more."limit", more.used, more.calls)
"""


class Key(NamedTuple):
    """One counter in one window."""

    organisation: str
    name: str
    scope: str
    unit: str
    window: str
    mode: str
    resets_at: str | None


class Used:
    """What was used of one, by so many calls, and its limit as the last of them knew it."""

    __slots__ = ("amount", "calls", "limit")

    def __init__(self) -> None:
        self.amount = 0
        self.calls = 0
        self.limit = 0


class Budgets:
    """Sums of some calls."""

    def __init__(self) -> None:
        self._used: dict[Key, Used] = {}

    def __len__(self) -> int:
        return len(self._used)

    def settled(self, organisation: str, notes: Sequence[Noted]) -> int | None:
        """Calls that have ended. Returns what the call has used of the first budget of weighted tokens, in millionths."""
        weighted: int | None = None
        for note in notes:
            if note.name != SETTLED:
                continue
            figures = note.figures
            amount = self._add(organisation, [figures.get(name) for name in FIELDS])
            if amount is not None and weighted is None and figures.get("unit") == "weighted_tokens" and "mode" not in figures:
                weighted = amount // 1000
        return weighted

    def held(self, organisation: str, holds: Mapping[str, Any]) -> None:
        """A call that was interrupted has used what it held."""
        budgets = holds.get("budgets")
        for each in budgets if isinstance(budgets, list) else ():
            if isinstance(each, list) and len(each) == len(FIELDS):
                self._add(organisation, each)

    def _add(self, organisation: str, said: Sequence[Any]) -> int | None:
        name, scope, unit, window, mode, resets_at, settled, limit = said
        amount = _nano(settled)
        texts = (name, scope, unit, window)
        if amount is None or not all(isinstance(text, str) for text in texts):
            return None
        whose = scope.partition(":")[2] if scope.startswith("provider:") else organisation
        home = f"provider:{whose}" if scope.startswith("provider:") else organisation
        until = resets_at.removesuffix("Z") if isinstance(resets_at, str) else None
        used = self._used.setdefault(Key(home, name, scope, unit, window, mode if isinstance(mode, str) else "enforce", until), Used())
        used.amount += amount
        used.calls += 1
        used.limit = _nano(limit) or 0
        return amount

    def write(self, connection: DuckDBPyConnection) -> None:
        """Add them to the table; within the caller's transaction."""
        if not self._used:
            return
        keys = [list(column) for column in zip(*self._used, strict=True)]
        sums = list(self._used.values())
        figures = [[_decimal(used.limit) for used in sums], [_decimal(used.amount) for used in sums], [used.calls for used in sums]]
        connection.execute(_ADD, [*keys, *figures])


def _nano(value: Any) -> int | None:
    """The amount in billionths; None if it is none that anybody counts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = value * NANO if isinstance(value, int) else round(value * NANO) if abs(value) < MOST / NANO else MOST
    return min(max(amount, 0), MOST)


def _decimal(amount: int) -> str:
    return str(Decimal(amount).scaleb(-9))
