"""`spangate check`: every mistake in the configuration, for people and for programs; and what holds for whom."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from ... import __version__
from ...call.amounts import Rate, show_number, show_quantity, show_seconds, show_share, show_size
from ...call.chain import Policy, in_order
from ...policies.access import Access
from .. import config as configuration
from ..callers import check_keys, check_reach, valid_keys
from ..config import DEFAULT_FILE, Config
from ..mistakes import ConfigMistakes, Mistake, as_github, as_json, as_sarif, as_text
from .choices import Format
from .failure import UNUSABLE
from .words import count


def check(file: Path | None, shape: Format, environ: Mapping[str, str], *, verbose: bool = False) -> int:
    """Check the file and tell; the exit code."""
    place = file or Path(DEFAULT_FILE)
    config: Config | None = None
    try:
        config = configuration.load(place, environ=environ)
        found: Sequence[Mistake] = (*config.warnings, *_callers(config, str(place), datetime.now(UTC)))
    except ConfigMistakes as error:
        found = error.mistakes
    _tell(found, shape)
    if config is None:
        return UNUSABLE
    if shape is Format.text:
        lines = [f"{place}: ok ({summary(config)})", *(order(config) if verbose else ())]
        print("\n".join(lines))  # noqa: T201 - the command's result
    return 0


def _callers(config: Config, file: str, now: datetime) -> Iterator[Mistake]:
    """Keys that are of no use any more; and what `serve` would refuse to start for, unless its options say otherwise."""
    valid = valid_keys(config, now)
    for held in config.keys:
        if held not in valid:
            yield Mistake(file, 0, 0, f"teams.{held.team}", f"its key {held.key.name} has expired", "warning")
    try:
        check_keys(config, now)
    except ValueError as error:
        yield Mistake(file, 0, 0, "teams", f"serve won't start: {error}", "warning")
    try:
        check_reach(config.server.host, teams=bool(config.settings.teams), everywhere=False)
    except ValueError as error:
        yield Mistake(file, 0, 0, "server.host", str(error), "warning")


def _tell(found: Sequence[Mistake], shape: Format) -> None:
    """Text is talk; the formats of programs are results, and there even when nothing was found."""
    if shape is Format.text:
        if found:
            print(as_text(found), file=sys.stderr)  # noqa: T201
        return
    told = as_json(found) if shape is Format.json else as_github(found) if shape is Format.github else as_sarif(found, version=__version__)
    if told:
        print(told)  # noqa: T201


def summary(config: Config) -> str:
    """How much there is of what; a key that has expired is none."""
    settings = config.settings
    numbers = (len(settings.teams), len(settings.models), len(settings.policies), len(valid_keys(config, datetime.now(UTC))))
    return ", ".join(map(count, numbers, ("team", "model", "policy list", "key")))


def order(config: Config) -> Iterator[str]:
    """The policies of each team as they stand around its calls, outermost first, with their stage; then those of each model."""
    for team in list(config.settings.teams) or [""]:
        yield f"{f'team {team}' if team else 'any caller'}, outermost first (stage, policy, settings):"
        own = Access(models=tuple(config.settings.teams[team].models)) if team else Access()
        rules: list[tuple[str, BaseModel]] = [("access", own), *config.policies_of(team or None)]
        kinds = {id(rule): kind for kind, rule in rules}
        yield from (_rule(kinds[id(rule)], rule) for rule in in_order([cast("Policy", rule) for _, rule in rules]))
    for model in config.settings.models:
        yield f"model {model}, inside of these:"
        yield from (_rule(kind, rule) for kind, rule in config.parts_of(model))


def _rule(kind: str, rule: object) -> str:
    told = "  ".join(_values(rule)) if isinstance(rule, BaseModel) else ""
    return f"  {getattr(rule, 'stage', 50):3} {kind:<12} {told}".rstrip()


def _values(rule: BaseModel) -> Iterator[str]:
    shapes = type(rule).model_json_schema().get("properties", {})
    for name, value in rule:
        if value == type(rule).model_fields[name].default and (value is None or isinstance(value, BaseModel) or name == "mode"):
            continue  # what is said nowhere and changes nothing
        if isinstance(value, BaseModel):
            yield f"{name}: {{{', '.join(_values(value))}}}"
            continue
        shown = _SHOWN.get(_amount(shapes.get(name, {})), str)
        yield f"{name}: {', '.join(map(str, value)) if isinstance(value, list | tuple) and not isinstance(value, Rate) else shown(value)}"


def _amount(shape: Mapping[str, Any]) -> str | None:
    """Which kind of amount a value is, which may be left out."""
    return next((found for each in (shape, *shape.get("anyOf", ())) if (found := each.get("x-amount"))), None)


_SHOWN: Mapping[str | None, Callable[[Any], str]] = {
    "time": show_seconds,
    "size": show_size,
    "number": show_number,
    "quantity": show_quantity,
    "share": show_share,
}
