"""Whether rows can be written: the database, its spool, the disk, and what waits. What isn't there yet is not made."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...call.amounts import show_size
from ...exporters.usage import segments
from ...exporters.usage.schema import MIGRATIONS
from ...exporters.usage.settings import Usage
from ...exporters.usage.store import Locked, Trouble, Unfit, version_of
from ..local_socket import LONGEST, socket_path
from .doctor_findings import Finding, off, ok, problem, warning
from .doctor_gateway import Gateway
from .words import count

TIGHT = 100 << 20  # bytes that are left of a disk
NARROW = 1 << 30
REMOTE = re.compile(r"nfs4?|cifs|smb\d*|smbfs|ceph|glusterfs|lustre|beegfs|gpfs|afs|fuse(\..+)?")
"""File systems that others serve. A disk that answers no more fails its writes; a server may leave them waiting for ever."""
_OCTAL = re.compile(r"\\([0-7]{3})")


def usage(settings: Usage, folder: Path, gateway: Gateway | None, other: Gateway | None = None) -> list[Finding]:
    """All of it. `gateway`: the one that answers beside the database, which it then holds; `other`: one that answers at the port."""
    if not settings.enabled:
        return [off("usage", "no rows are kept", "take `usage: {enabled: false}` out for one of each call")]
    path = folder / settings.path
    spool = path.with_name(f"{path.name}.spool")
    return [
        database(path, gateway, other),
        *_socket(path),
        *spooled(spool, settings, gateway),
        *remote(spool, file_system_of(spool)),
        disk(path, shutil.disk_usage(standing(path)).free),
    ]


def database(path: Path, gateway: Gateway | None, other: Gateway | None = None) -> Finding:
    """Whether the writer can have it."""
    if gateway is not None:
        told = gateway.usage_problem
        return (
            problem("database", f"the gateway says: {told[:300]}", "mend that; it tries again")
            if told
            else ok("database", f"{path} is written by the gateway that runs")
        )
    if (wrong := unwritable(path.parent)) is not None:
        return problem("database", f"{path} can't be written ({wrong})", "choose another usage.path, or give this user the right to it")
    if not path.exists():
        return ok("database", f"{path} can be made")
    try:
        os.close(os.open(path, os.O_RDWR))
        version = version_of(path)
    except Locked as error:
        return _held(path, error.pid, other)
    except (Trouble, Unfit) as error:
        return problem("database", f"{path} can't be opened: {error}", "move it away: a new one is made")
    except OSError as error:
        return problem(
            "database", f"{path} can't be written ({error.strerror})", "choose another usage.path, or give this user the right to it"
        )
    if version > len(MIGRATIONS):
        return problem("database", f"{path} was written by a newer spangate", "update this one")
    older = f"; the next start brings it from version {version} to {len(MIGRATIONS)}" if version < len(MIGRATIONS) else ""
    return ok("database", f"{path} can be written{older}")


def _held(path: Path, pid: int | None, other: Gateway | None) -> Finding:
    """Another process has it. That of a gateway is well, even of one whose port and socket nobody finds: it must not be ended."""
    told = f"{path} is held by {f'process {pid}' if pid else 'another process'}"
    if other is not None:
        return ok("database", f"{told}, as by the gateway at {other.place}")
    spool = path.with_name(f"{path.name}.spool")
    if any(segments.is_alive(spool, instance) for instance in segments.instances(spool)):
        return ok("database", f"{told}, as by a gateway that writes the spool and listens elsewhere")
    see = f"`ps -p {pid}` shows what it is" if pid else "see what it is"
    return problem("database", f"{told}, and no gateway answers", f"{see}: leave a gateway alone; rows wait for anything else to end")


def _socket(path: Path) -> Iterator[Finding]:
    if len(os.fsencode(socket_path(path))) > LONGEST:
        yield warning(
            "socket", f"{path} is too long for a socket", "`spangate sql` can't ask while the gateway runs: choose a shorter usage.path"
        )


def spooled(folder: Path, settings: Usage, gateway: Gateway | None) -> Iterator[Finding]:
    """Whether the spool can be written, and what waits there."""
    if (wrong := unwritable(folder)) is not None:
        yield problem("spool", f"{folder} can't be written ({wrong}): calls would leave no rows", "give this user the right to it")
        return
    waiting, size = len(segments.found(folder)), segments.size_of(folder)
    bad = len(list(folder.glob("*.bad")))
    if size > settings.max_spool // 2:
        told = f"{show_size(size)} wait, of at most {show_size(settings.max_spool)}"
        yield warning("spool", told, "what doesn't fit is lost: see the line database")
    elif size and gateway is None:
        yield ok("spool", f"{size:,} bytes in {count(waiting, 'segment')} wait for the next start")
    else:
        yield ok("spool", f"{folder} can be written, and {f'{size:,} bytes' if size else 'nothing'} wait{'' if size else 's'}")
    if bad:
        yield warning("spool", f"{count(bad, 'file')} of rows that could not be read", f"look at them, then delete {folder}/*.bad")


def remote(folder: Path, kind: str) -> Iterator[Finding]:
    """Each call writes to the spool before it is answered, and that waits as long as the file system does."""
    if REMOTE.fullmatch(kind):
        told = f"{folder} lies on {kind}: while whoever serves that hangs, every call does"
        yield warning("spool", told, "let usage.path name a disk of this machine")


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """What the file system is called on which a path lies, or would; empty where the system doesn't tell."""
    place = standing(path).resolve()
    best, kind = -1, ""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        mounted, _, which = line.partition(" - ")
        if len(fields := mounted.split()) > 4 and which:
            point = Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4]))
            if len(point.parts) >= best and place.is_relative_to(point):  # of two at one place the later hides the other
                best, kind = len(point.parts), which.split()[0]
    return kind


def disk(path: Path, free: int) -> Finding:
    """Whether there is room."""
    told = f"{free / 2**30:,.1f} GiB free" if free >= NARROW else f"{free >> 20:,} MiB free"
    if free < TIGHT:
        return problem("disk", f"{told} where {path} lies", "make room: rows are lost when it is full")
    return warning("disk", f"{told} where {path} lies", "make room soon") if free < NARROW else ok("disk", told)


def standing(path: Path) -> Path:
    """The nearest folder above a path that is there."""
    return next((each for each in path.absolute().parents if each.is_dir()), Path("/"))


def unwritable(folder: Path) -> str | None:
    """Why no file can be made in a folder, or the folder itself; None: it can. Nothing is left there."""
    there = folder.absolute()
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryFile(dir=there, prefix=".spangate-"):
            return None
    except OSError as error:
        return error.strerror or str(error)
