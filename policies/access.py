"""access: which models a caller may ask for.

A name that doesn't exist and one that isn't allowed get the same words, so that nobody learns what others use. What policies
route to later is the operator's choice and is not asked here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr

from ..call.call import Call
from ..call.chain import Next
from ..call.errors import model_not_found
from ..call.events import Event
from ..call.rules import fits_glob


class Access(BaseModel):
    """Which models a caller may ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    stage: ClassVar[int] = 10

    models: tuple[str, ...] = ("*",)
    """Names, or patterns with `*`; a call for any other name is answered as if it didn't exist."""

    _named: tuple[str, ...] | None = PrivateAttr(default=None)

    def allows(self, model: str) -> bool:
        return any(fits_glob(pattern, model) for pattern in self.models)

    @property
    def everything(self) -> bool:
        """It refuses no name."""
        return "*" in self.models

    def naming(self, names: Iterable[str]) -> Access:
        """The same rule, whose refusals name these models: all that the caller may use, as for a name that nobody knows."""
        rule = self.model_copy()
        rule._named = tuple(names)
        return rule

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        if not self.allows(call.model):
            call.notes.add("access.refused", model=call.model)
            raise model_not_found(call.model, self.models if self._named is None else self._named)
        return next(call)
