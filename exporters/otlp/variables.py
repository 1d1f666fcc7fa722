"""OTEL_* variables as the SDK reads them: an empty one is not set, and one that can't be used is told of and takes its default.

What is told names the variable and what is used instead, never its text: a key may have been pasted into any of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

PAIR: Final = re.compile(r"[!#-'*+\-.0-9A-Z^-z|~]+[ \t]*=[ \t]*([!#-+\--:<-\[\]-~]|(?P<space> ))*")
"""What the specification lets stand between two commas, and spaces in the value, which the SDK lets through too."""
NAME: Final = re.compile(r"[!#-'*+\-.0-9A-Z^-z|~]+")


class Variables:
    """The environment; `told` collects what was wrong with it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.told: list[str] = []

    def text(self, *names: str, default: str = "") -> str:
        """The first of these that is set."""
        return next((value for name in names if (value := self._environ.get(name, "").strip())), default)

    def words(self, name: str, default: str, known: Mapping[str, str]) -> list[str]:
        """A comma list of known words, each as what `known` says it stands for; `none` is none of them."""
        found = [word for each in self.text(name, default=default).split(",") if (word := each.strip().lower())]
        if strange := sum(word not in known and word != "none" for word in found):
            self.told.append(f"{name} must be of {', '.join(known)}: {strange} of its words {'is' if strange == 1 else 'are'} left out")
        return list(dict.fromkeys(known[word] for word in found if word in known))

    def word(self, name: str, known: Sequence[str], general: str = "") -> str:
        """One of several words; the first of them is the default."""
        found = self.text(name, general, default=known[0]).lower()
        if found in known:
            return found
        self.told.append(f"{name if self.text(name) else general} must be one of {', '.join(known)}: {known[0]} it is")
        return known[0]

    def headers(self, *names: str) -> Mapping[str, str]:
        """Headers as `name=value`, commas in between; read as the SDK does, which decodes a value unless there are spaces in it. The
        SDK's own reader isn't asked: it writes a pair that it can't read into the log, and there is mostly a key in one.

        Raises:
            ValueError: one is none. Nothing of its text is said.
        """
        found: dict[str, str] = {}
        for each in filter(None, map(str.strip, self.text(*names).split(","))):
            matched = PAIR.fullmatch(each)
            name, _, value = each.partition("=")
            if matched and not matched["space"]:
                name, value = unquote(name), unquote(value)
            name, value = name.strip().lower(), value.strip()
            if not matched or not NAME.fullmatch(name) or any(char < " " or char == "\x7f" for char in value):
                raise ValueError(f"{self._set(names)}: must be headers such as authorization=Bearer%20key,x-team=search")
            found[name] = value
        return found

    def true(self, *names: str) -> bool:
        return self.text(*names).lower() == "true"

    def seconds(self, *names: str, default: float, unit: float = 1.0) -> float:
        """A time above 0; what the variable counts in is `unit` seconds."""
        text = self.text(*names)
        try:
            found = float(text) * unit if text else default
        except ValueError:
            found = 0.0
        if 0 < found < math.inf:
            return found
        self._no(names, f"{default:g} s")
        return default

    def count(self, *names: str, default: int, least: int = 1) -> int:
        """A whole number from `least` on."""
        text = self.text(*names)
        if not text:
            return default
        if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least:
            return int(text)
        self._no(names, str(default))
        return default

    def _no(self, names: tuple[str, ...], instead: str) -> None:
        self.told.append(f"{self._set(names)} can't be used: {instead} it is")

    def _set(self, names: tuple[str, ...]) -> str:
        """The one of them whose text counts."""
        return next(name for name in names if self._environ.get(name, "").strip())
