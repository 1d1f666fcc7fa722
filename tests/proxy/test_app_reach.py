"""A gateway without keys never listens to other machines unless that was said: not at start, and not by a reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from spangate.proxy import config
from spangate.proxy.app import App, Setting
from spangate.proxy.mistakes import ConfigMistakes

from gateway import Kept

OPEN = "providers: {script: {kind: scripted}}\nmodels: {echo: {targets: [{provider: script}]}}\n"
KEYED = OPEN + f'teams: {{search: {{keys: [{{name: ci, hash: "sha256:{"0" * 64}"}}]}}}}\n'


def app(folder: Path, text: str, *, everywhere: bool = False) -> App:
    path = folder / "spangate.yaml"
    path.write_text(text)
    return App(config.load(path, environ={}), Setting(Kept(), everywhere=everywhere))


async def test_it_does_not_start_open_to_strangers(tmp_path: Path) -> None:
    gateway = app(tmp_path, OPEN)
    with pytest.raises(ValueError, match="reachable from other machines"):
        await gateway.start("0.0.0.0", 0)
    await gateway.drain(0)


@pytest.mark.parametrize(("host", "everywhere"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_it_starts_open_where_that_is_meant(tmp_path: Path, host: str, everywhere: bool) -> None:
    gateway = app(tmp_path, OPEN, everywhere=everywhere)
    assert (await gateway.start(host, 0)).port
    await gateway.drain(0)


async def test_a_reload_does_not_open_it_to_strangers(tmp_path: Path) -> None:
    gateway = app(tmp_path, KEYED)
    await gateway.start("0.0.0.0", 0)
    try:
        (tmp_path / "spangate.yaml").write_text(OPEN)
        with pytest.raises(ConfigMistakes, match=r"spangate.yaml: teams: 0.0.0.0 is reachable from other machines"):
            gateway.reload._load()
    finally:
        await gateway.drain(0)
    assert gateway.config.settings.teams
