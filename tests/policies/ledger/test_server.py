"""How the shared ledger's server is asked, and when it isn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.ledger.nodes import FAILURES
from spangate.policies.ledger.server import Server, lease_key

from valkey_server import Valkey


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
        assert await server.run_all([("acme", ("ping",))] * 3) == [True] * 3
    finally:
        await server.close()


async def test_steps_are_each_for_itself(shared_valkey: Valkey) -> None:
    server = Server(shared_valkey.url)
    try:
        assert await server.run_all([]) == []
        assert await server.run_all([("acme", ("ping",)), ("acme", ("settle", b"\xc1")), ("acme", ("ping",))]) == [True, False, True]
        assert server.problem == ""
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
