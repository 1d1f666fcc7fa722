"""The processes of a run: compiled, started on a CPU of their own, charged for what they used, and ended.

Nothing here knows what is measured. Only what was started here is ever ended.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 1024 * 1024
LINUX = sys.platform == "linux"


class Unusable(Exception):
    """The machine lacks something, or a process didn't start: what to do about it is in the message."""


def compiled(name: str, folder: Path) -> Path:
    """The C program of this name, built into `folder`."""
    compiler = next((found for word in ("cc", "gcc", "clang") if (found := shutil.which(word))), None)
    if compiler is None:
        raise Unusable("a C compiler is missing (Debian, Ubuntu: apt-get install gcc libc6-dev; macOS: xcode-select --install)")
    program = folder / name
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(program), str(HERE / f"{name}.c")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode or ran.stderr:
        raise Unusable(f"{name}.c doesn't compile cleanly:\n{ran.stderr}")
    return program


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpus() -> list[int]:
    """The CPUs that may be pinned to; none where the system can't pin or has but one."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    usable = sorted(os.sched_getaffinity(0))
    return usable if len(usable) > 1 else []


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """What is started inside runs on this CPU alone: it inherits from us, so that no thread of it ever ran elsewhere."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Process:
    """One process with its children: a proxy or the mock."""

    def __init__(
        self, command: Sequence[str], folder: Path, name: str, *, cpu: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.out"
        with self.output.open("wb") as output, pinned(cpu):
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_until_it_listens(self, port: int, seconds: float = 30.0) -> None:
        latest = time.monotonic() + seconds
        while time.monotonic() < latest and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise Unusable(f"{self.name} doesn't listen; its last words:\n{self.last_words()}")

    def last_words(self) -> str:
        return self.output.read_text("utf-8", "replace")[-2000:]

    def cpu_seconds(self) -> float:
        """User and system time so far of the process and all its children."""
        return sum(cpu_seconds(pid) for pid in family(self.pid))

    def peak_rss(self) -> float:
        """The most memory held so far, in MiB, summed over the process and its children."""
        return sum(peak_rss(pid) for pid in family(self.pid))

    def end(self) -> None:
        """Its whole session: a master's workers go with it."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def family(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for child, parent in parents():
        children.setdefault(parent, []).append(child)
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    if not LINUX:
        for line in told_by_ps("pid=,ppid=", "-A"):
            child, parent = map(int, line.split())
            yield child, parent
    for stat in Path("/proc").glob("[0-9]*/stat") if LINUX else ():
        try:
            yield int(stat.parent.name), int(stat.read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile


def told_by_ps(columns: str, *which: str) -> list[str]:
    ran = subprocess.run(["ps", *which, "-o", columns], capture_output=True, text=True, check=False)
    return [line for line in ran.stdout.splitlines() if line.strip()]


def cpu_seconds(pid: int) -> float:
    """User and system time of one process with the threads that have ended.

    Linux keeps a clock for every process, exact to the nanosecond; its number follows from the process id (clock_getcpuclockid(3),
    which Python doesn't have). The ticks of /proc, 10 ms each, are too coarse for what nginx uses in a second.
    """
    if not LINUX:
        return sum(seconds_of(line) for line in told_by_ps("time=", "-p", str(pid)))
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0  # it has ended


def seconds_of(written: str) -> float:
    """`[[days-]hours:]minutes:seconds`, as ps writes a time; on macOS with hundredths."""
    days, _, clock = written.strip().rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * int(days or 0)


def peak_rss(pid: int) -> float:
    """The high-water mark of one process in MiB; where the system doesn't keep one, what it holds now."""
    if not LINUX:
        return sum(int(line) for line in told_by_ps("rss=", "-p", str(pid))) / 1024
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii", "replace"), re.MULTILINE)
    except OSError:
        return 0.0  # it has ended
    return int(found[1]) / 1024 if found else 0.0
