"""Which server a home lives on: the one there is, or the node of a cluster that holds its slot.

A cluster tells where its slots are, and says so again (MOVED, ASK) when it isn't asked where it should be. What is known is learned anew
after a node couldn't be reached, from whichever node answers: its replica may be master by now.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .ledger import StateUnavailable

log = logging.getLogger("spangate.state")

CONNECTIONS = 32  # to a node, for calls
OWN = 4  # and for what the ledger does beside
FAILURES, REST = 3, 0.5  # so many in a row, and for so many seconds nobody asks
LEARNED = 0.2  # seconds in which what was learned isn't learned again


class Node:
    """A server and its connections. After FAILURES in a row nobody asks it for REST seconds, then one does; `problem` says why. It was
    `heard` of last then."""

    def __init__(self, name: str, client: Any) -> None:
        self.name = name
        self.client = client
        self.problem = ""
        self.asked = False
        self.turns = asyncio.Semaphore(CONNECTIONS)
        self.heard = float("-inf")
        self._failures = 0
        self._rests_until = 0.0

    def may_ask(self, now: float) -> bool:
        if not self.problem:
            return True
        if self.asked or now < self._rests_until:
            return False
        self.asked = True
        return True

    def failed(self, said: str, now: float) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            if not self.problem:
                log.warning("the shared counters can't be reached: %s", said)
            self.problem, self._rests_until = said, now + REST

    def well(self, now: float) -> None:
        self.heard = now
        if self.problem:
            log.warning("the shared counters can be reached again")
        self._failures, self.problem = 0, ""


class One:
    """A server by itself. All homes live there."""

    def __init__(self, url: str, timeout: float) -> None:
        """
        Raises:
            ValueError: the URL is none of a server; the message doesn't repeat it.
        """
        self._options = _options(url, timeout)
        self._node = Node("", _client(self._options))
        self.stale = False

    def known(self) -> Sequence[Node]:
        return (self._node,)

    def of(self, key: str) -> Node:
        return self._node

    async def learn(self, now: float) -> None:
        """There is nothing to learn."""
        self.stale = False

    def moved(self, slot: int, host: str, port: int) -> Node:
        """
        Raises:
            StateUnavailable: always.
        """
        raise StateUnavailable("the server is one of a cluster: set state.cluster")

    async def close(self) -> None:
        await self._node.client.aclose()


class Cluster:
    """Several, that share the slots. `stale`: what is known of them may be wrong."""

    def __init__(self, url: str, timeout: float) -> None:
        """
        Raises:
            ValueError: as One.
        """
        self._options = _options(url, timeout)
        self._patience = timeout / 3
        self._nodes: dict[str, Node] = {}
        self._starts: list[int] = []
        self._names: list[str] = []
        self._moved: dict[int, str] = {}
        self._learned = 0.0
        self._learning = asyncio.Lock()
        self._at(str(self._options.get("host", "localhost")), int(self._options.get("port", 6379)))
        self.stale = True

    def known(self) -> Sequence[Node]:
        return tuple(self._nodes.values())

    def of(self, key: str) -> Node:
        """
        Raises:
            StateUnavailable: no node has its slot, as far as is known.
        """
        slot = _slot(key)
        name = self._moved.get(slot)
        if name is None:
            index = bisect_right(self._starts, slot) - 1
            name = self._names[index] if index >= 0 else ""
        node = self._nodes.get(name)
        if node is None:
            self.stale = True
            raise StateUnavailable("no node of the cluster has the slot")
        return node

    async def learn(self, now: float) -> None:
        """Ask the nodes, one after the other, where the slots are; whoever doesn't answer is asked last the next time."""
        async with self._learning:
            if not self.stale or now - self._learned < LEARNED:
                return
            self._learned = now
            for node in self.known():
                try:
                    async with asyncio.timeout(self._patience):
                        await self._adopt(node, await node.client.execute_command("CLUSTER", "SLOTS"))
                    return
                except failures() as error:
                    node.failed(said(error), now)
                    self._nodes[node.name] = self._nodes.pop(node.name)

    def moved(self, slot: int, host: str, port: int) -> Node:
        """The cluster said itself where a slot is."""
        node = self._at(host, port)
        self._moved[slot] = node.name
        self.stale = True
        return node

    async def close(self) -> None:
        for node in self.known():
            await node.client.aclose()

    def _at(self, host: str, port: int) -> Node:
        name = f"{host}:{port}"
        if name not in self._nodes:
            self._nodes[name] = Node(name, _client({**self._options, "host": host, "port": port}))
        return self._nodes[name]

    async def _adopt(self, teller: Node, ranges: Sequence[Any]) -> None:
        """Ranges are [first, last, [host, port, …] of the master, …]; no host means that of whoever says so."""
        if not ranges:
            return
        own = teller.name.rpartition(":")[0]
        found = sorted((first, self._at(master[0] or own, master[1]).name) for first, _, master, *_ in ranges)
        self._starts, self._names = [first for first, _ in found], [name for _, name in found]
        self._moved.clear()
        self.stale = False
        for node in self.known():
            if node.name not in self._names and node is not teller:
                del self._nodes[node.name]
                await node.client.aclose()


@lru_cache(10_000)
def _slot(key: str) -> int:
    from redis.crc import key_slot

    return key_slot(key.encode())


def failures() -> tuple[type[Exception], ...]:
    """Whatever may come of asking."""
    from redis.exceptions import RedisError

    return RedisError, OSError, TimeoutError


def said(error: Exception) -> str:
    """What may be told of it. The server's own words may be anything; the first is their kind."""
    kind = type(error).__name__
    word = str(error).split(" ", 1)[0]
    return f"{kind} {word}" if word.isupper() and word.isalpha() else kind


def _options(url: str, timeout: float) -> dict[str, Any]:
    """
    Raises:
        ValueError: the URL is none of a server; the message doesn't repeat it.
    """
    from redis.asyncio.connection import parse_url

    try:
        options: dict[str, Any] = {**parse_url(url)}
    except ValueError:
        raise ValueError("state.url must be redis://, rediss:// or unix://, with host, port and database") from None
    return options | {"socket_connect_timeout": timeout, "timeout": timeout}


def _client(options: Mapping[str, Any]) -> Any:
    from redis import asyncio as redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Disconnected
    from redis.maint_notifications import MaintNotificationsConfig

    # A connection that the server closed meanwhile is made anew, once; steps may be repeated. The client's own time limits are not
    # used: on Python 3.11 they lose a cancellation now and then, and with it a caller who left.
    own = {
        "decode_responses": True,
        "encoding_errors": "replace",  # somebody else may write there too: what is no text must end no caller
        "protocol": 2,
        "socket_timeout": None,
        "driver_info": None,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        "retry": Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),
        "max_connections": CONNECTIONS + OWN,
    }
    return redis.Redis.from_pool(redis.BlockingConnectionPool(**{**options, **own}))
