"""proxy/commands/intervene.py: what the command line takes for the commands that step in."""

from __future__ import annotations

from pathlib import Path

import pytest

from program import spangate


@pytest.mark.parametrize("command", [["stop"], ["stop", "team:a"], ["resume", "team:a"]], ids=" ".join)
def test_the_file_may_come_from_the_environment(command: list[str], tmp_path: Path) -> None:
    ran = spangate(*command, folder=tmp_path, SPANGATE_CONFIG="none.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "none.yaml: there is no such file" in ran.err


def test_a_slip_is_one_line(tmp_path: Path) -> None:
    ran = spangate("resume", folder=tmp_path)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "Missing argument 'SCOPE:NAME'" in ran.err
