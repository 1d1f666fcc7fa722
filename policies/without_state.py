"""What becomes of a call's part in its counters while they can't be reached: each rule does what its `on_state_error` says.

`refuse` ends the call. What `local` rules limit is counted by this gateway alone, for as long as that lasts. `allow` lets the call go, and
owes the counters what it used: they are told of it when they are there again, as they are of any call that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..call.notes import Notes
from .entries import Entry
from .ledger.ledger import StateUnavailable


def apart(entries: Sequence[Entry], notes: Notes) -> tuple[list[Entry], list[Entry]]:
    """Those that count here alone, and those that are owed. A rule in shadow mode stops nobody, so that it is owed whatever it says.

    Raises:
        StateUnavailable: a rule wants to be sure.
    """
    for entry in entries:
        bound = entry.bound
        notes.add(f"{bound.kind}.state_unavailable", verdict="warn", rule=bound.rule, name=bound.name, then=bound.on_state_error)
        if bound.on_state_error == "refuse" and not bound.shadow:
            raise StateUnavailable("a budget or limit needs its counters")
    local = [entry for entry in entries if entry.bound.on_state_error == "local"]
    return local, [entry for entry in entries if entry.bound.on_state_error != "local"]
