"""The port, and a gateway that answers there: beside one that runs, beside others that are none."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from spangate.proxy.commands.doctor_gateway import Gateway, by_port, by_socket, losses, port, state
from spangate.proxy.local_socket import socket_path
from spangate.proxy.server import Address

from case import case
from upstream import Misbehaving, http, play, refusing_port

READY = {"status": "ready", "config_version": "abc"}


def gateway(**told: Any) -> Gateway:
    return Gateway("http://127.0.0.1:8484", READY | told)


async def test_a_gateway_is_found_by_its_port_and_beside_its_database(tmp_path: Path) -> None:
    async with case(tmp_path, usage={"path": "usage.duckdb"}) as it:
        address = it.running.address
        at = await by_port(Address(address.host, address.port), 5)
        beside = await by_socket(socket_path(tmp_path / "usage.duckdb"), 5)
        assert at is not None
        assert beside is not None
        assert at.told == beside.told | at.told
        assert at.told["config_version"] == it.running.app.config.version
        told = await port(Address(address.host, address.port), at)
        assert told.words == f"127.0.0.1:{address.port} is taken by the gateway that runs"


async def test_one_that_listens_everywhere_is_found_by_loopback(tmp_path: Path) -> None:
    async with case(tmp_path) as it:
        found = await by_port(Address("0.0.0.0", it.running.address.port), 5)
        assert found is not None
        assert (await port(Address("0.0.0.0", it.running.address.port), found)).level == "ok"


@pytest.mark.parametrize(
    "answer",
    [
        http(200, body=b'{"status": "ready"}'),
        http(200, body=b'{"status": "fine", "config_version": "1"}'),
        http(200, body=b"[]"),
        http(200, [("Content-Type", "text/html")], b"<html>"),
        http(404),
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
async def test_something_else_is_no_gateway(answer: bytes) -> None:
    async with Misbehaving(play(answer, end="fin")) as up:
        address = Address("127.0.0.1", up.port)
        assert await by_port(address, 2) is None
        found = await port(address, None)
    assert (found.level, "not by a gateway" in found.told, f"lsof -i :{up.port}" in found.mend) == ("problem", True, True)


@pytest.mark.parametrize("status", ["ready", "draining", "replaying", "state_unavailable"])
async def test_a_gateway_is_known_in_any_state(status: str) -> None:
    body = b'{"status": "%s", "config_version": "1"}' % status.encode()
    async with Misbehaving(play(http(200 if status == "ready" else 503, body=body), end="fin")) as up:
        found = await by_port(Address("127.0.0.1", up.port), 2)
    assert found is not None
    assert found.told["status"] == status


async def test_one_that_stalls_costs_the_patience_and_no_more() -> None:
    async with Misbehaving(play(end="hold")) as up:
        began = asyncio.get_running_loop().time()
        assert await by_port(Address("127.0.0.1", up.port), 0.2) is None
        assert asyncio.get_running_loop().time() - began < 2


async def test_a_port_that_is_free() -> None:
    assert (await port(Address("127.0.0.1", refusing_port()), None)).level == "ok"
    assert (await port(Address("127.0.0.1", 0), None)).words == "any free one is taken"
    assert await by_port(Address("127.0.0.1", 0), 1) is None


async def test_an_address_of_another_machine() -> None:
    found = await port(Address("192.0.2.1", 8484), None)
    assert (found.level, "server.host" in found.mend) == ("problem", True)


async def test_no_socket_and_one_that_nobody_listens_at(tmp_path: Path) -> None:
    assert await by_socket(None, 1) is None
    assert await by_socket(tmp_path / "none.sock", 1) is None
    assert await by_socket(tmp_path / ("x" * 120), 1) is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left.sock"))
    assert await by_socket(tmp_path / "left.sock", 1) is None


def test_a_gateway_that_is_well() -> None:
    assert [(each.check, each.level) for each in state(gateway(), "abc")] == [("gateway", "ok"), ("lost", "ok")]
    assert list(state(None, "abc")) == []


def test_a_gateway_that_kept_its_configuration() -> None:
    _, reload, _ = state(gateway(config_reload_failed="spangate.yaml:3:1: models: unknown key"), None)
    assert (reload.level, "spangate.yaml:3:1" in reload.told) == ("problem", True)


def test_a_gateway_with_another_configuration() -> None:
    _, reload, _ = state(gateway(), "def")
    assert (reload.level, reload.told) == ("warning", "it runs configuration abc, and the file is def")


def test_a_gateway_that_drains() -> None:
    first, *_ = state(gateway(status="draining"), "abc")
    assert (first.level, "draining" in first.told) == ("warning", True)


def test_what_was_lost_is_counted() -> None:
    told = list(losses(READY | {"telemetry_dropped": {"traces.queue_full": 12}, "usage_lost": 1, "usage_broken": 3}))
    assert [each.level for each in told] == ["warning"] * 3
    assert [each.told for each in told] == [
        "12 items of traces since it started (queue full)",
        "the rows of 1 call since it started",
        "3 lines of usage that were broken, or that the database refused",
    ]
    assert [each.words for each in losses(READY)] == ["nothing since it started"]


def test_kill_switches_are_told_and_so_is_what_is_wrong_with_them() -> None:
    _, on, wrong, _ = state(gateway(stopped=2, switches="spangate.duckdb.stops:1:1: is not YAML"), "abc")
    assert (on.level, on.told, "`spangate stop`" in on.mend) == ("warning", "kill switches that are on: 2", True)
    assert (wrong.level, "is not YAML" in wrong.told) == ("problem", True)
