"""`spangate schema` prints the schema."""

from __future__ import annotations

import json

import pytest

from spangate.proxy.commands.schema import schema


def test_it_is_json_with_every_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema() == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"server", "providers", "models", "policies", "defaults", "teams", "callers"} <= set(printed["properties"])
