"""What commands beside the gateway need of spangate.yaml, read without the whole check: they run where its secrets aren't set.

`spangate keys` and `spangate connect` ask for teams, keys, models, the keys file and the address, and for nothing that a variable
of the gateway's own environment holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ...exporters.usage.settings import Price, Usage
from ..config import DEFAULT_FILE, document_at
from ..contents import folder_of
from ..document import Document, path_text
from ..mistakes import ConfigMistakes
from ..server import Address
from ..settings import Key, Server
from .failure import unusable

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Written:
    """A configuration as it is written."""

    path: Path
    document: Document

    @property
    def folder(self) -> Path:
        """What its relative paths are relative to."""
        return folder_of(self.path)

    @property
    def teams(self) -> dict[str, Any]:
        return _mapping(self._plain.get("teams"))

    @property
    def models(self) -> list[str]:
        """Names that callers can ask for as they are."""
        return [name for name in _mapping(self._plain.get("models")) if "*" not in name]

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Where models lead: provider, and model by its name there ("": as it was asked for)."""
        listed = [_mapping(model).get("targets") for model in _mapping(self._plain.get("models")).values()]
        found = [_mapping(target) for targets in listed for target in (targets if isinstance(targets, list) else ())]
        return [(str(target.get("provider") or ""), str(target.get("model") or "")) for target in found]

    @property
    def providers(self) -> list[str]:
        return list(_mapping(self._plain.get("providers")))

    def may_answer(self, model: str) -> bool:
        """Whether a model of this name, or a pattern that it fits, is there."""
        return any(fnmatchcase(model, name) for name in _mapping(self._plain.get("models")))

    @property
    def keys_path(self) -> Path:
        named = self._server.get("keys_file")
        if self.document.known_bad(("server", "keys_file")):
            raise unusable(f"server.keys_file of {self.path} names a variable that isn't set here: set it")
        return self.folder / (named if isinstance(named, str) and named else Server().keys_file)

    @property
    def address(self) -> Address:
        """Where the gateway listens, by this file."""
        known = {name: self._server[name] for name in ("host", "port") if name in self._server}
        try:
            server = Server.model_validate({n: v for n, v in known.items() if not self.document.known_bad(("server", n))})
        except ValidationError:
            server = Server()
        return Address(server.host, server.port)

    @property
    def usage(self) -> Usage:
        """Where rows go, by this file.

        Raises:
            Failure: what it says can't be used.
        """
        value = self._plain.get("usage")
        return Usage() if "usage" not in self._plain else self._section(Usage, value, "usage")

    @property
    def prices(self) -> list[Price]:
        """What it says of prices.

        Raises:
            Failure: it can't be used.
        """
        listed = self._plain.get("prices")
        return [self._section(Price, price, "prices", number) for number, price in enumerate(listed if isinstance(listed, list) else ())]

    def _section(self, kind: type[S], value: Any, *path: str | int) -> S:
        if any(self.document.known_bad((*path, name)) for name in _mapping(value)):
            raise unusable(f"{path_text(path)} of {self.path} names a variable that isn't set here: set it")
        try:
            return kind.model_validate(value)
        except ValidationError:
            raise unusable(f"{path_text(path)} of {self.path} can't be used: `spangate check -c {self.path}` says why") from None

    def own_keys(self) -> Iterator[tuple[str, Key]]:
        """The keys that stand in this file itself, with their team."""
        for team, settings in self.teams.items():
            listed = _mapping(settings).get("keys")
            for key in listed if isinstance(listed, list) else ():
                try:
                    yield team, Key.model_validate(key)
                except ValidationError:
                    continue  # `spangate check` tells what is wrong with it

    @property
    def _plain(self) -> dict[str, Any]:
        return _mapping(self.document.plain())

    @property
    def _server(self) -> dict[str, Any]:
        return _mapping(self._plain.get("server"))


def written(file: Path | None, environ: Mapping[str, str]) -> Written | None:
    """The file asked for, or spangate.yaml of the working directory; None if there is none and none was asked for.

    Raises:
        ConfigMistakes: it can't be read.
    """
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        return None
    document = document_at(path, environ)
    if document.root.value is None and document.mistakes:
        raise ConfigMistakes(document.mistakes)
    return Written(path, document)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
