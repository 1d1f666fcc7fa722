"""What a check of `spangate doctor` found: how bad it is, what it is, how to mend it; and how that is told to programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ..mistakes import Mistake, masked
from .rows import plain

Level = Literal["ok", "off", "warning", "problem"]
"""`off`: it isn't set up, which may be meant so."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `check` is what was looked at, such as `provider openai`."""

    check: str
    level: Level
    told: str
    mend: str = ""

    @property
    def words(self) -> str:
        return f"{self.told}: {self.mend}" if self.mend else self.told


def ok(check: str, told: str) -> Finding:
    return Finding(check, "ok", told)


def off(check: str, told: str, mend: str = "") -> Finding:
    return Finding(check, "off", told, mend)


def warning(check: str, told: str, mend: str = "") -> Finding:
    return Finding(check, "warning", told, mend)


def problem(check: str, told: str, mend: str = "") -> Finding:
    return Finding(check, "problem", told, mend)


def of_mistake(mistake: Mistake) -> Finding:
    """A line of `spangate check`, as it stands there."""
    place = f"{mistake.file}:{mistake.line}:{mistake.column}" if mistake.line else mistake.file
    told = f"{place}: {mistake.path}: {mistake.message}" if mistake.path else f"{place}: {mistake.message}"
    return Finding("configuration", "problem" if mistake.level == "error" else "warning", told)


def shown(findings: Iterable[Finding], hidden: Mapping[str, str]) -> list[Finding]:
    """The same without anything that came from the environment (`hidden`), that looks like a key, or that a terminal would obey."""
    return [replace(f, check=plain(f.check), told=plain(masked(f.told, hidden)), mend=plain(masked(f.mend, hidden))) for f in findings]


def as_json(findings: Sequence[Finding]) -> str:
    """An object with `ok` and the findings, in their order."""
    well = all(finding.level != "problem" for finding in findings)
    return json.dumps({"ok": well, "checks": [asdict(finding) for finding in findings]}, indent=2, ensure_ascii=False)
