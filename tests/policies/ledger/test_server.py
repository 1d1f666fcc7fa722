"""How the shared ledger's server is asked, and when it isn't."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.ledger.nodes import FAILURES
from spangate.policies.ledger.server import MOST_FOREIGN, QUEUE, Server, lease_key, packed

from ledgers import until
from valkey_server import Valkey, valkey


@pytest.mark.parametrize(
    ("home", "key"),
    [
        ("acme", "spangate:{acme}:leases"),
        ("provider:openai", "spangate:{provider:openai}:leases"),
        ("a{b}*|", "spangate:{a%7Bb%7D%2A%7C}:leases"),
        ("", "spangate:{-}:leases"),
    ],
)
def test_a_home_is_a_slot(home: str, key: str) -> None:
    assert lease_key(home) == key


async def test_a_connection_that_was_closed_meanwhile_is_made_anew(shared_valkey: Valkey) -> None:
    server = Server(shared_valkey.url)
    try:
        for _ in range(3):
            assert (await server.run("acme", "ping"))[0] == "ping"
            shared_valkey.say("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert await server.run_all([("acme", ("ping",))] * 3) == ["ping"] * 3
    finally:
        await server.close()


async def test_steps_are_each_for_itself(shared_valkey: Valkey) -> None:
    server = Server(shared_valkey.url)
    try:
        assert await server.run_all([]) == []
        assert await server.run_all([("acme", ("ping",)), ("acme", ("settle", b"\xc1")), ("acme", ("ping",))]) == ["ping", "", "ping"]
        assert server.problem == ""
    finally:
        await server.close()


async def test_a_burst_of_calls_is_no_fault_of_the_servers(shared_valkey: Valkey) -> None:
    """More at once than a server answers in the time of a step: they take turns."""
    server = Server(shared_valkey.url, timeout=0.15)
    try:
        answers = await asyncio.gather(*(server.run("acme", "beat", packed(("one", 1000))) for _ in range(4000)))
        assert len(answers) == 4000
        assert server.problem == ""
    finally:
        await server.close()


async def test_who_takes_turns_waits_for_no_server_that_is_silent(tmp_path: Path) -> None:
    with valkey(tmp_path) as silent:
        server = Server(silent.url, timeout=0.05)
        try:
            await server.run("acme", "ping")
            silent.pause()
            began = time.monotonic()
            answers = await asyncio.gather(*(server.run("acme", "ping") for _ in range(500)), return_exceptions=True)
            assert {type(answer) for answer in answers} == {StateUnavailable}
            assert time.monotonic() - began < QUEUE, "soon it is known"
            assert server.problem
            silent.resume()

            async def well() -> bool:
                await server.probe()
                return not server.problem

            await until(well)
            assert (await server.run("acme", "ping"))[0] == "ping"
        finally:
            await server.close()


@pytest.mark.parametrize("way", ["a replica", "full"])
async def test_a_server_that_can_not_write_is_found_out_by_asking(way: str, tmp_path: Path) -> None:
    with valkey(tmp_path) as other:
        server = Server(other.url)
        try:
            await server.probe()
            assert server.problem == ""
            other.say(*(("REPLICAOF", "127.0.0.1", "1") if way == "a replica" else ("CONFIG", "SET", "maxmemory", "1")))
            await server.probe()
            assert server.problem
            assert other.everything() == []
        finally:
            await server.close()


async def test_nothing_of_the_address_is_shown(tmp_path: Path) -> None:
    server = Server(f"unix://:hunter2@{tmp_path}/nobody")
    try:
        for _ in range(FAILURES):
            with pytest.raises(StateUnavailable) as fault:
                await server.run("acme", "ping")
            assert "hunter2" not in f"{server!r} {fault.value.detail} {fault.value.message}"
        assert repr(server) == "<Server: ConnectionError>"
    finally:
        await server.close()


async def test_a_key_that_is_not_ours_is_named_until_it_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = "spangate:{acme}:ping"
    with valkey(tmp_path) as other:
        server = Server(other.url)
        try:
            other.say("LPUSH", key, "x")
            for _ in range(FAILURES + 1):
                with pytest.raises(StateUnavailable) as fault:
                    await server.run("acme", "ping")
            assert key not in fault.value.message
            assert (server.problem, dict(server.foreign)) == ("", {key: "list"}), "the server is well"
            assert await server.run_all([("acme", ("ping",)), ("other", ("ping",))]) == ["", "ping"]
            await server.probe()
            assert dict(server.foreign) == {key: "list"}
            other.say("DEL", key)
            await server.probe()
            assert dict(server.foreign) == {}
            assert (await server.run("acme", "ping"))[0] == "ping"
            told = [record.getMessage() for record in caplog.records]
            assert len(told) == 2
            assert all(key in line for line in told)
            assert "delete it" in told[0]
        finally:
            await server.close()


async def test_few_keys_that_are_not_ours_are_remembered(tmp_path: Path) -> None:
    with valkey(tmp_path) as other:
        server = Server(other.url)
        try:
            for number in range(MOST_FOREIGN + 3):
                other.say("LPUSH", f"spangate:{{{number}}}:ping", "x")
                assert await server.run_all([(str(number), ("ping",))]) == [""]
            assert list(server.foreign) == [f"spangate:{{{number}}}:ping" for number in range(3, MOST_FOREIGN + 3)]
        finally:
            await server.close()


async def test_a_hash_beside_the_counters(shared_valkey: Valkey) -> None:
    server = Server(shared_valkey.url)
    key = "spangate:a-test"
    try:
        assert await server.fields(key) == {}
        await server.set_fields(key, {"a": "1", "b": "ö"})
        assert await server.fields(key) == {"a": "1", "b": "ö"}
        await server.set_fields(key, {}, ["a", "none"])
        assert await server.fields(key) == {"b": "ö"}
        await server.set_fields(key, {"b": "2"}, ["b"])
        assert await server.fields(key) == {}
    finally:
        await server.close()
