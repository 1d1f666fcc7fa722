"""The Unix socket beside the usage database, by which commands on this machine reach a running gateway. Its mode is the right to ask.

A gateway without it answers its callers as well as any: whatever is in the way is a line of the log, and tried again. Of several
gateways on one database the socket goes to the one that has the database, for it alone can answer.
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
AGAIN = 1.0  # seconds until a socket that couldn't be had is tried again


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
    """`start`, then `aclose`. `path` is the database's. `elsewhere`: whether another process has that just now, and so a better right."""

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
        self._server = Server(_Local(answer), limits)
        self._elsewhere = elsewhere
        self._again = again
        self._made: tuple[int, int] | None = None
        self._told = ""
        self._ending = asyncio.Event()
        self._trying: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen, if that can be; else as soon as it can."""
        if not await self._listen():
            self._trying = asyncio.create_task(self._try_again(), name="spangate.local_socket")

    async def aclose(self) -> None:
        """Stop, and take away what we made. A second time does nothing."""
        self._ending.set()
        if self._trying is not None:
            await asyncio.wait([self._trying])
        made, self._made = self._made, None
        if made is None:
            return
        with suppress(OSError):
            if _identity(self.path) == made:  # another gateway may have put its own there
                self.path.unlink()
        await self._server.drain(0)

    async def _listen(self) -> bool:
        """Whether that could be; if not, why is said once."""
        try:
            sock, self._made = bound(self.path)
        except OSError as error:
            if (told := error.strerror or str(error)) != self._told:
                self._told = told
                log.warning("no socket for `spangate sql` and its like: %s: %s", self.path, told)
            return False
        await self._server.start_on(sock)
        if self._told:
            log.info("`spangate sql` and its like reach this gateway now: %s", self.path)
        return True

    async def _try_again(self) -> None:
        while not self._ending.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._again)
            if not self._ending.is_set() and not self._elsewhere() and await self._listen():
                return


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
