"""proxy/commands/rows.py: rows for people and for programs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from rich.console import Console

from spangate.exporters.usage.sql import Answer
from spangate.proxy.commands import rows

COLUMNS: dict[str, str] = {
    "team": "VARCHAR", "calls": "BIGINT", "cost": "DECIMAL(18,9)", "ms": "DOUBLE", "stream": "BOOLEAN", "tags": "MAP(VARCHAR, VARCHAR)"
}  # fmt: skip
ROWS: list[list[Any]] = [
    ["search", 12, 0.000001, 1.5, True, {"env": "prod"}],
    ["käse, \"x\"", 3, None, None, False, {}],
]  # fmt: skip


def answer(*found: list[Any], **columns: str) -> Answer:
    columns = columns or COLUMNS
    return Answer(tuple(columns), tuple(columns.values()), list(found or ROWS), truncated=False, seconds=0.1)


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)


def shown(found: Answer, width: int) -> str:
    out = terminal(width)
    rows.shown(found, out)
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_a_table_is_aligned() -> None:
    assert list(rows.table(answer())) == [
        "team       calls      cost    ms  stream  tags",
        'search        12  0.000001   1.5  true    {"env": "prod"}',
        'käse, "x"      3      NULL  NULL  false   {}',
    ]


def test_a_table_without_rows_names_its_columns() -> None:
    assert list(rows.table(Answer(("a", "b"), ("VARCHAR", "VARCHAR"), [], truncated=False, seconds=0))) == ["a  b"]


def test_what_callers_wrote_moves_no_cursor() -> None:
    (_, line) = rows.table(answer(["\x1b[2Jx\ny\u202e"], a="VARCHAR"))
    assert line == "?[2Jx?y?"
    assert "\x1b" not in shown(answer(["\x1b[2J"], a="VARCHAR"), 80)
    assert "[red]" in shown(answer(["[red]"], a="VARCHAR"), 80)


def test_names_of_columns_move_no_cursor_either() -> None:
    name = "\x1b]0;x\x07\x9b2J\u202ea"
    found = answer(["x"], **{name: "VARCHAR", "plain": "VARCHAR"})
    found.rows[0].append("y" * 60)
    for text in ("\n".join(rows.table(found)), rows.as_csv(found), shown(found, 120), shown(found, 30), rows.as_json(found)):
        assert [char for char in text if char in "\x1b\x07\x9b"] == [], text
    assert next(rows.table(found)) == "?]0;x??2J?a  plain"
    assert rows.as_csv(found).splitlines()[0] == "?]0;x??2J?a,plain"


def test_csv_is_read_back() -> None:
    read = list(csv.reader(io.StringIO(rows.as_csv(answer()))))
    assert read == [
        list(COLUMNS),
        ["search", "12", "0.000001", "1.5", "true", '{"env": "prod"}'],
        ['käse, "x"', "3", "", "", "false", "{}"],
    ]


def test_json_is_read_back() -> None:
    text = rows.as_json(answer())
    assert json.loads(text) == [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    assert len(text.splitlines()) == len(ROWS)
    assert json.loads(rows.as_json(Answer(("a",), ("INTEGER",), [], truncated=False, seconds=0))) == []


def test_json_names_each_column_once_and_holds_no_control_character() -> None:
    found = Answer(("id", "id", "id_1"), ("VARCHAR",) * 3, [["\x9b1m", "b\x7f", "\x1b"]], truncated=False, seconds=0)
    text = rows.as_json(found)
    assert json.loads(text) == [{"id": "\x9b1m", "id_1": "b\x7f", "id_1_1": "\x1b"}]
    assert text.removesuffix("\n").isprintable()


def test_a_terminal_gets_a_table_where_it_is_wide_enough() -> None:
    lines = shown(answer(), 80).splitlines()
    assert [line.split()[0] for line in lines if line.strip("─ ")] == ["team", "search", "käse,"]
    narrow = shown(answer(), 30).splitlines()
    assert narrow[0].split() == ["team", "search"]
    assert len([line for line in narrow if line]) == len(COLUMNS) * len(ROWS)
