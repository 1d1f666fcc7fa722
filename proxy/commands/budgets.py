"""`spangate budgets`: how every budget stands, by the running gateway, or without one by the database; and whether webhooks answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...exporters.usage.sql import Answer
from .asking import Place, ask, ask_page, place_of, running
from .demo_page import console
from .failure import Failure
from .rows import plain, shown, table

COLUMNS = ("name", "scope", "window", "unit", "limit", "used", "reserved", "remaining", "resets_at", "forecast")
_KEPT = """SELECT name, scope, "window", unit, max("limit") AS "limit", sum(used) AS used, 0 AS reserved,
    greatest(0, max("limit") - sum(used)) AS remaining, max(resets_at) AS resets_at, sum(used) AS forecast
    FROM budgets WHERE mode = 'enforce' AND (resets_at IS NULL OR resets_at > now() AT TIME ZONE 'UTC')
    GROUP BY name, scope, "window", unit ORDER BY name, scope"""
_NUMBERS = frozenset({"limit", "used", "reserved", "remaining", "forecast"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `test`: whether webhooks are tried."""

    file: Path | None = None
    test: bool = False


def budgets(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Show them, or try their webhooks; the exit code.

    Raises:
        Failure: nobody knows, or a webhook doesn't answer.
        ConfigMistakes: the configuration can't be read.
    """
    place = place_of(wanted.file, environ)
    if wanted.test:
        return _tested(ask_page(place, "POST", "/admin/budgets/test"))
    rows = ask_page(place, "GET", "/admin/budgets") if running(place) else _kept(place)
    if rows:
        out = console()
        if out.is_terminal:
            shown(answer_of(rows), out)
        else:
            print("\n".join(table(answer_of(rows))))  # noqa: T201
    else:
        print("no budget is configured: docs/budgets.md shows how")  # noqa: T201
    return 0


def _kept(place: Place) -> list[dict[str, Any]]:
    """What the database knows of windows that have not ended, where no gateway runs: nothing is held then.

    Raises:
        Failure: there is none, or it can't be read.
    """
    answer = ask(place, _KEPT)
    rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    return [{**row, "resets_at": row["resets_at"] and f"{row['resets_at']}Z"} for row in rows]


def answer_of(rows: Sequence[Mapping[str, Any]]) -> Answer:
    """As an answer of SQL, which is shown in the same way."""
    types = tuple("DOUBLE" if name in _NUMBERS else "VARCHAR" for name in COLUMNS)
    return Answer(COLUMNS, types, [[_shown(name, row.get(name)) for name in COLUMNS] for row in rows], truncated=False, seconds=0.0)


def _tested(rows: Sequence[Mapping[str, Any]]) -> int:
    if not rows:
        raise Failure("no budget has a webhook: set `thresholds: {webhook: …, secret: …}` on one")
    failed = [row for row in rows if not str(row["answer"]).startswith("2")]
    for row in rows:
        print(plain(f"{row['name']}: {row['host']} answers {row['answer']}"))  # noqa: T201
    if failed:
        raise Failure(f"{len(failed)} of {len(rows)} webhooks did not take it: they must answer with a status of 2xx")
    return 0


def _shown(name: str, value: Any) -> Any:
    return "never" if name == "resets_at" and value is None else value
