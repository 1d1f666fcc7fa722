"""Which node is asked, and when none is. A cluster at work is in test_valkey_cluster.py."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ReadOnlyError, ResponseError

from spangate.policies.ledger.ledger import StateUnavailable
from spangate.policies.ledger.nodes import FAILURES, LEARNED, REST, Cluster, Node, One, said

URL = "redis://:hunter2@127.0.0.1:7000"


def test_after_some_failures_nobody_waits_and_then_one_does() -> None:
    node = Node("acme", None)
    for _ in range(FAILURES):
        assert node.problem == ""
        assert node.may_ask(10.0)
        node.failed("ConnectionError", 10.0)
    assert node.problem == "ConnectionError"
    assert [node.may_ask(10.0 + wait) for wait in (0.0, REST / 2, REST, REST)] == [False, False, True, False]
    node.well(11.0)
    assert node.heard == 11.0
    assert node.may_ask(10.0)
    assert node.problem == ""


def test_failures_that_are_not_in_a_row_are_none() -> None:
    node = Node("acme", None)
    for _ in range(5 * FAILURES):
        node.failed("TimeoutError", 10.0)
        node.well(10.0)
    assert node.problem == ""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Disconnected("Error 111 connecting to host:6379"), "ConnectionError"),
        (ReadOnlyError("You can't write against a read only replica."), "ReadOnlyError"),
        (ResponseError("WRONGTYPE Operation against a key called secret"), "ResponseError WRONGTYPE"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_is_told_of_an_error(error: Exception, told: str) -> None:
    assert said(error) == told


class Teller:
    """Answers CLUSTER SLOTS as it is told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def execute_command(self, *_: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """It has no connections."""


HALVES = [[8192, 16383, ["10.0.0.2", 7001, "id"], ["10.0.0.9", 7009, "replica"]], [0, 8191, ["", 7000, "id"]]]


async def test_a_cluster_is_learned_from_whoever_answers() -> None:
    cluster = Cluster(URL, 0.5)
    with pytest.raises(StateUnavailable):
        cluster.of("spangate:{acme}:leases")
    [first] = cluster.known()
    first.client = Teller(Disconnected("no"), HALVES, Disconnected("no"))
    await cluster.learn(10.0)
    assert cluster.stale, "nobody answered"
    await cluster.learn(10.0 + LEARNED / 2)
    await cluster.learn(10.0 + 2 * LEARNED)
    assert not cluster.stale
    names = {cluster.of(f"spangate:{{{home}}}:leases").name for home in "abcdefgh"}
    assert names == {"127.0.0.1:7000", "10.0.0.2:7001"}
    cluster.stale = True
    second = next(node for node in cluster.known() if node is not first)
    second.client = Teller([[0, 16383, ["10.0.0.9", 7009, "id"]]])
    await cluster.learn(20.0)
    assert {cluster.of(f"spangate:{{{home}}}:leases").name for home in "abcdefgh"} == {"10.0.0.9:7009"}


async def test_a_slot_that_moved_is_asked_for_where_it_is() -> None:
    cluster = Cluster(URL, 0.5)
    [first] = cluster.known()
    first.client = Teller(HALVES, HALVES)
    await cluster.learn(10.0)
    from redis.crc import key_slot

    key = "spangate:{acme}:leases"
    node = cluster.moved(key_slot(key.encode()), "10.0.0.3", 7002)
    assert cluster.of(key) is node
    assert cluster.stale
    await cluster.learn(20.0)
    assert cluster.of(key) is not node, "what is learned later counts"
    await cluster.close()


def test_a_server_by_itself_has_everything() -> None:
    one = One(URL, 0.5)
    assert one.known() == (one.of("spangate:{acme}:leases"),)
    with pytest.raises(StateUnavailable) as fault:
        one.moved(1, "10.0.0.3", 7002)
    assert "cluster" in fault.value.detail
