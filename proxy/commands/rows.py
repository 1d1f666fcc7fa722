"""Rows of an answer as people and programs read them: a table, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...exporters.usage.sql import Answer

_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL.*|DOUBLE|FLOAT")
_DIGITS = re.compile(r"DECIMAL\(\d+,\s?(\d+)\)")
_CONTROLS = re.compile(r"[\x7f-\x9f\u2028\u2029]")


def table(answer: Answer) -> Iterator[str]:
    """Aligned lines, as wide as they get."""
    rows = [_names(answer), *_cells(answer)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(answer.columns))]
    right = [_is_number(type) for type in answer.types]
    for row in rows:
        cells = (cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(row, widths, right, strict=True))
        yield "  ".join(cells).rstrip()


def shown(answer: Answer, out: Console) -> None:
    """On a terminal: a table, or where it isn't wide enough for one, a line for each value."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    names = _names(answer)
    for name, type in zip(names, answer.types, strict=True):
        found.add_column(Text(name), justify="right" if _is_number(type) else "left", no_wrap=True)
    cells = list(_cells(answer))
    for row in cells:
        found.add_row(*map(Text, row))
    if out.measure(found, options=out.options.update(max_width=10_000)).minimum <= out.width:
        out.print(found)
        return
    width = max(map(len, names))
    for number, row in enumerate(cells):
        if number:
            out.print()
        for name, cell in zip(names, row, strict=True):
            out.print(Text.assemble((name.ljust(width), "bold"), "  ", cell), soft_wrap=True)


def as_csv(answer: Answer) -> str:
    """RFC 4180, but for the ends of lines. Values are as they are, for a program; the head has nothing that a terminal would obey."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_names(answer))
    for row in answer.rows:
        lines.writerow("" if value is None else _text(value, type) for value, type in zip(row, answer.types, strict=True))
    return text.getvalue()


def as_json(answer: Answer) -> str:
    """A list of objects, one a line; a column whose name came before gets a number."""
    names = list(_once(answer.columns))
    rows = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in answer.rows)
    text = ",\n ".join(rows)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", f"[{text}]\n")


def plain(text: str) -> str:
    """What callers wrote, without what a terminal would obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _names(answer: Answer) -> list[str]:
    """What columns are called: an alias may be any text, and with PIVOT even a caller's."""
    return [plain(name) for name in answer.columns]


def _cells(answer: Answer) -> Iterator[list[str]]:
    for row in answer.rows:
        yield ["NULL" if value is None else plain(_text(value, type)) for value, type in zip(row, answer.types, strict=True)]


def _text(value: Any, type: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (digits := _DIGITS.fullmatch(type)):
        text = f"{value:.{digits[1]}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _is_number(type: str) -> bool:
    return _NUMBER.fullmatch(type) is not None


def _once(names: Sequence[str]) -> Iterator[str]:
    met: set[str] = set()
    for name in names:
        number, free = 1, name
        while free in met:
            free = f"{name}_{number}"
            number += 1
        met.add(free)
        yield free
