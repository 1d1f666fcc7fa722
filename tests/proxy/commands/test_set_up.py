"""proxy/commands/set_up.py: what the command line takes for the commands that set a gateway up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from program import spangate


@pytest.mark.parametrize("command", ["check", "doctor", "connect curl", "keys list", "keys new a", "keys revoke a/b"])
def test_the_file_may_come_from_the_environment(command: str, tmp_path: Path) -> None:
    ran = spangate(*command.split(), folder=tmp_path, SPANGATE_CONFIG="none.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert "none.yaml: there is no such file" in ran.err


def test_how_mistakes_are_told_may_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text("modles: {}\n")
    ran = spangate("check", folder=tmp_path, SPANGATE_FORMAT="json")
    assert (ran.code, ran.err) == (2, "")
    assert "modles" in json.dumps(json.loads(ran.out))


@pytest.mark.parametrize("seconds", ["0", "301", "soon"])
def test_a_patience_that_is_none(seconds: str, tmp_path: Path) -> None:
    ran = spangate("doctor", "--timeout", seconds, folder=tmp_path)
    assert (ran.code, ran.out, "--timeout" in ran.err, len(ran.err.splitlines())) == (2, "", True, 1)


def test_keys_alone_are_explained(tmp_path: Path) -> None:
    ran = spangate("keys", folder=tmp_path)
    assert [command for command in ("new", "list", "revoke") if command not in ran.out] == []
