"""What the demo runs on is a good configuration."""

from __future__ import annotations

from pathlib import Path

from spangate.proxy import keys_file
from spangate.proxy.commands.demo_setting import CONFIGURATION, TEAMS, stage


def test_it_loads_without_a_warning_and_each_team_has_a_key(tmp_path: Path) -> None:
    ready = stage(tmp_path)
    assert ready.config.warnings == ()
    assert {held.team: held.key.hash for held in ready.config.keys} == {team: keys_file.digest(ready.keys[team]) for team in TEAMS}


def test_the_line_of_a_rule_is_where_it_stands(tmp_path: Path) -> None:
    ready = stage(tmp_path)
    assert [CONFIGURATION.splitlines()[ready.line_of(team) - 1].strip() for team in TEAMS] == [
        "models: [fast, vectors]",
        "models: [fast, strong]",
        "models: [fast]",
    ]
