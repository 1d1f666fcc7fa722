"""The program as a user runs it: a process of its own, an empty home and environment, what it says read line by line."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAM = [sys.executable, "-P", "-m", "spangate.proxy"]
PATIENCE = 30


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    code: int
    out: str
    err: str


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of the tester's own: no key, no home, no terminal; temporary files in a folder that can be looked at."""
    (folder / ".tmp").mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "COVERAGE_PROCESS_START") if name in os.environ}
    return {**kept, "HOME": str(folder / "nobody"), "TMPDIR": str(folder / ".tmp"), "LANG": "C.UTF-8", **more}


def spangate(*arguments: str, folder: Path, **more: str) -> Ran:
    """Run a command in `folder` to its end."""
    ran = subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def left_in(folder: Path) -> list[str]:
    """What stands in the folder, in its temporary folder and in the home: names, without what the tests put there."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".tmp")


class Process:
    """A program that runs."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self._popen = popen
        self.heard: list[str] = []

    @property
    def pid(self) -> int:
        return self._popen.pid

    def until(self, text: str, *, stdout: bool = False) -> str:
        """The next line of stderr (or stdout) that holds `text`."""
        stream = self._popen.stdout if stdout else self._popen.stderr
        assert stream is not None
        for line in stream:
            self.heard.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} never came: {''.join(self.heard)}")

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def end(self, patience: float = PATIENCE) -> Ran:
        """What it says until it has ended."""
        out, err = self._popen.communicate(timeout=patience)
        assert "Traceback" not in err
        return Ran(self._popen.returncode, out, err)


@contextmanager
def running(*arguments: str, folder: Path, **more: str) -> Iterator[Process]:
    """A command that runs on; it is killed if it still does at the end."""
    popen = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        bufsize=1,
    )
    with popen:
        try:
            yield Process(popen)
        finally:
            if popen.poll() is None:
                popen.kill()


def on_a_terminal(*arguments: str, folder: Path, columns: int = 80, typed: str = "", **more: str) -> Ran:
    """Run a command with a terminal before it, at which something may be typed in advance; `out` is all that the terminal showed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(ours, (50, columns))
    popen = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=environment(folder, TERM="xterm-256color", **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return Ran(popen.wait(PATIENCE), shown.decode(), "")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the last program on it has ended
        return b""
