"""proxy/app.py: a configuration becomes a running gateway, is replaced, and ends. Signals: tests/journeys/test_drain.py."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest

from spangate.call.seen import Seen
from spangate.exporters import semconv
from spangate.proxy import config
from spangate.proxy.app import App, Setting

from case import case, settings
from gateway import until
from measured import value
from serving import serving
from upstream import Misbehaving, chat_answer, play

YAML = "providers: {script: {kind: scripted}}\nmodels: {echo: {targets: [{provider: script}]}}\n"


class Recorded:
    def __init__(self) -> None:
        self.flushed = 0

    def record(self, seen: Seen) -> None:
        raise AssertionError("nobody called")

    def flush(self) -> None:
        self.flushed += 1


def app(folder: Path, text: str = YAML) -> tuple[App, Recorded]:
    (folder / "spangate.yaml").write_text(text)
    recorded = Recorded()
    return App(config.load(folder / "spangate.yaml", environ={}), Setting(recorded)), recorded


async def test_it_starts_and_ends(tmp_path: Path) -> None:
    gateway, recorded = app(tmp_path)
    address = await gateway.start("127.0.0.1", 0)
    assert address.port
    await gateway.drain(0)
    assert recorded.flushed == 1


async def test_it_ends_without_having_begun(tmp_path: Path) -> None:
    gateway, recorded = app(tmp_path)
    await gateway.drain(0)
    assert recorded.flushed == 1


class Ended(Recorded):
    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


async def test_a_recorder_with_an_end_of_its_own_is_closed(tmp_path: Path) -> None:
    (tmp_path / "spangate.yaml").write_text(YAML)
    recorded = Ended()
    await App(config.load(tmp_path / "spangate.yaml", environ={}), Setting(recorded)).drain(0)
    assert (recorded.closed, recorded.flushed) == (1, 0)


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    gateway, _ = app(tmp_path)
    other, _ = app(tmp_path)
    address = await gateway.start("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        await other.start("127.0.0.1", address.port)
    await other.drain(0)
    await gateway.drain(0)


async def test_what_waits_for_a_restart_is_said_and_the_rest_is_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "spangate.proxy")
    gateway, _ = app(tmp_path)
    await gateway.start("127.0.0.1", 0)
    try:
        before = gateway.config.version
        (tmp_path / "spangate.yaml").write_text(YAML + "server: {port: 9, max_calls: 7}\norganisation: acme\n")
        gateway.reload.soon()
        await until(lambda: gateway.config.version != before)
        assert gateway.config.server.max_calls == 7
        told = [record.getMessage() for record in caplog.records]
        assert "configuration: server.port waits for a restart" in told
        assert f"configuration {gateway.config.version} is in use" in told
        assert gateway.endpoints.waiting == ["server.port"]
        before = gateway.config.version
        caplog.clear()
        (tmp_path / "spangate.yaml").write_text(YAML)
        gateway.reload.soon()
        await until(lambda: gateway.config.version != before)
        assert not [record for record in caplog.records if "restart" in record.getMessage()], "that is what runs"
        assert gateway.endpoints.waiting == []
    finally:
        await gateway.drain(0)


async def test_a_bad_file_is_told_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gateway, _ = app(tmp_path)
    await gateway.start("127.0.0.1", 0)
    try:
        before = gateway.config
        (tmp_path / "spangate.yaml").write_text(YAML + "organization: acme\n")
        gateway.reload.soon()
        await until(lambda: bool(gateway.endpoints.reload_error))
        assert gateway.config is before
        assert gateway.endpoints.reload_error == 'spangate.yaml:3:1: organization: unknown key; did you mean "organisation"?'
        assert "kept the running configuration" in caplog.text
        (tmp_path / "spangate.yaml").write_text(YAML)
        await until(lambda: not gateway.endpoints.reload_error, 3)
    finally:
        await gateway.drain(0)


async def test_a_new_configuration_is_for_the_next_call(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("new"))) as newer, case(tmp_path, play(chat_answer("old"))) as it:
        assert b"old" in (await it.ask()).body
        before = it.running.app.config.version
        (tmp_path / "spangate.yaml").write_text(settings(newer.base_url))
        it.running.app.reload.soon()
        await until(lambda: it.running.app.config.version != before)
        assert b"new" in (await it.ask()).body


@pytest.mark.fault("CFG-01")
async def test_sighup_loads_what_changed_and_keeps_what_is_good(tmp_path: Path) -> None:
    async with Misbehaving(play(chat_answer("Hello"))) as up:
        good = settings(up.base_url, organisation="acme")
        with serving(tmp_path, up.base_url) as program:
            await program.reloaded(good)
            (tmp_path / "spangate.yaml").write_text(good.replace('"models"', '"modles"'))
            program.process.send(signal.SIGHUP)
            while "config_reload_failed" not in (await program.ask("/readyz", "GET")).json():
                pass
            assert (await program.ask()).status == 200
            program.process.send(signal.SIGTERM)
            ran, calls = await program.end()
    assert (ran.code, len(calls)) == (0, 1)
    assert "kept the running configuration" in ran.err


async def test_metrics_tell_of_the_configuration_and_of_resends(tmp_path: Path) -> None:
    async with case(tmp_path, telemetry={}) as it:
        measuring = it.running.app.setting.measuring
        assert measuring is not None
        told = measuring.collect()
        assert value(told, semconv.CONFIG_RELOAD_FAILED) == 0
        assert value(told, semconv.CONFIG_LOADED) > 1.7e9
        assert value(told, semconv.UPSTREAM_RESENDS) == 0
        it.running.app.endpoints.reload_error = "spangate.yaml:3:1: models: unknown key"
        assert value(measuring.collect(), semconv.CONFIG_RELOAD_FAILED) == 1
