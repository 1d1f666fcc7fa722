"""`spangate tail`: the calls of a running gateway as they end, one line each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ...call.events import Usage
from ...call.seen import Seen
from ...exporters.console import text_after_status
from ..mistakes import did_you_mean, quoted
from .asking import Place, ask_gateway, place_in
from .choices import Ended
from .demo_page import console
from .failure import unusable
from .rows import plain
from .written import Written, written

EVERY = 1.0  # seconds between two looks
MOST = 10_000  # calls a look
LATE = 5  # seconds that a row may come after others which ended later
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC without saying so, as DuckDB keeps times
_COLORS = {"completed": "green", "refused": "yellow", "failed": "red", "aborted": "magenta", "cut": "yellow"}

_TEAMS = "SELECT DISTINCT team FROM calls WHERE team <> '' LIMIT 1000"
_MODELS = "SELECT DISTINCT model FROM calls WHERE model <> '' LIMIT 1000"
_CALLS = (
    'SELECT id, started_at, ended_at, op, stream, model, provider, target_model, status, outcome, error_code, "key", team, '
    "input_tokens, output_tokens, duration_ms, first_token_ms, attempts FROM calls WHERE ($team = '' OR team = $team) "
    "AND ($model = '' OR model GLOB $model) AND ($outcome = '' OR outcome = $outcome)"
    " AND ended_at > $since::TIMESTAMP ORDER BY ended_at DESC LIMIT $most"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `last`: how many calls that have ended are shown first."""

    file: Path | None = None
    team: str = ""
    model: str = ""
    outcome: Ended | None = None
    last: int = 10


def tail(wanted: Wanted, environ: Mapping[str, str], *, again: Callable[[], bool] | None = None) -> int:
    """Show calls until Ctrl-C, or while `again`, which waits between two looks.

    Raises:
        Failure: no gateway answers, or nobody knows the team or the model.
        ConfigMistakes: the configuration can't be read.
    """
    config = written(wanted.file, environ)
    place = place_in(config)
    check_names(wanted, config, place)
    calls = Calls(place, wanted)
    out = console()
    again = again or _wait
    show(calls.last(), out)
    while again():
        show(calls.new(), out)
    return 0


def check_names(wanted: Wanted, config: Written | None, place: Place) -> None:
    """A name that neither the configuration nor any row has would be waited for until Ctrl-C.

    Raises:
        Failure: it is such a one, or no gateway answers.
    """
    if wanted.team:
        _known("team", wanted.team, {*(config.teams if config else ()), *_seen(place, _TEAMS)})
    named = not set(wanted.model) & set("*?[")  # else it is a pattern, which may fit what is to come
    if wanted.model and named and config is not None and not config.may_answer(wanted.model):
        _known("model", wanted.model, {*config.models, *_seen(place, _MODELS)})


def _known(what: str, name: str, known: set[str]) -> None:
    if name not in known:
        there = f"; there are: {', '.join(map(plain, sorted(known)[:10]))}" if known else "; there are none"
        raise unusable(f"no {what} {quoted(name)}{plain(did_you_mean(name, known)) or there}")


def _seen(place: Place, asked: str) -> list[str]:
    return [row[0] for row in ask_gateway(place, asked).rows]


def _wait() -> bool:
    time.sleep(EVERY)
    return True


def show(calls: Iterable[Seen], out: Console) -> None:
    """A line each, as the gateway's own terminal has it."""
    for seen in calls:
        out.print(Text.assemble((str(seen.status), _COLORS.get(seen.outcome or "", "")), " ", text_after_status(seen)), soft_wrap=True)
    out.file.flush()


class Calls:
    """The calls that have ended, each once."""

    def __init__(self, place: Place, wanted: Wanted) -> None:
        self._place = place
        self._wanted = wanted
        self._shown: set[str] = set()
        self._since = EPOCH

    def last(self) -> list[Seen]:
        """The newest, oldest first."""
        [[now]] = ask_gateway(self._place, "SELECT now() AT TIME ZONE 'UTC'").rows
        self._since = datetime.fromisoformat(now)
        before = {row[0] for row in self._window()}
        rows = self._ask(EPOCH, self._wanted.last) if self._wanted.last else []
        self._shown = before | {row[0] for row in rows}
        return [seen_of(row) for row in rows]

    def new(self) -> list[Seen]:
        """Those that have ended since."""
        rows = self._window()
        fresh = [row for row in rows if row[0] not in self._shown]
        self._shown = {row[0] for row in rows}
        return [seen_of(row) for row in fresh]

    def _window(self) -> list[list[Any]]:
        """Whatever may have come since the last look, some of it known."""
        rows = self._ask(self._since - timedelta(seconds=LATE), MOST)
        self._since = max([self._since, *(datetime.fromisoformat(row[2]) for row in rows)])
        return rows

    def _ask(self, since: datetime, most: int) -> list[list[Any]]:
        wanted = self._wanted
        given = {"team": wanted.team, "model": wanted.model, "outcome": wanted.outcome or "", "since": since.isoformat(), "most": most}
        return ask_gateway(self._place, _CALLS, given).rows[::-1]


def seen_of(row: Sequence[Any]) -> Seen:
    """A row of `_COLUMNS` as far as its line needs it."""
    id, _, _, op, stream, model, provider, target, status, outcome, code, key, team, sent, came, took, first, attempts = row
    seen = Seen(
        id, 0, 0, 0, 0.0, op=op, stream=stream, model=model, provider=provider, target_model=target, status=status or 0, outcome=outcome,
        error_code=code, team=team, key=key, ended=(took or 0.0) / 1000, first_content=(first or 0.0) / 1000,
        usage=None if sent is None else Usage(sent, came or 0),
    )  # fmt: skip
    for _ in range(attempts or 0):
        seen.attempt(provider, target)
    return seen
