"""The Unix socket beside the usage database, by which commands on this machine reach a running gateway. Its mode is the right to ask.

A gateway without it answers its callers as well as any: whatever is in the way is a line of the log, and tried again. Of several
gateways on one database the socket goes to the one that has the database, for it alone can answer: any other lets go of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from .endpoints import Running
from .exchange import Exchange
from .server import Server
from .settings import Server as Limits

log = logging.getLogger("spangate.proxy")

LONGEST = 100  # bytes of a path: systems take 104 to 108
AGAIN = 1.0  # seconds between two looks: whether a socket that couldn't be had can be, whether ours is still there, and still ours


def socket_path(database: Path) -> Path:
    """Where the socket of a database lies."""
    return database.with_name(f"{database.name}.sock")


class _Local:
    """What stands behind the socket: no model calls."""

    def __init__(self, answer: Callable[[Exchange], Awaitable[None]]) -> None:
        self.draining = False
        self.running: set[Running] = set()
        self._answer = answer

    async def __call__(self, exchange: Exchange) -> None:
        await self._answer(exchange)


class LocalSocket:
    """`start`, then `aclose`. `path` is the database's. `elsewhere`: whether another process has that just now, and so a better right:
    then this one lets go, also of what it had. `again`: seconds between two looks at how things are."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[Exchange], Awaitable[None]],
        limits: Limits,
        *,
        elsewhere: Callable[[], bool] = lambda: False,
        again: float = AGAIN,
    ) -> None:
        self.path = socket_path(path)
        self._answer = answer
        self._limits = limits
        self._elsewhere = elsewhere
        self._again = again
        self._server: Server | None = None
        self._made: tuple[int, int] | None = None
        self._told = ""
        self._ending = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, if that can be; else as soon as it can. And again, should the socket be taken away."""
        await self._look()
        self._looking = asyncio.create_task(self._look_on(), name="spangate.local_socket")

    async def aclose(self) -> None:
        """Stop, and take away what we made. A second time does nothing."""
        self._ending.set()
        if self._looking is not None:
            await asyncio.wait([self._looking])
        await self._let_go()

    async def _look_on(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._again)
            if not self._ending.is_set():
                await self._look()

    async def _look(self) -> None:
        """Listen or let go, as things are."""
        if self._elsewhere():
            self._tell("another gateway has the database")
            await self._let_go()
        elif not self._there():
            await self._let_go()
            await self._listen()

    def _there(self) -> bool:
        """Whether we listen, and where callers look for us."""
        try:
            return self._server is not None and _identity(self.path) == self._made
        except OSError:
            return False

    async def _listen(self) -> None:
        try:
            sock, self._made = bound(self.path)
        except OSError as error:
            self._tell(error.strerror or str(error))
            return
        self._server = Server(_Local(self._answer), self._limits)
        await self._server.start_on(sock)
        if self._told:
            self._told = ""
            log.info("`spangate sql` and its like reach this gateway now: %s", self.path)

    async def _let_go(self) -> None:
        ours = self._there()
        server, self._server = self._server, None
        if server is None:
            return
        if ours:  # another gateway may have put its own there
            with suppress(OSError):
                self.path.unlink()
        await server.drain(0)

    def _tell(self, why: str) -> None:
        """Why there is no socket, once."""
        if why != self._told:
            self._told = why
            log.warning("no socket for `spangate sql` and its like: %s: %s", self.path, why)


def bound(path: Path) -> tuple[socket.socket, tuple[int, int]]:
    """A socket at that path for this user alone, in the place of one that a gateway which is gone has left; and which file it is.

    Raises:
        OSError: there can't be one; the words say why.
    """
    if (size := len(os.fsencode(path))) > LONGEST:
        raise OSError(f"a path of {size} bytes is too long for a socket, which takes {LONGEST}: choose a shorter usage.path")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_socket():
        if reachable(path):
            raise OSError("another gateway listens there")
        path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(os.fspath(path))
        path.chmod(0o600)  # before it listens: until then nobody gets in
        return sock, _identity(path)
    except OSError:
        sock.close()
        raise


def reachable(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)  # where more wait than it takes that is said at once
        try:
            sock.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
