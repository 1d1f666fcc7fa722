"""What metrics call a model. A caller may ask for a model of any name, and a name that is a label is a series for ever: so names stand on
metrics only if the operator wrote them, and all others have one name together.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from ...call.rules import fits_glob
from .. import semconv

ANSWERED: Final = 8  # names that one model's answers may bear, such as those of its dated versions
TRIED: Final = 64  # names of a catalogue that may be used at once
LONGEST: Final = 128  # characters of a name from a provider
REMEMBERED: Final = 1024


class ModelNames:
    """`names` and `patterns` (globs) are the configuration's: of models that callers may ask for, and of those that providers are
    asked for. Of a pattern's models there is one series, called as the pattern; `*` says nothing. `catalogue`: other names to go by,
    the first 64 that are met, for those who pass everything through."""

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[str] = (), catalogue: Container[str] = ()) -> None:
        self._known = {name: name for name in names}
        self._patterns = sorted(set(patterns), key=len, reverse=True)
        self._catalogue = catalogue
        self._room = TRIED
        self._fitting: dict[str, str] = {}
        self._answered: dict[str, set[str]] = {}

    def named(self, model: str) -> str:
        """A model that was asked for."""
        found = self._known.get(model)
        if found is not None or not model:
            return found or ""
        if self._room and model in self._catalogue:
            self._room -= 1
            self._known[model] = model
            return model
        pattern = self._pattern(model)
        return semconv.OTHER_MODEL if pattern in ("", "*") else pattern

    def route(self, model: str) -> str:
        """The entry of the configuration that a call for this model goes by."""
        return (self._known.get(model) or self._pattern(model) or semconv.OTHER_MODEL) if model else ""

    def answered(self, named: str, model: str) -> str:
        """What the answer's model is called, if the model that was asked for is called `named`. Who is asked under any name may answer
        under any, too."""
        if model == named or not model:
            return model
        if model in self._known:
            return model
        if named not in self._known or len(model) > LONGEST:
            return semconv.OTHER_MODEL
        others = self._answered.setdefault(named, set())
        if model not in others and len(others) >= ANSWERED:
            return semconv.OTHER_MODEL
        others.add(model)
        return model

    def _pattern(self, model: str) -> str:
        """The longest that fits; empty: none does."""
        found = self._fitting.get(model)
        if found is None:
            found = next((pattern for pattern in self._patterns if fits_glob(pattern, model)), "")
            if len(self._fitting) >= REMEMBERED:
                self._fitting.clear()
            if len(model) <= LONGEST:
                self._fitting[model] = found
        return found
