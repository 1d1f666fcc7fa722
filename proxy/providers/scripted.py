"""A provider that asks nobody: it answers as a script says (call/script.py), and remembers what it was asked.

Part of the product: the demo, users' tests and ours stand on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BaseModel, ConfigDict, Discriminator, Tag

from ...call.body import Body
from ...call.call import Call
from ...call.clock import SYSTEM, Clock
from ...call.events import Event
from ...call.rules import Rule
from ...call.script import AnyRule, Chooser, Script, ScriptMistakes
from ...call.seen import Place
from ...call.shapes import model_of
from ...policies.told_limits import passed_on
from ...policies.turns import Lines, Turn, headers_of
from .provider import Parts, Provider

REMEMBERED = 100  # calls that a gateway's provider remembers: their bodies may be large

# Tagged, so that a mistake in a rule isn't told a second time as a path that is no text.
RulesOrFile = Annotated[
    Union[Annotated[str, Tag("<file>")], Annotated[list[Rule], Tag("<rules>")]],
    Discriminator(lambda value: "<rules>" if isinstance(value, list) else "<file>"),
]


class Scripted(BaseModel):
    """Answers from a script, without a network: for demonstrations and tests."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    file_key: ClassVar[str] = "script"

    kind: Literal["scripted"]
    """A provider that asks nobody."""
    script: RulesOrFile | None = None
    """The rules, or a YAML file of them, beside this file unless the path is absolute. Without it every call is answered with an
    echo of its last user message."""

    def problems(self, folder: Path) -> list[str]:
        """What is wrong with the script file, a line each; `folder` is the configuration's."""
        try:
            self._read(folder)
        except ScriptMistakes as mistakes:
            return mistakes.problems
        return []

    def build(self, parts: Parts) -> Provider:
        """
        Raises:
            ScriptMistakes: the script file can't be used.
        """
        lines = parts.heard.of(f"scripted {parts.name}", parts.clock)
        return ScriptedProvider(parts.name, self._read(parts.folder), parts.clock, remembered=REMEMBERED, lines=lines)

    def _read(self, folder: Path) -> Script:
        return Script.load(folder / self.script) if isinstance(self.script, str) else Script(self.script or ())


@dataclass(frozen=True, slots=True)
class Received:
    """A call that came in, `at` the wall time in nanoseconds."""

    op: str
    model: str
    sent: Body
    at: int

    @property
    def body(self) -> dict[str, Any]:
        """What the provider was sent."""
        return self.sent.parsed() | {"model": self.model}


class ScriptedProvider:
    """Answers as `script` says: rules, mappings as in YAML, or functions that choose a rule.

    `calls` holds what it received, the latest `remembered`, oldest first.
    """

    def __init__(
        self,
        name: str = "scripted",
        script: Script | Sequence[AnyRule] | Chooser | None = None,
        clock: Clock = SYSTEM,
        *,
        remembered: int = 1000,
        lines: Lines | None = None,
    ) -> None:
        self.name = name
        self.place = Place("scripted")
        self.lines = lines or Lines(clock)
        self.script = _script(script)
        self.calls: deque[Received] = deque(maxlen=remembered)
        self._clock = clock
        self._serial = 0

    def answer(self, call: Call) -> AsyncIterator[Event]:
        self._serial += 1
        now = self._clock.wall()
        model = model_of(call)
        self.calls.append(Received(call.op, model, call.body, now))
        head = partial(self._head, model, call.turn)
        return self.script.answer(call, provider=self.name, serial=self._serial, created=now // 1_000_000_000, head=head)

    def _head(self, model: str, turn: Turn | None, status: int, fields: Mapping[str, str]) -> Mapping[str, str]:
        headers = headers_of(fields)
        self.lines.heard(model, status, headers, turn)
        return passed_on(headers, self._clock.wall())

    async def models(self) -> list[str]:
        return self.script.models


def _script(script: Script | Sequence[AnyRule] | Chooser | None) -> Script:
    if isinstance(script, Script):
        return script
    return Script([script] if callable(script) else script or ())
