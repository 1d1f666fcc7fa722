"""Kill switches on disk: the file that `spangate stop` and `spangate resume` write, and that the gateways on this database read.

A switch is `team:NAME`, `key:TEAM/NAME`, `model:NAME` or `provider:NAME`. Each has a last turn, stopped or resumed, and of two words about
one switch the newer counts: so gateways that share a state can tell each other, and one that was away brings no old word back. That
is why what was resumed is remembered here for a while.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import yaml
from pydantic import AfterValidator, Field, ValidationError

from .contents import text_of, told_of
from .document import read
from .mistakes import ConfigMistakes, did_you_mean, quoted
from .replacing import alone_with, replace_whole
from .settings import MODEL_PATTERN, NAME_PATTERN, Moment, Section
from .validation import mistakes_of

MOST = 200  # switches that may be on, and of which it is known that they were
REMEMBERED = timedelta(days=30)  # how long it is known that a switch was on
_NAME = NAME_PATTERN.strip("^$")
_FORMS = {
    "team": (NAME_PATTERN, "team:NAME"),
    "key": (f"^{_NAME}/{_NAME}$", "key:TEAM/NAME"),
    "model": (MODEL_PATTERN, "model:NAME"),
    "provider": (NAME_PATTERN, "provider:NAME"),
}
HEADER = """\
# Kill switches of spangate. Written by `spangate stop` and `spangate resume`; a gateway sees a change within a second.
"""


class TooMany(ValueError):
    """So many are stopped that one more isn't taken."""


class Turn(NamedTuple):
    """The last word about a switch, and when it was said (UTC)."""

    stopped: bool
    at: datetime


Turns = Mapping[str, Turn]


def switch_of(text: str) -> str:
    """What is named, if it can be a switch.

    Raises:
        ValueError: it can't; the words say what one looks like.
    """
    scope, colon, name = text.partition(":")
    forms = ", ".join(form for _, form in _FORMS.values())
    if not colon:
        raise ValueError(f"{quoted(text)}: say what it is: {forms}")
    if scope not in _FORMS:
        raise ValueError(f"{quoted(text)}: there is no {quoted(scope)} to stop{did_you_mean(scope, _FORMS)}; there are {forms}")
    pattern, form = _FORMS[scope]
    if not re.fullmatch(pattern, name):
        raise ValueError(f"{quoted(text)}: must be {form}")
    return text


Switch = Annotated[str, AfterValidator(switch_of)]


class StopsFile(Section):
    """The file of kill switches."""

    stopped: dict[Switch, Moment] = Field(default={})
    """What is stopped, and since when."""
    resumed: dict[Switch, Moment] = Field(default={})
    """What is so no more, and since when."""


def stops_path(database: Path) -> Path:
    """Where the switches of the gateways on a database lie."""
    return database.with_name(f"{database.name}.stops")


def load(path: Path) -> Turns:
    """What the file at `path` says; where there is none, nothing is stopped.

    Raises:
        ConfigMistakes: it can't be read, or isn't a file of switches.
    """
    return parse(content(path), str(path))


def content(path: Path) -> bytes:
    """What the file holds; nothing where there is none.

    Raises:
        ConfigMistakes: it can't be read.
    """
    try:
        return told_of(path, str(path))[0]
    except FileNotFoundError:
        return b""


def parse(found: bytes, file: str) -> Turns:
    """What a file of that content says.

    Raises:
        ConfigMistakes: it isn't one of switches.
    """
    document = read(text_of(found, file), file, {})
    plain = document.plain() if document.root.value is not None else {}
    if document.mistakes:
        raise ConfigMistakes(document.mistakes)
    try:
        kept = StopsFile.model_validate(plain)
    except ValidationError as error:
        raise ConfigMistakes(mistakes_of(error, document, StopsFile.model_json_schema())) from None
    return merged(
        {switch: Turn(False, at) for switch, at in kept.resumed.items()},
        {switch: Turn(True, at) for switch, at in kept.stopped.items()},
    )


def merged(*said: Turns) -> dict[str, Turn]:
    """The newest word about each switch; of two at one instant, that it is stopped."""
    found: dict[str, Turn] = {}
    for turns in said:
        for switch, turn in turns.items():
            if switch not in found or newer(turn, found[switch]):
                found[switch] = turn
    return found


def newer(turn: Turn, than: Turn | None) -> bool:
    """Whether it counts more."""
    return than is None or (turn.at, turn.stopped) > (than.at, than.stopped)


def turn(path: Path, switch: str, *, stopped: bool, now: datetime) -> Turn | None:
    """Stop or resume, and return the word that stood before: None if there was none.

    Raises:
        ConfigMistakes: the file as it is can't be read.
        TooMany:
        OSError: it can't be written.
    """
    with alone_with(path):
        turns = load(path)
        before = turns.get(switch)
        if before is not None and before.stopped == stopped:
            return before
        if stopped and sum(each.stopped for each in turns.values()) >= MOST:
            raise TooMany(f"{MOST} switches are on already: `spangate resume` some")
        # Later than the word it replaces, also by a clock that is behind.
        at = now if before is None else max(now, before.at + timedelta(microseconds=1))
        _write(path, {**turns, switch: Turn(stopped, at)}, now)
        return before


def keep(path: Path, turns: Turns, now: datetime) -> Turns:
    """Take what others have said into the file, as far as it is newer; what it says then.

    Raises:
        ConfigMistakes: the file as it is can't be read.
        OSError: it can't be written.
    """
    with alone_with(path):
        before = load(path)
        after = merged(before, turns)
        if after != before:
            _write(path, after, now)
        return after


def remembered(turns: Turns, now: datetime) -> dict[str, Turn]:
    """Without what nobody needs to know any more. What is stopped stays, however many that is."""
    newest = sorted(turns.items(), key=lambda item: item[1].at, reverse=True)
    on = [(switch, each) for switch, each in newest if each.stopped]
    off = [(switch, each) for switch, each in newest if not each.stopped and now - each.at < REMEMBERED]
    return dict([*on, *off[:MOST]])


def _write(path: Path, turns: Turns, now: datetime) -> None:
    kept = remembered(turns, now)
    told = {
        word: {switch: each.at.astimezone(UTC).isoformat() for switch, each in kept.items() if each.stopped == stopped}
        for word, stopped in (("stopped", True), ("resumed", False))
    }
    # Nothing in it is a secret, and a gateway that runs as another user than the command must be able to read it.
    replace_whole(path, HEADER + yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=300), mode=0o644)
