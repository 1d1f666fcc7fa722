"""The Unix socket beside the usage database, by which commands on this machine reach a running gateway. Its mode is the right to ask.

A gateway without it answers its callers as well as any: whatever is in the way is a line of the log.
"""

from __future__ import annotations

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
_PATIENCE = 1.0  # seconds for a gateway that may listen there already


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
    """`start`, then `aclose`. `path` is the database's."""

    def __init__(self, path: Path, answer: Callable[[Exchange], Awaitable[None]], limits: Limits) -> None:
        self.path = socket_path(path)
        self._server = Server(_Local(answer), limits)
        self._made: tuple[int, int] | None = None

    async def start(self) -> None:
        """Listen, if that can be."""
        try:
            sock = bound(self.path)
        except OSError as error:
            log.warning("no socket for `spangate sql` and its like: %s: %s", self.path, error.strerror or error)
            return
        self._made = _identity(self.path)
        await self._server.start_on(sock)

    async def aclose(self) -> None:
        """Stop, and take away what we made. A second time does nothing."""
        made, self._made = self._made, None
        if made is None:
            return
        with suppress(OSError):
            if _identity(self.path) == made:  # another gateway may have put its own there
                self.path.unlink()
        await self._server.drain(0)


def bound(path: Path) -> socket.socket:
    """A socket at that path for this user alone, in the place of one that a gateway which is gone has left.

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
    except OSError:
        sock.close()
        raise
    return sock


def reachable(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_PATIENCE)
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
