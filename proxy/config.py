"""spangate.yaml, checked whole: file → `Config`, or every mistake in it at once.

What belongs here: reading, putting the pieces of a check together, and what the rest asks of a checked configuration. What may
stand in the file is said in settings.py, what must fit together in checks.py, how mistakes are shown in mistakes.py.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from . import keys_file, rules
from .checks import check, check_stored
from .contents import folder_of, text_of, told_of
from .document import Document, Step, path_text, read
from .kinds import MODEL_PARTS, Kinds
from .mistakes import ConfigMistakes, Mistake, masked
from .settings import Key, Server, Settings
from .validation import mistakes_of

DEFAULT_FILE = "spangate.yaml"
RESTART_PATHS = ("server.host", "server.port", "telemetry", "usage", "prices", "state")

__all__ = ["Config", "ConfigMistakes", "HeldKey", "Kinds", "Mistake", "from_environment", "load"]


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A virtual key with its team, from whichever file."""

    team: str
    key: Key


@dataclass(frozen=True)
class Config:
    """A configuration without mistakes. Frozen: a reload makes another."""

    settings: Settings
    keys: tuple[HeldKey, ...] = ()
    version: str = ""
    """Short, and another for every other content of the two files: `config_version` in usage and on `/readyz`."""
    warnings: tuple[Mistake, ...] = ()
    path: Path | None = None
    """The file it was read from; None where it came from the environment."""
    keys_path: Path | None = None
    piped: bytes | None = field(default=None, repr=False, compare=False)
    """What was read, where that was a pipe, which can be read once."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """What the file took from the environment: never to be shown, see `mistakes.masked`."""

    @property
    def server(self) -> Server:
        return self.settings.server

    @property
    def folder(self) -> Path:
        """What relative paths of the file are relative to."""
        return folder_of(self.path) if self.path else Path()

    def policies_of(self, team: str | None) -> list[tuple[str, BaseModel]]:
        """The policies that hold for a team's calls, outermost first: the defaults around its own. None: an open gateway's caller."""
        return [(rule.kind, rule.settings) for rule in self.rules_of(team)]

    def rules_of(self, team: str | None) -> list[rules.Placed]:
        """The same, each with the name of the list that it stands in."""
        return list(rules.rules_of(self.settings, team))

    @property
    def in_dollars(self) -> bool:
        """Whether some budget is in US dollars, so that prices must be known before a call."""
        return any(getattr(rule, "unit", None) == "usd" for kind, rule in self._all_rules() if kind == "budget")

    @property
    def has_budgets(self) -> bool:
        return any(kind == "budget" for kind, _ in self._all_rules())

    def _all_rules(self) -> Iterator[tuple[str, BaseModel]]:
        for team in (None, *self.settings.teams):
            yield from self.policies_of(team)

    def parts_of(self, model: str) -> list[tuple[str, BaseModel]]:
        """What is set under `models.NAME`, such as its time limits."""
        found = self.settings.models[model]
        return [(kind, getattr(found, kind)) for kind in type(found).model_fields if kind in MODEL_PARTS]

    def organisation_of(self, team: str | None) -> str:
        """The organisation that a team's calls belong to."""
        own = self.settings.teams[team].organisation if team is not None else None
        return own or self.settings.organisation

    def needs_restart(self, new: Config) -> list[str]:
        """The settings in which `new` differs and that only a restart brings. Of telemetry it matters too whether there is a section:
        without a word in it, it has metrics counted."""
        there = ("telemetry" in self.settings.model_fields_set) == ("telemetry" in new.settings.model_fields_set)
        return [
            path for path in RESTART_PATHS if _at(self.settings, path) != _at(new.settings, path) or (path == "telemetry" and not there)
        ]


def load(path: Path | str, *, environ: Mapping[str, str], kinds: Kinds | None = None) -> Config:
    """Read and check the file at `path` and its keys file.

    Raises:
        ConfigMistakes: every mistake in both.
    """
    place = Path(path)
    file = str(path)
    content, mode = _content(place, file, piped=True)
    config = parse(content, file, environ=environ, kinds=kinds or Kinds(), path=place)
    return replace(config, piped=content) if stat.S_ISFIFO(mode) else config


def again(config: Config, *, environ: Mapping[str, str], kinds: Kinds) -> Config:
    """What stands now in the files that a configuration was read from.

    Raises:
        ConfigMistakes: every mistake in both.
    """
    path = config.path or Path()
    file = str(path)
    content = config.piped if config.piped is not None else _content(path, file, piped=False)[0]
    return replace(parse(content, file, environ=environ, kinds=kinds, path=path), piped=config.piped)


def document_at(path: Path, environ: Mapping[str, str]) -> Document:
    """The file as a tree, and nothing said about what it means.

    Raises:
        ConfigMistakes: there is none, or it is no text.
    """
    content, _ = _content(path, str(path), piped=True)
    return read(text_of(content, str(path)), str(path), environ)


def without_revoked(config: Config) -> Config:
    """The same without the keys that were taken out of the keys file since: a revoked key must not live on because spangate.yaml can't be
    used just now. A keys file that can't be read takes nothing away.
    """
    if config.keys_path is None:
        return config
    try:
        stored = keys_file.load(config.keys_path)
    except ConfigMistakes:
        return config
    there = {(held.team, held.key.hash) for held in _held(config.settings, stored)}
    kept = tuple(held for held in config.keys if (held.team, held.key.hash) in there)
    if kept == config.keys:
        return config
    return replace(config, keys=kept, version=_version(config.version.encode(), stored.content))


def parse(content: bytes, file: str, *, environ: Mapping[str, str], kinds: Kinds, path: Path | None = None) -> Config:
    """Check the text of a configuration; with a path, its keys file too.

    Raises:
        ConfigMistakes: every mistake in both.
    """
    document = read(text_of(content, file), file, environ)
    checked = _checked_or_mistakes(document, kinds, path)
    if isinstance(checked, list):
        # Outside of `except`: the unmasked ones would hang on this as its context.
        raise ConfigMistakes(checked)
    settings, stored = checked
    return Config(
        settings=settings,
        keys=tuple(_held(settings, stored)),
        version=_version(content, stored.content if stored else b""),
        warnings=tuple(_told(_warnings(settings, document, stored), document)),
        path=path,
        keys_path=_keys_path(document, path) if path else None,
        variables=document.variables,
    )


def _checked_or_mistakes(document: Document, kinds: Kinds, path: Path | None) -> tuple[Settings, keys_file.Read | None] | list[Mistake]:
    try:
        return _checked(document, kinds, path)
    except ConfigMistakes as error:
        return _told(error.mistakes, document)


def from_environment(environ: Mapping[str, str], kinds: Kinds | None = None) -> Config:
    """Without any file: every model name goes to OpenAI with `OPENAI_API_KEY`, and there are no teams.

    Raises:
        ConfigMistakes: the variable isn't set.
    """
    text = json.dumps(
        {
            "providers": {"openai": {"kind": "openai", "api_key": "${OPENAI_API_KEY}"}},
            "models": {"*": {"targets": [{"provider": "openai"}]}},
        }
    )
    return parse(text.encode(), "environment", environ=environ, kinds=kinds or Kinds())


def _content(path: Path, file: str, *, piped: bool) -> tuple[bytes, int]:
    try:
        return told_of(path, file, piped=piped)
    except FileNotFoundError:
        raise ConfigMistakes([Mistake(file, 0, 0, "", "there is no such file: `spangate init` writes one")]) from None


def _checked(document: Document, kinds: Kinds, path: Path | None) -> tuple[Settings, keys_file.Read | None]:
    """The settings and the stored keys, or all that is wrong with either."""
    plain = document.plain() if document.root.value is not None else {}
    found = list(document.mistakes)
    if document.root.value is None and found:
        raise ConfigMistakes(found)
    if not isinstance(plain, dict):
        told = "must be a mapping, with keys such as providers and models"
        raise ConfigMistakes([*found, Mistake(document.file, *document.place(()), "", told)])
    found += check(document)
    stored = None
    try:
        stored = keys_file.load(_keys_path(document, path)) if path else None
        found += check_stored(document, stored.document) if stored else []
    except ConfigMistakes as error:
        found += error.mistakes
    try:
        settings = kinds.settings.model_validate(plain)
    except ValidationError as error:
        # One mistake for a place: an unset variable isn't a bad address too, an address with a password isn't told twice.
        told_of = {mistake.path for mistake in found}
        values = [m for m in mistakes_of(error, document, kinds.schema) if m.path not in told_of]
        raise ConfigMistakes([*found, *values, *_provider_problems(_sound(plain, kinds), document, path)]) from None
    found += _provider_problems(settings.providers, document, path)
    found += rules.problems(settings, document)
    if found:
        raise ConfigMistakes(found)
    return settings, stored


def _provider_problems(providers: Mapping[str, Any], document: Document, path: Path | None) -> Iterator[Mistake]:
    """What a provider finds wrong with files of its own: its settings class may have `problems(folder)`, and `file_key`, the key that
    names the file."""
    folder = folder_of(path) if path else Path()
    for name, provider in providers.items():
        problems, key = getattr(provider, "problems", None), getattr(provider, "file_key", "")
        for problem in problems(folder) if problems else ():
            place: tuple[Step, ...] = ("providers", name, key) if key else ("providers", name)
            yield Mistake(document.file, *document.place(place, key=not key), path_text(place), problem)


def _sound(plain: dict[str, Any], kinds: Kinds) -> dict[str, BaseModel]:
    """The providers that are right by themselves, of a file that isn't."""
    found = {}
    providers = plain.get("providers")
    for name, entry in providers.items() if isinstance(providers, dict) else ():
        kind = kinds.providers.get(str(entry.get("kind"))) if isinstance(entry, dict) else None
        if kind is not None:
            own = {key: value for key, value in entry.items() if key != "kind" or "kind" in kind.model_fields}
            with suppress(ValidationError):
                found[name] = kind.model_validate(own)
    return found


def _keys_path(document: Document, path: Path) -> Path:
    node = document.node(("server", "keys_file"))
    name = node.value if node is not None and isinstance(node.value, str) and node.value else Server().keys_file
    return folder_of(path) / name


def _held(settings: Settings, stored: keys_file.Read | None) -> Iterator[HeldKey]:
    for team, owner in settings.teams.items():
        yield from (HeldKey(team, key) for key in owner.keys)
        yield from (HeldKey(team, key) for key in (stored.teams.get(team, ()) if stored else ()))


def _warnings(settings: Settings, document: Document, stored: keys_file.Read | None) -> Iterator[Mistake]:
    yield from stored.warnings if stored else ()
    yield from rules.doubts(settings, document)
    keyed = {held.team for held in _held(settings, stored)}
    for team in settings.teams:
        if team not in keyed:
            path = ("teams", team)
            told = f"has no key, so that nobody can call as it: spangate keys new {team}"
            yield Mistake(document.file, *document.place(path, key=True), path_text(path), told, "warning")
    for team in stored.teams if stored else ():
        if stored and team not in settings.teams:
            place = stored.document.place(("teams", team), key=True)
            told = "no such team in the configuration: its keys are refused"
            yield Mistake(stored.document.file, *place, path_text(("teams", team)), told, "warning")


def _told(mistakes: Iterator[Mistake] | list[Mistake], document: Document) -> list[Mistake]:
    """The same, with nothing in them that came from the environment or looks like a key."""
    hidden = document.variables
    return [Mistake(m.file, m.line, m.column, masked(m.path, hidden), masked(m.message, hidden), m.level) for m in mistakes]


def _version(*contents: bytes) -> str:
    # Lengths between them, so that a move from one file to the other is a change.
    seen = b"".join(b"%d:%s" % (len(content), content) for content in contents)
    return hashlib.sha256(seen).hexdigest()[:12]


def _at(settings: Settings, path: str) -> Any:
    found: Any = settings
    for step in path.split("."):
        found = getattr(found, step)
    return found
