"""What layers want told. A policy says what it decided here and nowhere else; telemetry and tests read it.

Append-only, so that it may be written from several tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec


class Told(Protocol):
    """What a note is to who reads it. Figures may be worked out then: not all calls are read of."""

    @property
    def name(self) -> str: ...
    @property
    def figures(self) -> dict[str, Any]: ...


class Note(msgspec.Struct, frozen=True):
    """One thing that happened, named `policy.what` (such as `access.refused`), with its figures."""

    name: str
    figures: dict[str, Any]


class Notes(msgspec.Struct):
    """The notes of one call, oldest first."""

    _notes: list[Told] = msgspec.field(default_factory=list)

    def add(self, name: str, /, **figures: Any) -> None:
        """Tell that `name` happened. Figures are plain JSON values, never content."""
        self.tell(name, figures)

    def tell(self, name: str, figures: dict[str, Any]) -> None:
        """`add`, of figures that stand in a dict already, which is the note's from now on: a copy costs more than all else of it."""
        self._notes.append(Note(name, figures))

    def append(self, note: Told) -> None:
        """A note of a kind of its own."""
        self._notes.append(note)

    def named(self, name: str) -> list[Told]:
        return [note for note in self._notes if note.name == name]

    def __iter__(self) -> Iterator[Told]:
        return iter(tuple(self._notes))

    def __len__(self) -> int:
        return len(self._notes)

    def by(self, rule: Mapping[str, Any]) -> Notes:
        """The same notes, for a policy that stands in a configuration: what it adds says `rule` too, unless it says so itself."""
        return _Signed(_notes=self._notes, real=self, rule=rule)


class _Signed(Notes, kw_only=True):
    real: Notes
    rule: Mapping[str, Any]

    def tell(self, name: str, figures: dict[str, Any]) -> None:
        self.real.tell(name, {**figures, **self.rule} if "rule" not in figures else figures)

    def append(self, note: Told) -> None:
        self.tell(note.name, note.figures)
