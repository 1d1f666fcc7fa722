"""What must fit together in a configuration: names that refer to names, keys that must differ.

The checks read the document, not the settings made of it, so that they say their part also when a value elsewhere is wrong: every
mistake at once. What isn't of the right type they pass over: that is settings.py's to say, like all that a single value must be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from ..call.rules import fits_glob
from .document import Document, Step, path_text
from .mistakes import Mistake, did_you_mean, quoted

Path = tuple[Step, ...]
Found = Iterator[tuple[Path, str]]


def check(document: Document) -> list[Mistake]:
    """Every mistake that a look at one value can't show."""
    plain = _mapping(document.plain())
    found = []
    for part in (_sections, _providers, _targets, _policies, _teams, _keys):
        for path, message in part(plain, document):
            if not document.known_bad(path):
                found.append(Mistake(document.file, *document.place(path), path_text(path), message))
    return found


def check_stored(document: Document, stored: Document) -> list[Mistake]:
    """Keys of the keys file (`stored`) that the configuration has too; what each file has twice within itself is its own mistake."""
    written = {(team, key.get("name")) for team, key, _ in _written_keys(_mapping(document.plain()))}
    hashes = {key.get("hash"): f"{team}/{key.get('name')}" for team, key, _ in _written_keys(_mapping(document.plain()))}
    found = []
    for team, key, path in stored_keys(_mapping(stored.plain())):
        if key.get("hash") in hashes:
            told = f"is the hash of {hashes[key['hash']]} in {document.file} too: a key belongs to one team"
            found.append(((*path, "hash"), told))
        if (team, key.get("name")) in written:
            found.append(((*path, "name"), f"this team has a key {quoted(str(key.get('name')))} in {document.file} already"))
    return [Mistake(stored.file, *stored.place(path), path_text(path), told) for path, told in found]


def twice(keys: Iterable[tuple[str, dict[str, Any], Path]]) -> Found:
    """Two keys of one team with one name, two keys with one hash."""
    names: set[tuple[str, object]] = set()
    holders: dict[object, str] = {}
    for team, key, path in keys:
        name, digest = key.get("name"), key.get("hash")
        if isinstance(name, str):
            if (team, name) in names:
                yield (*path, "name"), f"this team has a key {quoted(name)} already"
            names.add((team, name))
        if isinstance(digest, str) and digest:
            if digest in holders:
                yield (*path, "hash"), f"is the hash of {holders[digest]} too: a key belongs to one team"
            holders.setdefault(digest, f"{team}/{name}")


def stored_keys(plain: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """The keys of a keys file: team, key, place."""
    for team, keys in _mapping(plain.get("teams")).items():
        yield from ((team, key, ("teams", team, index)) for index, key in _items(keys) if isinstance(key, dict))


def address_problem(address: str) -> str:
    """What is wrong with a provider's address; never quotes it, for it may hold a password."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return "must be an address such as https://api.openai.com/v1"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or re.search(r"[\s\x00-\x1f\x7f\\]", address):
        return "must be an address such as https://api.openai.com/v1"
    if "@" in parts.netloc:
        return "must not hold a user or password: they would end up in logs; use api_key"
    return "must not have a query or a fragment" if "?" in address or "#" in address else ""


def _sections(plain: dict[str, Any], document: Document) -> Found:
    providers, models = plain.get("providers"), plain.get("models")
    if not providers and not isinstance(providers, list | str) and not _misspelt("providers", plain):
        yield ("providers",), 'no providers: name at least one, as in openai: {kind: openai, api_key: "${OPENAI_API_KEY}"}'
    if not models and not isinstance(models, list | str) and not _misspelt("models", plain):
        first = next(iter(_mapping(providers)), "openai")
        yield ("models",), f'no models: name at least one, as in "*": {{targets: [{{provider: {first}}}]}}'


def _misspelt(section: str, plain: dict[str, Any]) -> bool:
    """Whether it is there by a wrong name, which is a mistake of its own."""
    return section not in plain and any(did_you_mean(str(name), (section,)) for name in plain)


def _providers(plain: dict[str, Any], document: Document) -> Found:
    for name, provider in _mapping(plain.get("providers")).items():
        for key, value in _mapping(provider).items():
            path = ("providers", name, key)
            if isinstance(value, str) and not value.strip():
                # An empty key would go out as "Bearer " and nothing.
                yield path, "is empty"
            elif key == "base_url" and isinstance(value, str) and (problem := address_problem(value)):
                yield path, problem


def _targets(plain: dict[str, Any], document: Document) -> Found:
    providers = _mapping(plain.get("providers"))
    for name, model in _mapping(plain.get("models")).items():
        for index, target in _items(_mapping(model).get("targets")):
            asked = _mapping(target).get("provider")
            if isinstance(asked, str) and providers and asked not in providers:
                path = ("models", name, "targets", index, "provider")
                yield path, _unknown("provider", document.written(path), providers)


def _policies(plain: dict[str, Any], document: Document) -> Found:
    known = _mapping(plain.get("policies"))
    for path, entry in _entries(plain):
        if isinstance(entry, str) and path[0] != "policies" and entry not in known and (known or not plain.get("policies")):
            yield path, _unknown("list of policies", document.written(path), known)
        elif isinstance(entry, dict) and len(entry) != 1:
            yield path, "must have exactly one kind of policy, as in {access: {…}}; write several as several entries"


def _entries(plain: dict[str, Any]) -> Iterator[tuple[Path, object]]:
    """Every policy that is written or named anywhere, and where."""
    lists: list[tuple[Path, object]] = [(("policies", name), listed) for name, listed in _mapping(plain.get("policies")).items()]
    lists.append((("defaults", "policies"), _mapping(plain.get("defaults")).get("policies")))
    for name, team in _mapping(plain.get("teams")).items():
        lists.append((("teams", name, "policies"), _mapping(team).get("policies")))
    for path, listed in lists:
        yield from (((*path, index), entry) for index, entry in _items(listed))


def _teams(plain: dict[str, Any], document: Document) -> Found:
    models = _mapping(plain.get("models"))
    for name, team in _mapping(plain.get("teams")).items():
        for index, asked in _items(_mapping(team).get("models")):
            if isinstance(asked, str) and models and asked != "*" and not any(_meet(model, asked) for model in models):
                path = ("teams", name, "models", index)
                yield path, _unknown("model", document.written(path), models)


def _meet(one: str, other: str) -> bool:
    """Whether some name may be meant by both."""
    if fits_glob(one, other) or fits_glob(other, one):
        return True
    if "*" not in one or "*" not in other:
        return False
    # "gpt-*" and "*-mini" meet; what begins differently doesn't.
    begin, start = one.split("*")[0], other.split("*")[0]
    return begin.startswith(start) or start.startswith(begin)


def _keys(plain: dict[str, Any], document: Document) -> Found:
    yield from twice(_written_keys(plain))


def _written_keys(plain: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Path]]:
    for team, owner in _mapping(plain.get("teams")).items():
        keys = _items(_mapping(owner).get("keys"))
        yield from ((team, key, ("teams", team, "keys", index)) for index, key in keys if isinstance(key, dict))


def _unknown(what: str, written: str, known: dict[str, Any]) -> str:
    hint = did_you_mean(written, known)
    if not hint and 0 < len(known) <= 10:
        hint = f"; there are: {', '.join(sorted(known))}"
    return f"no {what} {quoted(written)}{hint}"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> Iterator[tuple[int, Any]]:
    return iter(enumerate(value if isinstance(value, list) else ()))
