"""`spangate sql`: usage with SQL, while the gateway runs or not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ...exporters.usage.sql import Answer
from . import rows
from .asking import ask, place_of
from .choices import Shape
from .demo_page import console
from .failure import unusable

_SHAPES = {".csv": Shape.csv, ".json": Shape.json, ".txt": Shape.table, "": Shape.table}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `shape` None: by the name of `out`, else a table."""

    query: str
    file: Path | None = None
    shape: Shape | None = None
    out: Path | None = None
    parameters: Sequence[str] = ()


def sql(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Ask, and show the answer.

    Raises:
        Failure: it can't be run, or nobody can be asked.
        ConfigMistakes: the configuration can't be read.
    """
    given = parameters(wanted.parameters)
    shape = wanted.shape or _by_name(wanted.out)
    answer = ask(place_of(wanted.file, environ), wanted.query, given)
    if wanted.out is not None:
        with wanted.out.open("w", encoding="utf-8") as out:  # which may be /dev/stdout
            out.write(_for(out, _whole(answer, shape)))
    elif shape is Shape.table and sys.stdout.isatty():
        rows.shown(answer, console())
    else:
        print(_for(sys.stdout, _whole(answer, shape)), end="")  # noqa: T201
    if answer.truncated:
        print(f"spangate: these are the first {len(answer.rows)} rows; there are more", file=sys.stderr)  # noqa: T201
    return 0


def parameters(given: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` for `$NAME`, `1=VALUE` for `$1`; a value that is JSON is that, any other is a text.

    Raises:
        Failure: it is none of these.
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|[1-9][0-9]?", name):
            raise unusable(f"--param {rows.plain(each)}: must be NAME=VALUE for $NAME, or 1=VALUE for $1")
        if name in found:
            raise unusable(f"--param {name} is given twice")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, dict | list) else value


def _for(out: TextIO, text: str) -> str:
    """A terminal gets nothing that it would obey."""
    return "\n".join(map(rows.plain, text.split("\n"))) if out.isatty() else text


def _by_name(out: Path | None) -> Shape:
    """
    Raises:
        Failure: the name promises what isn't written here.
    """
    ending = out.suffix.lower() if out else ""
    if ending not in _SHAPES:
        raise unusable(f"-o {rows.plain(str(out))}: must end in .csv, .json or .txt, or have --format beside it")
    return _SHAPES[ending]


def _whole(answer: Answer, shape: Shape) -> str:
    if shape is Shape.csv:
        return rows.as_csv(answer)
    if shape is Shape.json:
        return rows.as_json(answer)
    return "".join(f"{line}\n" for line in rows.table(answer))
