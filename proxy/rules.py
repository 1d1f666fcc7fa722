"""Which policies hold for a team, outermost first, where each of them stands in the file, and what is wrong with them together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, get_args

from pydantic import BaseModel

from ..call.call import Op
from ..call.rules import fits_glob
from .document import Document, Step, path_text
from .mistakes import Mistake, did_you_mean, quoted
from .settings import PolicyRule, Settings

_COMPARED = re.compile(r"""(?<![\w.])(team|op)\s*[=!]=\s*(?:'([^'\\\n]*)'|"([^"\\\n]*)")""")


class Placed(NamedTuple):
    """A policy, the name of the list that it stands in (of those written in place, `defaults` or the team), and its place."""

    kind: str
    settings: BaseModel
    origin: str
    path: tuple[Step, ...]


def rules_of(settings: Settings, team: str | None) -> Iterator[Placed]:
    """The policies around a team's calls: the defaults around its own. None: an open gateway's caller. A list that the defaults name
    already holds once: twice would count every call twice."""
    used: set[str] = set()
    own = settings.teams[team].policies if team is not None else []
    placed: list[tuple[str, tuple[Step, ...], str | PolicyRule]] = [
        *(("defaults", ("defaults", "policies", index), entry) for index, entry in enumerate(settings.defaults.policies)),
        *((team or "", ("teams", team or "", "policies", index), entry) for index, entry in enumerate(own)),
    ]
    for origin, path, entry in placed:
        if not isinstance(entry, str):
            yield Placed(entry.kind, entry.settings, origin, (*path, entry.kind))
        elif entry not in used:
            used.add(entry)
            for index, rule in enumerate(settings.policies.get(entry, ())):
                yield Placed(rule.kind, rule.settings, entry, ("policies", entry, index, rule.kind))


def problems(settings: Settings, document: Document) -> list[Mistake]:
    """Budgets and limits of a team that have one name, so that nobody could tell their counters apart; models that aren't there."""
    found: dict[tuple[Step, ...], str] = {}
    for team in [*settings.teams, None]:
        names: set[str] = set()
        for kind, rule, origin, path in rules_of(settings, team):
            named = getattr(rule, "named", None)
            if named is None:
                continue
            name = named(origin)
            if name in names:
                found.setdefault(
                    path, f"another {kind} of {f'team {team}' if team else 'the same callers'} is called {name!r}: give one a name"
                )
            names.add(name)
            model = getattr(rule, "downgrade_to", None)
            if model is not None and not any(fits_glob(each, model) for each in settings.models):
                found.setdefault((*path, "downgrade_to"), f"no model {quoted(model)}{did_you_mean(model, settings.models)}")
    return [Mistake(document.file, *document.place(path), path_text(path), told) for path, told in found.items()]


def doubts(settings: Settings, document: Document) -> Iterator[Mistake]:
    """What may stand there and is likely a slip: models that match no name, teams and operations that there aren't, lists of no use."""
    for path, told in (*_strange_models(settings), *_strange_words(settings), *_unused(settings)):
        yield Mistake(document.file, *document.place(path), path_text(path), told, "warning")


def _written(settings: Settings) -> Iterator[tuple[tuple[Step, ...], PolicyRule]]:
    """Every policy of the file, wherever it stands, once."""
    lists: list[tuple[tuple[Step, ...], list[str | PolicyRule]]] = [
        *((("policies", name), entries) for name, entries in settings.policies.items()),
        (("defaults", "policies"), settings.defaults.policies),
        *((("teams", name, "policies"), team.policies) for name, team in settings.teams.items()),
    ]
    for path, entries in lists:
        yield from (((*path, index, entry.kind), entry) for index, entry in enumerate(entries) if not isinstance(entry, str))


def _strange_models(settings: Settings) -> Iterator[tuple[tuple[Step, ...], str]]:
    known = settings.models
    for path, rule in _written(settings):
        for index, model in enumerate(getattr(rule.settings, "models", ()) if rule.kind == "access" else ()):
            # Of two patterns it is left open: some name may fit both.
            if not any(fits_glob(name, model) or fits_glob(model, name) or ("*" in name and "*" in model) for name in known):
                yield (*path, "models", index), f"no model {quoted(model)}, so that this allows nothing{did_you_mean(model, known)}"


def _strange_words(settings: Settings) -> Iterator[tuple[tuple[Step, ...], str]]:
    known: dict[str, list[str]] = {"team": list(settings.teams), "op": list(get_args(Op))}
    for path, rule in _written(settings):
        for name, single, double in _COMPARED.findall(getattr(rule.settings, "when", None) or ""):
            word = single or double
            if word and word not in known[name]:
                yield (*path, "when"), f"no {'team' if name == 'team' else 'operation'} {quoted(word)}{did_you_mean(word, known[name])}"


def _unused(settings: Settings) -> Iterator[tuple[tuple[Step, ...], str]]:
    lists = [settings.defaults.policies, *(team.policies for team in settings.teams.values())]
    used = {entry for entries in lists for entry in entries if isinstance(entry, str)}
    for name in settings.policies:
        if name not in used:
            yield ("policies", name), "neither the defaults nor a team use this list, so that it holds for nobody"
