"""Where clients connect: sockets that listen, and what becomes of connections when the files of the process run out.

Event loops have servers of their own. uvloop's, when no file is left for a connection, shuts those that wait by way of one that it keeps
for that case. Another thread may open a file in the meantime, and then it accepts nobody, for ever. Here a share of the files is kept for
what connections take in turn, such as those to providers; a connection beyond is shut at once, and whatever keeps one from being accepted
is tried again in a moment.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

log = logging.getLogger("spangate.proxy")

BACKLOG = 1024  # connections that wait to be accepted
AT_ONCE = 32  # that are accepted before anything else has its turn
PAUSE = 0.1  # seconds until it is tried again
OWN = 96  # files of the gateway itself: spool, database, what is read now and then, ways to shared counters and collectors
KEPT, LEAST_KEPT = 4, 32  # one file in so many is kept for other things than clients, and so many at least, if there are twice as many
ENOUGH = 1 << 20  # files that a process asks for, where it may have any number
EVERY = 60.0  # seconds from one word about it to the next
_LEFT = frozenset({errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.EPROTO})  # nobody is there any more


class Listener:
    """Accepts connections on `sockets`, which are bound and become its own; each has the protocol that `made` gives. `present`: how many
    clients there are, without those that only begin; None: they are no clients but whoever runs the gateway, to whom no share is dealt out.
    `refused`: how many were shut for want of files."""

    def __init__(
        self, sockets: Sequence[socket.socket], made: Callable[[], asyncio.BaseProtocol], present: Callable[[], int] | None
    ) -> None:
        self.sockets = sockets
        self.refused = 0
        self._made = made
        self._present = present
        self._again: asyncio.TimerHandle | None = None
        self._beginning: dict[asyncio.Task[Any], socket.socket] = {}
        self._says_at = float("-inf")

    def start(self) -> None:
        """
        Raises:
            OSError: another process, which had bound the address at the same time, was quicker.
        """
        for sock in self.sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
        self._go_on()

    def close(self) -> None:
        """Accept nobody from now on. Connections stay, but for those that only begin, of which nobody knows yet."""
        self._rest()
        for client in self._beginning.values():
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for sock in self.sockets:
            sock.close()

    def _go_on(self) -> None:
        self._again = None
        for sock in self.sockets:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _rest(self) -> None:
        if self._again is not None:
            self._again.cancel()
        for sock in self.sockets:
            if sock.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(sock)

    def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            try:
                client, _ = sock.accept()
            except OSError as error:
                if error.errno in _LEFT:
                    return
                self._say(f"no connection can be accepted ({error.strerror}); it is tried again")
                self._rest()
                self._again = loop.call_later(PAUSE, self._go_on)
                return
            if self._too_many(client):
                client.close()
                self.refused += 1
                self._say("connections are shut, as there are no files left for them: raise the limit (`ulimit -n`, LimitNOFILE)")
                continue
            client.setblocking(False)
            beginning = loop.create_task(loop.connect_accepted_socket(self._made, client))
            self._beginning[beginning] = client
            beginning.add_done_callback(self._begun)

    def _too_many(self, client: socket.socket) -> bool:
        """Its number is the lowest that is free: all below are in use."""
        if self._present is None:
            return False
        return client.fileno() >= files_for_clients() or self._present() + len(self._beginning) >= most_clients()

    def _begun(self, beginning: asyncio.Task[Any]) -> None:
        client = self._beginning.pop(beginning)
        if beginning.cancelled():
            client.close()
        elif (error := beginning.exception()) is not None:
            client.close()
            if not isinstance(error, OSError):  # which says that it has left already
                raise error

    def _say(self, what: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._says_at:
            self._says_at = now + EVERY
            log.warning("%s", what)


async def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that have the address, on which nobody listens yet; port 0 takes a free one. A name may have several.

    Raises:
        OSError: it can't be had.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            sockets.append(_bound(family, kind, protocol, address))
        except OSError as error:
            failure = error
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # a family that this machine hasn't
                break
    else:
        if sockets:
            return sockets
    for sock in sockets:
        sock.close()
    raise failure or OSError(errno.EADDRNOTAVAIL, f"{host} has no address")


def _bound(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


# ---- how many files there are


def files_for_clients() -> int:
    """So many files the process may have open when it accepts one connection more."""
    limit = _limit()
    return limit - min(max(limit // KEPT, LEAST_KEPT), limit // 2)


def most_clients() -> int:
    """So many connections of clients there may be: a call on each wants one to its provider too, and they may all come at once."""
    limit = _limit()
    return max((limit - OWN) // 2, limit // 8)


def _limit() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if limit == resource.RLIM_INFINITY else limit


def ask_for_files() -> None:
    """Take as many as this user may have. The limit that processes begin with is low for the sake of those that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # some systems have a lower one that they don't tell of
        log.info("the limit of open files stays at %d", soft)
