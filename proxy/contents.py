"""What files of the configuration hold, as bytes: so many, within so much time, and of nothing that may never end.

A device has no end and a pipe may have no writer: either would hold up whoever reads it, and with it every later change. What is typed
on a command line may be a pipe all the same, such as a shell's `<(…)`; what is followed while the gateway runs may not.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path
from time import monotonic

MAX_BYTES = 4 * 1024 * 1024
PATIENCE = 10.0  # seconds for all that is written to a pipe
_NO_FOLDERS = {Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd")}


def content_of(path: Path, *, piped: bool = False, patience: float = PATIENCE) -> tuple[bytes, int]:
    """What a file holds, up to a byte more than MAX_BYTES, and its mode with its type. `piped`: it may be a pipe too, whose writer has
    `patience` seconds.

    Raises:
        OSError: it can't be read.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return file.read(MAX_BYTES + 1), mode
        if not piped or not stat.S_ISFIFO(mode):
            raise OSError(errno.EINVAL, "it is neither a file nor a pipe" if piped else "it is not a file")
        return _from_pipe(file.fileno(), patience), mode


def _from_pipe(descriptor: int, patience: float) -> bytes:
    """What is written to it until its last writer has closed it."""
    until = monotonic() + patience
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    found = b""
    while len(found) <= MAX_BYTES:
        if not ready.poll(max(until - monotonic(), 0) * 1000):
            raise OSError(errno.ETIMEDOUT, f"not all of it was written within {patience:g} s")
        try:
            piece = os.read(descriptor, 1 << 16)
        except BlockingIOError:  # another reader was quicker
            continue
        if not piece:
            break
        found += piece
    return found


def folder_of(path: Path) -> Path:
    """What relative paths in the file at `path` are relative to. A pipe or a standard stream has no folder: that is the working one."""
    return Path() if path.parent in _NO_FOLDERS else path.parent
