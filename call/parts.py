"""Which tool call a part of a stream belongs to. Providers number parts in every way; this is the one place that sees through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CallParts(Generic[T]):
    """Tool calls by their parts.

    A new id begins a new call, whatever its index; so does a name at an index not seen yet, or an id that comes again, with a name, at
    another index. A part without an id belongs to the latest call of its index, and if there is none, to the latest of all.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[T, int | None]] = {}
        self._by_index: dict[int | None, T] = {}
        self._latest: T | None = None

    def of(self, part: Mapping[str, Any], begin: Callable[[str | None], T], *, names: bool) -> T:
        """The call of this part. `begin(id)` makes a new one; `names`: the part says which tool is called."""
        own, index = part.get("id"), part.get("index")
        own = own if isinstance(own, str) and own else None
        index = index if isinstance(index, int) else None
        known, at = self._by_id.get(own, (None, index)) if own else (self._by_index.get(index), index)
        if known is not None and names and None not in (at, index) and at != index:
            known = None
        if known is None and not own and not names:
            known = self._latest
        if known is None:
            known = begin(own)
            self.goes_on(known, own, index)
        self._by_index[index] = known
        return known

    def goes_on(self, call: T, id: str | None, index: int | None) -> None:
        """This call has begun; parts of this id, or at this index, are more of it."""
        if id:
            self._by_id[id] = (call, index)
        self._by_index[index] = self._latest = call
