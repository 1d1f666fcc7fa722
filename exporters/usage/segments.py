"""The files of the spool: what they are called, which of them may be read, and whose writer still lives.

`{instance}-{number}.open` is being written, `.seg` is whole, `.bad` held a broken line and is kept for people to look at;
`{instance}.lock` is locked for as long as the process that writes under that name lives. Names sort by the start of the process, then
in the order of writing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import getrandbits

from ...call.clock import Clock

NAME = re.compile(r"(?P<instance>[0-9a-f]{16}-[0-9a-f]{8})-(?P<number>[0-9]{8})\.(?P<state>open|seg)")
KEPT = 8  # broken segments that are kept, the newest
LARGEST = 64 * 2**20  # bytes; what is larger is none of ours


@dataclass(frozen=True, order=True, slots=True)
class Segment:
    """One file of the spool. `name` is the same before and after it is sealed."""

    name: str
    instance: str
    path: Path
    sealed: bool


def new_instance(clock: Clock) -> str:
    """A name for this start of the process; later ones sort after it."""
    return f"{clock.wall():016x}-{getrandbits(32):08x}"


def segment_path(folder: Path, instance: str, number: int) -> Path:
    return folder / f"{instance}-{number:08d}.open"


def found(folder: Path) -> list[Segment]:
    """The segments of a folder in order. A folder that isn't there has none."""
    matches = [match for name in sorted(_names(folder)) if (match := NAME.fullmatch(name))]
    return [Segment(m[0].rpartition(".")[0], m["instance"], folder / m[0], m["state"] == "seg") for m in matches]


def instances(folder: Path) -> set[str]:
    """Every process whose lock or segments are still here."""
    locks = {name.removesuffix(".lock") for name in _names(folder) if name.endswith(".lock")}
    return locks | {segment.instance for segment in found(folder)}


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def seal(path: Path) -> Path:
    """Nothing more will be written to it."""
    sealed = path.with_suffix(".seg")
    path.rename(sealed)
    return sealed


def content(segment: Segment) -> bytes | None:
    """What is in it; None if it is none of ours, or can't be read."""
    try:
        return segment.path.read_bytes() if segment.path.stat().st_size <= LARGEST else None
    except OSError:
        return None


def set_aside(segment: Segment) -> None:
    """Keep it for people; of these only the newest stay."""
    segment.path.rename(segment.path.with_suffix(".bad"))
    for old in sorted(segment.path.parent.glob("*.bad"))[:-KEPT]:
        old.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of all segments, the broken ones too."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # moved meanwhile
                total += entry.stat().st_size
    return total


class Lease:
    """This process lives: a lock on a file of its own, which the kernel lets go when the process is gone, however it went."""

    def __init__(self, folder: Path, instance: str) -> None:
        """
        Raises:
            OSError: the folder can't be written.
        """
        self.path = folder / f"{instance}.lock"
        fresh = folder / f"{instance}.new"
        self._fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            fresh.rename(self.path)  # only now may others ask whether it is locked
        except OSError:
            os.close(self._fd)
            raise

    def stands(self) -> bool:
        """Whether others can still see it: its file may have been taken away with the folder."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._fd))
        except OSError:
            return False

    def release(self) -> None:
        """Others may take over what is left."""
        with suppress(OSError):  # there may be no folder any more
            self.path.unlink(missing_ok=True)
        os.close(self._fd)


def is_alive(folder: Path, instance: str) -> bool:
    """Whether the process that wrote under this name still runs."""
    try:
        fd = os.open(folder / f"{instance}.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def bury(folder: Path, gone: Iterable[str]) -> None:
    """Take away the locks of processes that are gone and have left nothing."""
    for instance in gone:
        with suppress(OSError):
            (folder / f"{instance}.lock").unlink(missing_ok=True)
