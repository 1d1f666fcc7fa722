"""Notes keep what they were told, in order."""

from __future__ import annotations

import pytest

from spangate.call.notes import Note, Notes


def test_notes_are_kept_in_order_with_their_figures() -> None:
    notes = Notes()
    notes.add("budget.reserved", used=5, limit=10)
    notes.add("access.refused", model="m")
    notes.add("budget.reserved", used=6, limit=10)
    assert [note.name for note in notes] == ["budget.reserved", "access.refused", "budget.reserved"]
    assert notes.named("budget.reserved") == [
        Note("budget.reserved", {"used": 5, "limit": 10}),
        Note("budget.reserved", {"used": 6, "limit": 10}),
    ]
    assert notes.named("budget") == []
    assert len(notes) == 3


def test_a_figure_may_be_called_as_it_likes() -> None:
    notes = Notes()
    notes.add("fallback.next", figures=1, target="b")
    assert notes.named("fallback.next")[0].figures == {"figures": 1, "target": "b"}


def test_figures_of_a_dict_are_told_as_others_are() -> None:
    notes = Notes()
    notes.by({"rule": "policies.paid[0]"}).tell("budget.settled", {"used": 5})
    notes.by({"rule": "policies.paid[0]"}).tell("budget.settled", {"used": 6, "rule": "own"})
    notes.tell("budget.settled", {"used": 7})
    assert [note.figures for note in notes] == [{"used": 5, "rule": "policies.paid[0]"}, {"used": 6, "rule": "own"}, {"used": 7}]


def test_who_reads_is_not_disturbed_by_who_writes() -> None:
    notes = Notes()
    notes.add("first")
    for note in notes:
        notes.add("again", after=note.name)
    assert [note.name for note in notes] == ["first", "again"]


def test_a_note_is_frozen() -> None:
    note = Note("a", {})
    with pytest.raises(AttributeError):
        note.name = "b"  # type: ignore[misc]
