"""What is wrong in a configuration, where, and how that is told: to people, to programs, to GitHub, to code scanners.

Nothing here finds mistakes. A message never quotes a secret or the value of an environment variable: whoever makes a `Mistake`
sees to it, and `masked` is the last net.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal
from urllib.parse import quote

from ..call.errors import shortened

Level = Literal["error", "warning"]

# What a pasted key looks like: a vendor's prefix and a long run.
KEY_LIKE = re.compile(r"\b((?:sk|sg|pk|rk|gsk|xai|hf|ghp)[-_]|AKIA|AIza)[A-Za-z0-9_-]{12,}")


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One thing that is wrong: `path` is the place in the tree (`teams.search.keys[0].hash`), line and column count from 1."""

    file: str
    line: int
    column: int
    path: str
    message: str
    level: Level = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        note = "warning: " if self.level == "warning" else ""
        return f"{place}: {note}{self.path}: {self.message}" if self.path else f"{place}: {note}{self.message}"


class ConfigMistakes(ValueError):
    """A configuration that can't be used: every mistake in it, in the order of the file."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = sorted(set(mistakes), key=lambda m: (m.file, m.line, m.column, m.path))
        super().__init__("\n".join(map(str, self.mistakes)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean "fast"?`, or nothing where no known word is near."""
    near = get_close_matches(word[:200], sorted(set(known)), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def quoted(word: str) -> str:
    """A word of the file for a message: on one line, of bearable length."""
    return json.dumps(shortened(word), ensure_ascii=False)


def masked(text: str, values: Mapping[str, str]) -> str:
    """`text` without anything that came from the environment (name → value) and without what looks like a key."""
    for name, value in sorted(values.items(), key=lambda item: -len(item[1])):
        # Shorter values are ports and flags; taking every "1" out of a message would make it unreadable.
        if len(value) >= 4:
            text = text.replace(value, f"${{{name}}}")
    return KEY_LIKE.sub(lambda match: f"{match[1]}…", text)


def as_text(mistakes: Sequence[Mistake]) -> str:
    """One line a mistake."""
    return "\n".join(map(str, mistakes))


def as_json(mistakes: Sequence[Mistake]) -> str:
    """An array of objects with file, line, column, path, message and level."""
    return json.dumps([_facts(mistake) for mistake in mistakes], indent=2, ensure_ascii=False)


def as_github(mistakes: Sequence[Mistake]) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    return "\n".join(_annotation(mistake) for mistake in mistakes)


def as_sarif(mistakes: Sequence[Mistake], *, version: str) -> str:
    """SARIF 2.1.0, which code scanners read."""
    driver = {
        "name": "spangate",
        "version": version,
        "rules": [{"id": "configuration", "shortDescription": {"text": "A mistake in the configuration of spangate"}}],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(mistake) for mistake in mistakes]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _facts(mistake: Mistake) -> dict[str, Any]:
    return {
        "file": mistake.file,
        "line": mistake.line,
        "column": mistake.column,
        "path": mistake.path,
        "message": mistake.message,
        "level": mistake.level,
    }


def _annotation(mistake: Mistake) -> str:
    told = f"{mistake.path}: {mistake.message}" if mistake.path else mistake.message
    place = f"file={_property(mistake.file)},line={max(mistake.line, 1)},col={max(mistake.column, 1)}"
    return f"::{mistake.level} {place}::{_data(told)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _result(mistake: Mistake) -> dict[str, Any]:
    told = f"{mistake.path}: {mistake.message}" if mistake.path else mistake.message
    region = {"startLine": max(mistake.line, 1), "startColumn": max(mistake.column, 1)}
    location = {"physicalLocation": {"artifactLocation": {"uri": _uri(mistake.file)}, "region": region}}
    return {"ruleId": "configuration", "level": mistake.level, "message": {"text": told}, "locations": [location]}


def _uri(file: str) -> str:
    # A relative path stays relative, so that scanners find it in the checkout; an absolute one becomes a file URI.
    path = quote(file.replace("\\", "/"))
    return f"file://{path}" if path.startswith("/") else path
