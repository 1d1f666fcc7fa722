"""Notes of policies → span events and log events, and what a call's span says about them all.

A note `budget.refused` with the figures `used` and `limit` becomes an event `spangate.policy` with `spangate.policy.name` = `budget`,
`spangate.policy.note` = `budget.refused`, `spangate.budget.used`, `spangate.budget.limit`. What every policy may say (`verdict`, `action`,
`mode`, …) stands under `spangate.policy`. A note has no time of its own: its events carry the end of the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from ...call.notes import Told
from ...call.seen import Seen
from .. import semconv
from ..record import INFO, WARN, LogRecord, SpanEvent, Value

REFUSED = frozenset({"refused", "denied", "blocked"})


def events_of(seen: Seen, at: int) -> list[SpanEvent]:
    """A span event a note."""
    return [SpanEvent(semconv.EVENT_POLICY, at, attributes_of(note, seen)) for note in seen.notes]


def logs_of(seen: Seen, at: int, caller: Mapping[str, Value], *, sampled: bool) -> list[LogRecord]:
    """A log event for each note of a decision against a call, and of a threshold. They are the audit trail: sampling doesn't ask them."""
    return [
        LogRecord(
            semconv.LOG_EVENTS.get(note.name, semconv.LOG_POLICY_DECISION),
            at,
            {semconv.REQUEST_ID: seen.id, semconv.REQUEST_MODEL: seen.model, **caller, **attributes_of(note, seen)},
            WARN if action_of(note) == "block" else INFO,
            seen.trace_id,
            seen.span_id,
            sampled,
        )
        for note in seen.notes
        if note.name in semconv.LOG_EVENTS or verdict_of(note) not in ("", "allow")
    ]


def summary_of(seen: Seen) -> dict[str, Value]:
    """The worst verdict and action of a call's notes, and which policies they are from."""
    judged = [note for note in seen.notes if verdict_of(note)]
    if not judged:
        return {}
    said: dict[str, Value] = {
        semconv.POLICY_VERDICT: _worst(map(verdict_of, judged), semconv.VERDICTS),
        semconv.POLICY_ACTION: _worst(map(action_of, judged), semconv.ACTIONS),
    }
    matched = list(dict.fromkeys(_rule(note) for note in judged if verdict_of(note) != "allow"))
    if matched:
        said[semconv.POLICY_MATCHED] = matched
    return said


def verdict_of(note: Told) -> str:
    """What a policy thought of a call; empty for a note that judges nothing."""
    said = note.figures.get("verdict")
    if isinstance(said, str):
        return said
    return "deny" if note.name.rpartition(".")[2] in REFUSED else ""


def action_of(note: Told) -> str:
    """What came of it. In shadow mode nothing does."""
    said = note.figures.get("action")
    if isinstance(said, str):
        return said
    if note.figures.get("mode") == "shadow":
        return "allow"
    return {"deny": "block", "modify": "modify", "escalate": "escalate"}.get(verdict_of(note), "allow")


def attributes_of(note: Told, seen: Seen) -> dict[str, Value]:
    """A note as attributes."""
    policy = note.name.partition(".")[0]
    said: dict[str, Value] = {semconv.POLICY_NAME: policy, semconv.POLICY_NOTE: note.name}
    if verdict := verdict_of(note):
        said |= {semconv.POLICY_VERDICT: verdict, semconv.POLICY_ACTION: action_of(note)}
    if seen.config_version:
        said[semconv.POLICY_VERSION] = seen.config_version
    for name, figure in note.figures.items():
        value = _plain(figure)
        if value is not None:
            said[f"{semconv.POLICY_PREFIX if name in semconv.POLICY_FIGURES else f'{semconv.FIGURE_PREFIX}{policy}.'}{name}"] = value
    return said


def _plain(figure: Any) -> Value | None:
    """A figure as viewers can show it: mappings as JSON, decimals as numbers."""
    if isinstance(figure, str | bool | int | float):
        return figure
    if isinstance(figure, Decimal):
        return float(figure)
    if isinstance(figure, list | tuple | set | frozenset):
        return [each for each in map(_plain, figure) if isinstance(each, str | bool | int | float)]
    return json.dumps(figure, default=str) if isinstance(figure, dict) else None


def _rule(note: Told) -> str:
    policy, rule = note.name.partition(".")[0], note.figures.get("rule")
    return f"{policy}/{rule}" if isinstance(rule, str) else policy


def _worst(said: Iterable[str], order: tuple[str, ...]) -> str:
    return max(said, key=lambda word: order.index(word) if word in order else -1)
