"""The Valkey or Redis server, or cluster of them, behind the shared ledger: runs its script, and says in one kind of error that it can't.

Whatever goes wrong, from a refused connection to a replica that won't write, is StateUnavailable, within `timeout`. After some failures
in a row nobody is made to wait for the next: for half a second all are refused at once, then one tries. Where more ask at once than there
are connections, they take turns, and the time of a step begins with its turn; one that took too long while others were answered is asked
once more. For a burst of calls is no fault of the server's.
Nor is a key that somebody else wrote in the place of ours: who needs it is told so, and until it is gone it is asked about.
The server's address holds a password; it is in no error, no log and no repr.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ...call.clock import SYSTEM, Clock
from .ledger import StateUnavailable
from .nodes import FAILURES, Cluster, Node, One, failures, said

log = logging.getLogger("spangate.state")

TIMEOUT = 0.5  # seconds for a step, with all that it takes
QUEUE = 2.0  # seconds for which a call waits for its turn, or for another
TURNS = 3  # nodes that are asked for a slot that moves
MOST_FOREIGN = 16  # keys of somebody else's that are remembered
_FOREIGN = re.compile(r'WRONGTYPE ([a-z]+) "([^"]+)"')  # as ledger.lua says it

T = TypeVar("T")

Step = tuple[str, tuple[Any, ...]]
"""A home, and the arguments of the script."""

Ask = Callable[[Node], Awaitable[T]]
Way = Callable[[Node, Ask[T]], Awaitable[T]]

packed = msgspec.msgpack.Encoder().encode
"""One argument for the script: many small ones cost the client more than all else."""


class Server:
    """One server, or the nodes of a cluster."""

    def __init__(self, url: str, *, cluster: bool = False, timeout: float = TIMEOUT, clock: Clock = SYSTEM) -> None:
        """
        Raises:
            ValueError: the URL is none of a server; the message doesn't repeat it.
        """
        self._nodes = Cluster(url, timeout) if cluster else One(url, timeout)
        self._now = clock.mono
        self._timeout = timeout
        self._foreign: dict[str, str] = {}
        self._script = files(__package__).joinpath("ledger.lua").read_text("utf-8")
        self._sha = sha1(self._script.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Server: {self.problem or 'well'}>"

    @property
    def problem(self) -> str:
        """Why it can't be used just now, or a node of it, in our words; empty: it can."""
        return next((node.problem for node in self._nodes.known() if node.problem), "")

    @property
    def foreign(self) -> Mapping[str, str]:
        """Keys with something else than ours in them, of those that somebody needed, and its type."""
        return self._foreign

    async def run(self, home: str, *arguments: Any) -> list[Any]:
        """One step.

        Raises:
            StateUnavailable:
        """
        key = lease_key(home)
        return await self._asked(key, lambda node: self._evaluated(node, key, arguments))

    async def run_all(self, steps: Sequence[Step]) -> list[str]:
        """Steps in one go to each node, each for itself: the word that it answered; empty: it isn't known to be done."""
        if self._nodes.stale:
            await self._learned()
        parts: dict[str, list[int]] = {}
        for number, (home, _) in enumerate(steps):
            with suppress(StateUnavailable):
                parts.setdefault(self._nodes.of(lease_key(home)).name, []).append(number)
        done = [""] * len(steps)
        goes = [self._went([steps[number] for number in numbers]) for numbers in parts.values()]
        for numbers, answers in zip(parts.values(), await asyncio.gather(*goes), strict=True):
            for number, answer in zip(numbers, answers, strict=True):
                done[number] = answer
        return done

    async def counters(self, home: str, most: int) -> list[str]:
        """The keys of a home's counters, without what they begin with.

        Raises:
            StateUnavailable:
        """
        key = lease_key(home)
        prefix = f"{key.removesuffix('leases')}c:"
        found: dict[str, None] = {}
        cursor = 0

        async def page(node: Node) -> tuple[int, list[str]]:
            return await node.client.scan(cursor, match=f"{prefix}*", count=1000)  # type: ignore[no-any-return]

        while True:
            cursor, keys = await self._asked(key, page)
            found |= dict.fromkeys(each.removeprefix(prefix) for each in keys)
            if not cursor or len(found) >= most:
                return list(found)[:most]

    async def fields(self, key: str) -> dict[str, str]:
        """A hash that lies beside the counters; empty where there is none.

        Raises:
            StateUnavailable:
        """

        async def ask(node: Node) -> dict[str, str]:
            return await node.client.hgetall(key)  # type: ignore[no-any-return]

        return await self._asked(key, ask)

    async def set_fields(self, key: str, fields: Mapping[str, str], gone: Sequence[str] = ()) -> None:
        """Write fields of a hash, and take others away.

        Raises:
            StateUnavailable: nobody knows whether it is done.
        """

        async def ask(node: Node) -> None:
            if fields:
                await node.client.hset(key, mapping=fields)
            if gone:
                await node.client.hdel(key, *gone)

        await self._asked(key, ask)

    async def probe(self, silence: float = 0.0) -> None:
        """Ask whoever wasn't heard of for so many seconds, until it is known whether they can be reached; and whether keys that aren't
        ours are gone."""
        if self._nodes.stale:
            await self._learned()
        silent = [node for node in self._nodes.known() if self._now() - node.heard >= silence]
        await asyncio.gather(*(self._probed(node) for node in silent), *(self._look_again(key) for key in self._foreign))

    async def _probed(self, node: Node) -> None:
        from redis.exceptions import AskError

        for _ in range(FAILURES):
            try:
                await self._limited(node, self._pinged)
            except StateUnavailable:
                if node.problem:
                    return
            except AskError:
                return
            else:
                return

    async def _pinged(self, node: Node) -> None:
        await self._evaluated(node, lease_key("ping"), ("ping",))

    async def close(self) -> None:
        await self._nodes.close()

    async def _evaluated(self, node: Node, key: str, arguments: Sequence[Any]) -> list[Any]:
        from redis.exceptions import NoScriptError

        try:
            return await node.client.evalsha(self._sha, 1, key, *arguments)  # type: ignore[no-any-return]
        except NoScriptError:
            return await node.client.eval(self._script, 1, key, *arguments)  # type: ignore[no-any-return]

    async def _went(self, steps: Sequence[Step]) -> list[str]:
        try:
            return await self._asked(lease_key(steps[0][0]), lambda node: self._piped(node, steps), self._limited)
        except StateUnavailable:
            return [""] * len(steps)

    async def _piped(self, node: Node, steps: Sequence[Step]) -> list[str]:
        from redis.exceptions import NoScriptError

        pipe = node.client.pipeline(transaction=False)
        for home, arguments in steps:
            pipe.evalsha(self._sha, 1, lease_key(home), *arguments)
        answers = await pipe.execute(raise_on_error=False)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            await node.client.script_load(self._script)
            return await self._piped(node, steps)
        faults = [answer for answer in answers if isinstance(answer, Exception)]
        if len(faults) == len(answers):
            raise faults[0]
        foreign = [self._is_foreign(fault) for fault in faults]
        if not all(foreign):
            self._nodes.stale = True  # as when a slot moved
        return ["" if isinstance(answer, Exception) else answer[0] for answer in answers]

    def _is_foreign(self, error: Exception) -> bool:
        """Whether a step met a key that isn't ours; then it is remembered."""
        found = _FOREIGN.search(str(error))
        if found is not None and (key := found[2]) not in self._foreign:
            log.warning("%s", foreign_words(key, found[1]))
            self._foreign[key] = found[1]
            if len(self._foreign) > MOST_FOREIGN:
                del self._foreign[next(iter(self._foreign))]
        return found is not None

    async def _look_again(self, key: str) -> None:
        async def ask(node: Node) -> str:
            return await node.client.type(key)  # type: ignore[no-any-return]

        with suppress(StateUnavailable):
            if await self._asked(key, ask, self._limited) != self._foreign.get(key) and self._foreign.pop(key, ""):
                log.warning("the key %s is no foreign one any more", key)

    async def _asked(self, key: str, ask: Ask[T], way: Way[T] | None = None) -> T:
        """What comes of asking the node that has the key, and where it says, whoever has it now. `way`: how; in turn by default.

        Raises:
            StateUnavailable:
        """
        from redis.exceptions import AskError, MovedError

        if self._nodes.stale:
            await self._learned()
        node = self._nodes.of(key)
        for _ in range(TURNS):
            try:
                return await (way or self._in_turn)(node, ask)
            except MovedError as elsewhere:
                node = self._nodes.moved(elsewhere.slot_id, elsewhere.host, elsewhere.port)
            except AskError:  # half moved: both will know soon
                raise StateUnavailable("a slot is being moved") from None
        raise StateUnavailable("a slot moves about")

    async def _learned(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._nodes.learn(self._now())

    async def _in_turn(self, node: Node, ask: Ask[T]) -> T:
        """As `_limited`, when a connection is free."""
        ends = self._now() + QUEUE
        while True:
            await self._turn(node.turns)
            try:
                return await self._limited(node, ask)
            except Overtaken:
                if self._now() > ends:
                    raise
            finally:
                node.turns.release()

    async def _turn(self, turns: asyncio.Semaphore) -> None:
        if turns.locked():
            try:
                async with asyncio.timeout(QUEUE):
                    await turns.acquire()
            except TimeoutError:
                raise StateUnavailable("too many calls ask at once") from None
        else:
            await turns.acquire()

    async def _limited(self, node: Node, ask: Ask[T]) -> T:
        """
        Raises:
            StateUnavailable:
            Overtaken: not in time, though others were.
            AskError, MovedError: what is asked for is elsewhere.
        """
        from redis.exceptions import AskError, ReadOnlyError

        began = self._now()
        if not node.may_ask(began):
            raise StateUnavailable(node.problem)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await ask(node)
        except AskError:  # and MovedError, which is one
            node.well(self._now())
            raise
        except failures() as error:
            if self._is_foreign(error):
                node.well(self._now())
                raise StateUnavailable("a key of the shared counters is somebody else's; the log and /readyz name it") from None
            if isinstance(error, TimeoutError) and node.heard > began:
                raise Overtaken("too many calls ask at once") from None
            node.failed(said(error), self._now())
            self._nodes.stale = True
            if node.problem or isinstance(error, ReadOnlyError):  # by now another may have the address; who has the old one may be mute
                await node.client.aclose()
            raise StateUnavailable(said(error)) from None
        finally:
            node.asked = False
        node.well(self._now())
        return answer


class Overtaken(StateUnavailable):
    """A step was not answered in time, while later ones were: it is we who are slow."""


def lease_key(home: str) -> str:
    """The one key of a step that is named beforehand: in a cluster it says which node is asked."""
    return f"spangate:{{{plain(home)}}}:leases"


def foreign_words(key: str, type: str) -> str:
    """What is wrong with such a key, and what to do."""
    return f"the key {key} is a {type}, which isn't ours: find out who writes it, and delete it; counting there begins anew then"


@lru_cache(10_000)
def plain(text: str) -> str:
    """Without what has a meaning in a key: braces, bars, asterisks."""
    return quote(text, safe=" :/@,;=+") or "-"
