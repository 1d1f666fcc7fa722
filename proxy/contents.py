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

from .mistakes import ConfigMistakes, Mistake

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


def told_of(path: Path, file: str, *, piped: bool = False) -> tuple[bytes, int]:
    """As `content_of`, and not more than MAX_BYTES. `file` is what mistakes call it.

    Raises:
        FileNotFoundError: there is none, which means something else to each who asks.
        ConfigMistakes: it can't be read, or is too large.
    """
    try:
        found, mode = content_of(path, piped=piped)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigMistakes([Mistake(file, 0, 0, "", f"can't be read: {error.strerror}")]) from error
    if len(found) > MAX_BYTES:
        raise ConfigMistakes([Mistake(file, 0, 0, "", f"is larger than {MAX_BYTES // 1024**2} MiB")])
    return found, mode


def text_of(content: bytes, file: str) -> str:
    """
    Raises:
        ConfigMistakes: it isn't UTF-8; where, and which byte.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise ConfigMistakes([Mistake(file, line, column, "", f"is not UTF-8 (byte 0x{content[error.start]:02x})")]) from None


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
