"""proxy/commands/look.py: what the command line takes for the commands that look at what a gateway does."""

from __future__ import annotations

from pathlib import Path

import pytest

from program import spangate


@pytest.mark.parametrize("command", [["sql", "SELECT 1"], ["tail"], ["explain", "req_1"]], ids=lambda each: each[0])
def test_the_file_may_come_from_the_environment(command: list[str], tmp_path: Path) -> None:
    ran = spangate(*command, folder=tmp_path, SPANGATE_CONFIG="none.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "none.yaml: there is no such file" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tail", "-n", "1001"], "--last"),
        (["tail", "--outcome", "lost"], "'lost' is not one of"),
        (["sql", "SELECT 1", "--format", "parquet"], "'parquet' is not one of"),
        (["explain"], "Missing argument 'ID'"),
    ],
)
def test_a_slip_is_one_line(arguments: list[str], told: str, tmp_path: Path) -> None:
    ran = spangate(*arguments, folder=tmp_path)
    assert (ran.code, ran.out, told in ran.err, len(ran.err.splitlines())) == (2, "", True, 1), ran.err
