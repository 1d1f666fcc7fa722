"""`spangate keys`: virtual keys made, listed and revoked in the keys file of a configuration. A key itself is shown once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from .. import keys_file
from ..config import DEFAULT_FILE
from ..keys_file import KeysFileError
from ..mistakes import did_you_mean, quoted
from ..settings import Key
from .failure import Failure, unusable
from .serve import reachable
from .written import Written, written


def new(file: Path | None, team: str, name: str | None, expires: str | None, environ: Mapping[str, str]) -> int:
    """Make a key: the lines to paste on stdout, the talk on stderr.

    Raises:
        Failure: it can't be made.
        ConfigMistakes: a file can't be read.
    """
    config = _written(file, environ)
    if not config.teams:
        raise unusable(f"there are no teams in {config.path}: add one, as in `teams: {{{team}: {{}}}}`")
    own = {key.name for owner, key in config.own_keys() if owner == team}
    if (name or "key") in own:
        raise unusable(f"team {team} has a key {quoted(name or 'key')} in {config.path} already: choose another with --name")
    try:
        key, stored = keys_file.new(config.keys_path, team, name, expires=expires, now=datetime.now(UTC), teams=config.teams)
    except KeysFileError as error:
        raise unusable(str(error)) from error
    except OSError as error:
        raise _unwritten(config.keys_path, error) from error
    ends = f"expires {_day(stored.expires)}" if stored.expires else "never expires"
    _say(f"key {team}/{stored.name}, {ends}. Shown this once: only its hash is kept, in {config.keys_path}.")
    print(f"export OPENAI_BASE_URL={reachable(config.address).url}/v1\nexport OPENAI_API_KEY={key}")  # noqa: T201
    return 0


def listed(file: Path | None, team: str | None, environ: Mapping[str, str]) -> int:
    """List the keys of one team or of all, those of the configuration itself too.

    Raises:
        Failure: there is no such team.
        ConfigMistakes: a file can't be read.
    """
    config = _written(file, environ)
    stored = keys_file.listed(config.keys_path)
    teams = {*config.teams, *(owner for owner, _ in stored)}
    if team is not None and team not in teams:
        raise unusable(f"no team {quoted(team)}{did_you_mean(team, teams) or _known(teams)}")
    found = [(owner, key, str(config.path)) for owner, key in config.own_keys()]
    found += [(owner, key, str(config.keys_path)) for owner, key in stored]
    rows = [_row(owner, key, place) for owner, key, place in found if team in (None, owner)]
    if not rows:
        _say(f"no keys: spangate keys new {team or next(iter(config.teams), 'TEAM')}")
        return 0
    print("\n".join(_columns([("KEY", "CREATED", "EXPIRES", "FILE"), *rows])))  # noqa: T201
    return 0


def revoke(file: Path | None, key: str, environ: Mapping[str, str]) -> int:
    """Take TEAM/NAME out of the keys file.

    Raises:
        Failure: there is no such key.
        ConfigMistakes: a file can't be read.
    """
    team, slash, name = key.partition("/")
    if not slash or not team or not name:
        raise unusable(f"{quoted(key)}: a key is named TEAM/NAME, as `spangate keys list` shows it")
    config = _written(file, environ)
    if (team, name) in {(owner, held.name) for owner, held in config.own_keys()}:
        raise unusable(f"{key} stands in {config.path} itself: take it out there")
    try:
        keys_file.revoke(config.keys_path, team, name, teams=config.teams)
    except KeysFileError as error:
        raise unusable(str(error)) from error
    except OSError as error:
        raise _unwritten(config.keys_path, error) from error
    _say(f"revoked {key}; a running gateway refuses it within a second")
    return 0


def _written(file: Path | None, environ: Mapping[str, str]) -> Written:
    found = written(file, environ)
    if found is None:
        raise unusable(f"there is no {DEFAULT_FILE} here: `spangate init` writes one, -c names another")
    return found


def _unwritten(path: Path, error: OSError) -> Failure:
    return Failure(f"{path} can't be written: {error.strerror}")


def _known(teams: set[str]) -> str:
    return f"; there are: {', '.join(sorted(teams)[:10])}" if teams else "; there are none"


def _row(team: str, key: Key, place: str) -> tuple[str, str, str, str]:
    created = getattr(key, "created", None)
    expired = key.expires is not None and key.expires <= datetime.now(UTC)
    ends = f"{_day(key.expires)}{' (expired)' if expired else ''}" if key.expires else "never"
    return f"{team}/{key.name}", _day(created) if created else "-", ends, place


def _columns(rows: list[tuple[str, str, str, str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201
