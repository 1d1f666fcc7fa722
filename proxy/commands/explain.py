"""`spangate explain`: what became of one call, from its rows: who asked, what was decided, who was tried, what it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from .asking import Place, ask, place_of
from .demo_page import console
from .failure import Failure
from .rows import plain

_COLORS = {"completed": "green", "success": "green", "refused": "yellow", "cut": "yellow", "failed": "red", "error": "red"}

WIDE = 1000  # columns of a pipe

Row = Mapping[str, Any]

LEAST = 6  # characters that a beginning must have: with fewer, chance picks
MOST = 10  # calls that are named where several begin so; one more is asked for

_CALLS = "SELECT * FROM calls WHERE id = $id OR trace_id = $id OR client_request_id = $id ORDER BY started_at LIMIT 20"
_BEGIN = (
    "SELECT id, trace_id, status, model FROM calls WHERE starts_with(id, $id) OR starts_with(trace_id, $id) "
    "OR starts_with(client_request_id, $id) ORDER BY started_at DESC LIMIT 11"
)
_ATTEMPTS = "SELECT *, date_diff('microsecond', started_at, ended_at) / 1000 AS took FROM attempts WHERE call_id = $id ORDER BY number"
_DECISIONS = "SELECT * FROM decisions WHERE call_id = $id"


def explain(id: str, file: Path | None, environ: Mapping[str, str]) -> int:
    """Show it. Of an id its beginning is enough, if no other call's begins so; `…` at its end means that.

    Raises:
        Failure: there is no such call, several begin so, or nobody can be asked.
        ConfigMistakes: the configuration can't be read.
    """
    place = place_of(file, environ)
    id = id.strip().rstrip("….")
    calls = (_rows(place, _CALLS, id) or _begun(place, id)) if id else []
    if not calls:
        raise Failure(f"no call has the id {plain(id[:100])}: `spangate tail` shows those of the latest")
    out = console()
    if not out.is_terminal:
        out.width = WIDE
    for call in calls:
        tell(call, _rows(place, _ATTEMPTS, call["id"]), _rows(place, _DECISIONS, call["id"]), out)
    return 0


def _begun(place: Place, id: str) -> list[Row]:
    """The one call of which an id begins so, if any, or the calls of the one trace.

    Raises:
        Failure: there are several.
    """
    if len(id) < LEAST:
        return []
    found = _rows(place, _BEGIN, id)
    traces = {row["trace_id"] for row in found}
    if len(traces) == 1 and (trace := traces.pop()).startswith(id):
        return _rows(place, _CALLS, trace)
    if len(found) > 1:
        listed = ", ".join(f"{row['id']} ({row['status']} {row['model']})" for row in found[:MOST])
        raise Failure(plain(f"several calls begin with {id}: {listed}{', …' if len(found) > MOST else ''}: give more of the id"))
    return _rows(place, _CALLS, found[0]["id"]) if found else []


def _rows(place: Place, sql: str, id: str) -> list[Row]:
    answer = ask(place, sql, {"id": id})
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def tell(call: Row, attempts: list[Row], decisions: list[Row], out: Console) -> None:
    """One call as a tree."""
    tree = Tree(Text.assemble((call["id"], "bold"), "  ", *_ending(call)))
    for name, value in _facts(call):
        tree.add(Text.assemble((f"{name:<10}", "dim"), plain(value)))
    if decisions:
        branch = tree.add(Text("decisions", "dim"))
        for row in decisions:
            branch.add(Text(plain(_decision(row))))
    for row in attempts:
        tree.add(Text.assemble((f"attempt {row['number']} ", "dim"), plain(_attempt(row)), "  ", *_ending(row)))
    if not attempts:
        tree.add(Text("no request was sent to a provider", "dim"))
    out.print(tree)


def _ending(row: Row) -> Iterator[tuple[str, str]]:
    outcome = row["outcome"]
    told = [str(row["status"] or ""), outcome, row.get("error_code") or row.get("error_type") or ""]
    yield plain(" ".join(filter(None, told))), _COLORS.get(outcome, "magenta")


def _facts(call: Row) -> Iterator[tuple[str, str]]:
    yield "asked", f"{call['op']} {call['model']}{' as a stream' if call['stream'] else ''} at {call['started_at']} UTC"
    labels = {name: call[name] for name in ("user", "thread", "reply", "client_request_id") if call[name]}
    who = f"{call['team']}/{call['key']}" if call["team"] else "no team's key"
    words = [who, f"of {call['organisation']}" if call["organisation"] else ""]
    words += [f"{name} {value}" for name, value in (labels | call["tags"]).items()]
    yield "caller", "  ".join(filter(None, words))
    yield "trace", call["trace_id"]
    yield "rules", f"configuration {call['config_version']}"
    if call["duration_ms"] is not None:
        first = f", {call['first_token_ms']:g} until the first content" if call["first_token_ms"] is not None else ""
        yield "took", f"{call['duration_ms']:g} ms{first}, {call['overhead_ms'] or 0:g} of them the gateway's own"
    yield "used", _used(call) if call["usage_source"] != "none" else "nothing"


def _used(row: Row) -> str:
    parts = {"cached": row["cached_tokens"], "reasoning": row["reasoning_tokens"]}
    details = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    tokens = f"{row['input_tokens']:,}+{row['output_tokens']:,} tokens{f' ({details})' if details else ''}"
    by = f" as {row['usage_source']} says" if row.get("usage_source") == "provider" else " by estimate" if "usage_source" in row else ""
    cost = "no price known" if row["cost"] is None else f"${row['cost']:.9f}".rstrip("0").rstrip(".")
    return f"{tokens}{by}, {cost}{f' ({source})' if (source := row.get('cost_source')) not in (None, '', 'unpriced') else ''}"


def _decision(row: Row) -> str:
    figures = row["figures"]
    figures = figures if isinstance(figures, str) else json.dumps(figures, ensure_ascii=False)
    words = [f"{row['policy']}.{row['kind']}".strip("."), row["verdict"], f"({row['mode']})" if row["mode"] not in ("", "enforce") else ""]
    return "  ".join(filter(None, [*words, row["rule"], figures if figures not in ("{}", "null") else ""]))


def _attempt(row: Row) -> str:
    why = f" ({row['reason']})" if row["reason"] != "first" else ""
    took = f"  {row['took']:g} ms" if row["took"] is not None else ""
    used = f"  {_used(row)}" if row["input_tokens"] is not None else ""
    theirs = f"  {row['upstream_request_id']}" if row["upstream_request_id"] else ""
    return f"→ {row['provider']} {row['target_model']}{why}{took}{used}{theirs}"
