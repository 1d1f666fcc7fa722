"""How `spangate doctor` looks: a line a finding, as soon as it is there; on a terminal in colour, with what is still waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .demo_page import console
from .doctor_findings import Finding, Level
from .words import count

_COLORS: Final = {"ok": "green", "off": "dim", "warning": "yellow", "problem": "bold red"}
LEVELS: Final[Sequence[Level]] = ("ok", "off", "warning", "problem")
WIDE: Final = 16  # columns of what was looked at


class Page:
    """Findings from top to bottom, each once."""

    def __init__(self, out: Console | None = None) -> None:
        self.out = out or console()
        self._status: Any = None

    def waiting(self, names: Iterable[str]) -> AbstractContextManager[Any]:
        """Show on a terminal what is waited for, until the block ends."""
        if not self.out.is_terminal:
            return nullcontext()
        self._status = self.out.status(_asking(names), spinner_style="cyan")
        return self._status  # type: ignore[no-any-return]

    def still(self, names: Iterable[str]) -> None:
        """What is waited for now."""
        if self._status is not None:
            self._status.update(_asking(names))

    def show(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if self.out.is_terminal:
                self.out.print(_row(finding))
            else:
                self.out.print(f"{finding.level:<8} {finding.check:<{WIDE}} {finding.words}", markup=False, soft_wrap=True)

    def end(self, findings: Sequence[Finding], seconds: float) -> None:
        """How many of each, and how long it took."""
        counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
        told = [f"{counts['ok']} ok", *([f"{counts['off']} off"] if counts["off"] else [])]
        told += [count(counts[level], level) for level in ("warning", "problem") if counts[level]]
        worst = next((level for level in reversed(LEVELS) if counts[level]), "ok")
        self.out.print()
        self.out.print(Text(f"{', '.join(told)}, in {seconds:.1f} s", "" if worst == "off" else _COLORS[worst]), soft_wrap=True)


def _asking(names: Iterable[str]) -> Text:
    return Text(f"asking {', '.join(names)}", "dim", overflow="ellipsis", no_wrap=True)


def _row(finding: Finding) -> Table:
    """Words that need several lines stand below each other."""
    row = Table.grid(padding=(0, 1))
    row.add_column(width=8)
    row.add_column(min_width=WIDE)
    row.add_column(ratio=1)
    words = Text.assemble(finding.told, *([(f": {finding.mend}", "cyan")] if finding.mend else []))
    row.add_row(Text(finding.level, _COLORS[finding.level]), Text(finding.check), Padding(words, 0, expand=False))
    return row
