"""Records to append-only segments on disk: on the event loop, one `write(2)` a line, and never a failed call.

What can't be written is counted, and told once in a while. A segment is sealed by size or by age; sealing, and asking the
disk for certainty, is done in the writer's thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ...call.clock import SYSTEM, Clock
from ...call.seen import Seen
from ..seldom import Seldom
from . import segments, spool_lines

log = logging.getLogger("spangate.usage")

SEGMENT = 4 * 2**20  # bytes at which a segment is sealed
AGAIN = 0.5  # seconds until a segment that couldn't be made is tried again


@dataclass(frozen=True, slots=True)
class SpoolState:
    """`problem`: why nothing can be written just now (empty: it can). `lost`: how many calls ever have lost the line of their end, and
    with it their row. `bytes`: what waits on disk."""

    problem: str
    lost: int
    bytes: int


class Spool:
    """The appending side. `opened` and `closed` belong to the loop; `seal` and `measure` to the writer's thread.

    `wake` is called when a fresh segment has its first line, and when one is full: there is something to move.
    """

    def __init__(self, folder: Path, *, most: int = 2**30, segment: int = SEGMENT, clock: Clock = SYSTEM) -> None:
        self.folder = folder
        self.instance = segments.new_instance(clock)
        self.wake: Callable[[], None] = _nobody
        self._clock = clock
        self._most = most
        self._segment = segment
        self._lock = Lock()
        self._lease: segments.Lease | None = None
        self._fd = -1
        self._path = folder
        self._size = 0
        self._ends = 0
        self._number = 0
        self._retired: list[tuple[int, Path, int]] = []
        self._waiting = 0
        self._lost = 0
        self._problem = ""
        self._next_try = 0.0
        self._seldom = Seldom(now=clock.mono)

    @property
    def state(self) -> SpoolState:
        return SpoolState(self._problem, self._lost, self._waiting + self._size)

    @property
    def active(self) -> str:
        """The name of the segment that is being written; empty: none is. One that is just being made counts."""
        with self._lock:
            return self._path.stem if self._fd >= 0 else ""

    def opened(self, seen: Seen, holds: Mapping[str, Any] | None = None) -> None:
        """The call is about to be sent upstream for the first time. `holds`: what admission has claimed for it."""
        self._append(spool_lines.opening(seen, holds), end=False)

    def closed(self, seen: Seen) -> None:
        """The call has ended."""
        self._append(spool_lines.closing(seen), end=True)

    def _append(self, line: bytes, *, end: bool) -> None:
        """One write. A disk that fills up may take a piece of a line, which is taken back: a row is lost once, not found broken as well."""
        with self._lock:
            try:
                if self._fd < 0 or self._waiting + self._size + len(line) > self._most:
                    self._make_room(len(line))
                written = os.write(self._fd, line)
                self._size += written
                if written != len(line):
                    self._write_rest(line, written)
            except OSError as error:
                self._lose(error, end=end)
                return
            self._ends += end
            self._problem = ""
            if self._size >= self._segment:
                self._retire()
                self.wake()

    def _make_room(self, size: int) -> None:
        """
        Raises:
            OSError: there is none.
        """
        if self._waiting + self._size + size > self._most:
            raise OSError(f"it holds {self._most} bytes (usage.max_spool) that the database has not taken yet")
        self._begin()

    def _write_rest(self, line: bytes, written: int) -> None:
        """What didn't fit is tried again: only then the system says why, and it need not be a full disk.

        Raises:
            OSError: that; the piece of the line that was written is taken back.
        """
        try:
            while written < len(line):
                more = os.write(self._fd, line[written:])
                self._size += more
                written += more
        except OSError:
            self._take_back(written)
            raise

    def _take_back(self, written: int) -> None:
        try:
            os.ftruncate(self._fd, self._size - written)
            self._size -= written
        except OSError:
            self._retire()  # at the end of a segment a piece is no line

    def _begin(self) -> None:
        """
        Raises:
            OSError: no segment can be made.
        """
        now = self._clock.mono()
        if now < self._next_try:
            raise OSError(self._problem)
        self._next_try = now + AGAIN
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lease is not None and not self._lease.stands():  # else another process took this one for gone, and its segments
            self._lease.release()
            self._lease = None
        if self._lease is None:
            self._lease = segments.Lease(self.folder, self.instance)
        self._number += 1
        self._path = segments.segment_path(self.folder, self.instance, self._number)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._next_try = 0.0
        self._size, self._ends = 0, 0
        self.wake()

    def _lose(self, error: OSError, *, end: bool) -> None:
        """Without its first line alone a call still gets its row."""
        self._lost += end
        self._problem = error.strerror or str(error)
        if end and self._seldom.may():
            log.error(
                "usage: %s can't be written (%s): calls go on without their rows until it can; %d are lost by now",
                self.folder, self._problem, self._lost,
            )  # fmt: skip

    def _retire(self) -> None:
        self._retired.append((self._fd, self._path, self._ends))
        self._waiting += self._size
        self._fd, self._size, self._ends = -1, 0, 0

    def sync(self) -> None:
        """What was written so far is on disk for certain, as far as the disk's word goes. In the writer's thread, which alone closes."""
        with self._lock:
            written = [(fd, path) for fd, path, _ in self._retired] + ([(self._fd, self._path)] if self._fd >= 0 else [])
        for fd, path in written:
            try:
                os.fsync(fd)
            except OSError as error:
                log.warning("usage: the disk doesn't vouch for %s (%s)", path, error.strerror)

    def seal(self, *, sync: bool) -> dict[str, int]:
        """What was written so far lies in sealed segments; if `sync`, for certain. In the writer's thread.

        Returns: their names, and how many calls end in each.
        """
        with self._lock:
            if self._fd >= 0 and self._size:
                self._retire()
            retired, self._retired = self._retired, []
        sealed: dict[str, int] = {}
        for fd, path, ends in retired:
            sealed[path.stem] = ends
            try:
                if sync:
                    os.fsync(fd)
                segments.seal(path)
            except FileNotFoundError:
                self.missing(sealed.pop(path.stem))
            except OSError as error:
                log.warning("usage: %s could not be sealed (%s)", path, error.strerror)
            finally:
                os.close(fd)
        return sealed

    def missing(self, calls: int) -> None:
        """So many calls ended in segments that somebody has taken away. Those that follow go into a folder that is made again."""
        with self._lock:
            self._lost += calls
            if calls and self._seldom.may():
                log.error(
                    "usage: segments were deleted from %s before the database had them (%d calls are lost by now): "
                    "leave what lies there to the gateway", self.folder, self._lost,
                )  # fmt: skip

    def measure(self) -> None:
        """Look at what waits on disk. In the writer's thread, after segments have gone."""
        held = segments.size_of(self.folder)
        with self._lock:
            self._waiting = max(held - self._size, 0)

    def close(self) -> None:
        """Nothing more is written by this process."""
        self.seal(sync=True)
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                self._path.unlink(missing_ok=True)
            if self._lease is not None:
                self._lease.release()
                self._lease = None


def _nobody() -> None:
    """No writer listens."""
