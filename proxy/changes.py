"""What differs between two configurations, for the log of a reload: one line a place, secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

from .config import Config
from .document import Step, path_text
from .mistakes import masked
from .settings import HASH_PATTERN

LONGEST = 120


def differences(old: Config, new: Config) -> list[str]:
    """Lines such as `teams.search.models: ["fast"] → ["fast", "strong"]`, in the order of the file."""
    lines = [*_differences((), old.settings, new.settings), *_key_differences(old, new)]
    # An address may hold a token of the environment's.
    return [masked(masked(line, old.variables), new.variables) for line in lines]


def _differences(path: tuple[Step, ...], old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    before, after = _inside(old), _inside(new)
    if before is None or after is None or type(old).__qualname__ != type(new).__qualname__:  # a reload may have built the classes anew
        yield f"{path_text(path)}: {_shown(old)} → {_shown(new)}"
        return
    for key in [*before, *(key for key in after if key not in before)]:
        if key not in before:
            yield f"{path_text((*path, key))}: added"
        elif key not in after:
            yield f"{path_text((*path, key))}: removed"
        else:
            yield from _differences((*path, key), before[key], after[key])


def _inside(value: Any) -> dict[str, Any] | None:
    if isinstance(value, BaseModel):
        return {key: getattr(value, key) for key in type(value).model_fields}
    return value if isinstance(value, dict) else None


def _key_differences(old: Config, new: Config) -> Iterator[str]:
    """Keys of the keys file by name: `teams` above shows those of the configuration."""
    before, after = _stored(old), _stored(new)
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in before:
            yield f"key {name}: added"
        elif name not in after:
            yield f"key {name}: revoked"
        elif before[name] != after[name]:
            yield f"key {name}: changed"


def _stored(config: Config) -> dict[str, object]:
    written = {f"{team}/{key.name}" for team, owner in config.settings.teams.items() for key in owner.keys}
    held = {f"{each.team}/{each.key.name}": each.key for each in config.keys}
    return {name: (key.hash, key.expires) for name, key in held.items() if name not in written}


def _shown(value: Any) -> str:
    text = json.dumps(_masked(value), ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _masked(value: Any) -> Any:
    if isinstance(value, SecretStr):
        # Whether it changed is worth a line; nothing of it is worth showing.
        return "***"
    if isinstance(value, str) and re.match(HASH_PATTERN, value):
        return f"{value[:15]}…"
    if isinstance(value, BaseModel):
        return {key: _masked(getattr(value, key)) for key in sorted(value.model_fields_set)}
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list | tuple) else value
