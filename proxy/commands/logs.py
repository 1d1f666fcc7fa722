"""What a running gateway says beside its calls: lines of the standard library's logging on stderr, one line each, whatever happens."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TextIO

from ...exporters.aside import Aside
from .choices import Level


class OneLine(logging.Formatter):
    """A record on one line. An error's place comes with it; with `traces` the whole way there."""

    def __init__(self, *, traces: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(line.strip() for line in super().format(record).splitlines() if line.strip())

    def formatException(self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]) -> str:  # noqa: N802 - logging's name
        if self._traces or ei[1] is None:
            return super().formatException(ei)
        return f"{type(ei[1]).__name__}: {ei[1]}{_place(ei[2])}"


def _place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace is not None else ""


def log_to(out: TextIO | Aside, level: Level) -> None:
    """Ours from `level` on, other libraries' warnings, to `out`."""
    lines = logging.StreamHandler(out)
    lines.setFormatter(OneLine(traces=level is Level.debug))
    logging.basicConfig(handlers=[lines], level=logging.WARNING, force=True)
    logging.getLogger("spangate").setLevel(level.upper())
    logging.captureWarnings(capture=True)
