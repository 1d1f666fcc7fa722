"""Files that commands write and a gateway reads: replaced whole, so that a reader sees the old one or the new one, and changed by one
writer at a time, so that two commands at once lose nothing.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Alone with the file at `path` among those who ask so. The lock is a file of its own, for the file itself is replaced; it stays,
    else two could hold it.

    Raises:
        OSError: the lock can't be had.
    """
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write `text` to a temporary file beside it, and put that in its place, on the disk too. Through a symbolic link, not over it.

    Raises:
        OSError: it can't be written; then it is as it was.
    """
    place = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    written_to = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written_to.chmod(mode)
        written_to.replace(place)
    except OSError:
        written_to.unlink()
        raise
    _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
