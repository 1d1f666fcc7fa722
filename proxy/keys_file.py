"""Virtual keys on disk: the file that `spangate keys` writes and the gateway reads.

Only hashes stand in it. It is replaced whole, and changed under a lock (replacing.py).
"""

from __future__ import annotations

import hashlib
import re
import secrets
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from ..call.amounts import seconds
from .checks import stored_keys, twice
from .contents import text_of, told_of
from .document import Document, path_text, read
from .mistakes import ConfigMistakes, Mistake, did_you_mean, masked, quoted
from .replacing import alone_with, replace_whole
from .settings import NAME_PATTERN, Key, Moment, Name, Section, moment
from .validation import mistakes_of

HEADER = """\
# Virtual keys of spangate. Written by `spangate keys new` and `spangate keys revoke`; the gateway sees a change within a second.
# Only hashes stand here: a lost key can't be read back, make a new one.
"""


class KeysFileError(ValueError):
    """A change that can't be made; the message says why, and never a key."""


class StoredKey(Key):
    """A virtual key as `spangate keys new` stores it."""

    created: Moment | None = None
    """When it was made."""


class KeysFile(Section):
    """The file of virtual keys."""

    teams: dict[Name, list[StoredKey]] = Field(default={})
    """The keys of each team."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a keys file says: its keys, where they stand, and what is doubtful about it."""

    teams: dict[str, list[StoredKey]]
    document: Document
    warnings: list[Mistake]
    content: bytes


def digest(key: str) -> str:
    """How a key is stored, as LiteLLM stores its own: `sha256:` and the hash of all of it."""
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def fresh() -> str:
    """A key: `sg-` and 256 random bits. Hexadecimal, so that a double click takes all of what follows the dash."""
    return f"sg-{secrets.token_hex(32)}"


def load(path: Path, *, shown: str = "") -> Read:
    """What the file at `path` says; a file that isn't there holds no keys.

    Raises:
        ConfigMistakes: it can't be read, or isn't a file of keys.
    """
    file = shown or str(path)
    try:
        found, mode = told_of(path, file)
    except FileNotFoundError:
        found, mode = b"", 0o600
    document = read(text_of(found, file), file, {})
    keys, mistakes = _keys(document)
    if keys is None or mistakes:
        raise ConfigMistakes(replace(m, path=masked(m.path, {}), message=masked(m.message, {})) for m in mistakes)
    return Read(dict(keys.teams), document, _warnings(file, mode), found)


def _keys(document: Document) -> tuple[KeysFile | None, list[Mistake]]:
    plain = document.plain() if document.root.value is not None else {}
    found = list(document.mistakes)
    if found and document.root.value is None:
        return None, found
    stored = stored_keys(plain) if isinstance(plain, dict) else iter(())
    found += [Mistake(document.file, *document.place(place), path_text(place), told) for place, told in twice(stored)]
    try:
        return KeysFile.model_validate(plain), found
    except ValidationError as error:
        return None, found + mistakes_of(error, document, KeysFile.model_json_schema())


def new(
    path: Path,
    team: str,
    name: str | None = None,
    *,
    expires: str | None = None,
    now: datetime,
    teams: Collection[str] | None = None,
    token: Callable[[], str] = fresh,
) -> tuple[str, StoredKey]:
    """Make a key for `team` and store its hash; returns the key, which nobody can read again. `teams`: those that there are.

    Raises:
        KeysFileError: the team is unknown, the name is taken or unusable, or `expires` is no time to come.
        ConfigMistakes: the file as it is can't be read.
    """
    _known("team", team, teams)
    ends = until(expires, now)
    with alone_with(path):
        keys = load(path).teams
        taken = [key.name for key in keys.get(team, ())]
        chosen = name if name is not None else _free_name(taken)
        if not re.fullmatch(NAME_PATTERN, chosen) or not re.fullmatch(NAME_PATTERN, team):
            raise KeysFileError(f"{quoted(chosen)}: a name is made of letters, digits and . _ - (at most 64)")
        if chosen in taken:
            raise KeysFileError(f"team {team} has a key {quoted(chosen)} already: revoke it first, or choose another name")
        key = token()
        record = StoredKey(name=chosen, hash=digest(key), created=now.replace(microsecond=0), expires=ends)
        _write(path, {**keys, team: [*keys.get(team, ()), record]})
    return key, record


def listed(path: Path, team: str | None = None) -> list[tuple[str, StoredKey]]:
    """The keys of one team or of all, with their team.

    Raises:
        KeysFileError: the file knows no such team.
        ConfigMistakes: the file can't be read.
    """
    keys = load(path).teams
    if team is not None:
        _known("team", team, keys)
    return [(owner, key) for owner, held in keys.items() if team in (None, owner) for key in held]


def revoke(path: Path, team: str, name: str, *, teams: Collection[str] = ()) -> StoredKey:
    """Take a key out of the file; the gateway refuses it within a second. `teams`: those that there are beside those of the file.

    Raises:
        KeysFileError: there is no such team or key.
        ConfigMistakes: the file can't be read.
    """
    with alone_with(path):
        keys = load(path).teams
        _known("team", team, {*keys, *teams})
        held = keys.get(team, [])
        _known("key", name, [key.name for key in held], of=f"team {team} has ")
        kept = [key for key in held if key.name != name]
        # A team without keys goes: an empty list would say the same less clearly.
        _write(path, {owner: left for owner, left in {**keys, team: kept}.items() if left})
    return next(key for key in held if key.name == name)


def until(expires: str | None, now: datetime) -> datetime | None:
    """The moment that `30d` from now, a date or a time means.

    Raises:
        KeysFileError: it means none, or none to come.
    """
    if expires is None:
        return None
    try:
        if re.fullmatch(r"\s*[0-9.]+ ?[a-z]+\s*", expires):
            ends = (now + timedelta(seconds=seconds(expires))).replace(microsecond=0)
        else:
            ends = moment(expires.strip())
    except (ValueError, OverflowError) as error:
        raise KeysFileError("expires: must be a time from now such as 30d or 12h, or a date such as 2027-01-31") from error
    if ends <= now:
        raise KeysFileError(f"expires: {ends:%Y-%m-%d %H:%M} UTC is past")
    return ends


def _warnings(file: str, mode: int) -> list[Mistake]:
    if not mode & 0o077:
        return []
    # Hashes of 256 random bits can't be turned back; who may write here, though, may call.
    told = f"others may {'write' if mode & 0o022 else 'read'} this file (mode {stat.S_IMODE(mode):04o}): chmod 600 {file}"
    return [Mistake(file, 0, 0, "", told, "warning")]


def _known(what: str, word: str, known: Collection[str] | None, *, of: str = "") -> None:
    if known is None or word in known:
        return
    hint = did_you_mean(word, known) or (f"; there are: {', '.join(sorted(known)[:10])}" if known else "")
    raise KeysFileError(f"{of}no {what} {quoted(word)}{hint}")


def _free_name(taken: Collection[str]) -> str:
    return next(name for name in ("key", *(f"key-{count}" for count in range(2, len(taken) + 3))) if name not in taken)


def _write(path: Path, teams: dict[str, list[StoredKey]]) -> None:
    written: dict[str, Any] = {"teams": {team: [_written(key) for key in keys] for team, keys in teams.items()}}
    replace_whole(path, HEADER + yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=200))


def _written(key: StoredKey) -> dict[str, str]:
    times = {word: at.astimezone(UTC).isoformat() for word, at in (("created", key.created), ("expires", key.expires)) if at}
    return {"name": key.name, "hash": key.hash} | times
