"""Whether the gateway's port is free, or a gateway answers there already: then what it says of itself, and what it has lost."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..local_socket import LONGEST
from ..server import Address
from .doctor_findings import Finding, ok, problem, warning
from .serve import reachable
from .words import count

MOST = 64 << 10  # bytes of an answer
STATES = ("ready", "draining", "replaying", "state_unavailable")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that runs, by what its /readyz says."""

    place: str
    told: dict[str, Any]

    @property
    def usage_problem(self) -> str:
        return str(self.told.get("usage") or "")


async def by_socket(path: Path | None, patience: float) -> Gateway | None:
    """The gateway that listens at the socket beside the database, if one does."""
    if path is None or len(os.fsencode(path)) > LONGEST:
        return None
    try:
        async with asyncio.timeout(patience):
            told = await _readyz(*await asyncio.open_unix_connection(path))
    except (OSError, TimeoutError):
        return None
    return Gateway(str(path), told) if told else None


async def by_port(address: Address, patience: float) -> Gateway | None:
    """The gateway that listens at an address, if one does."""
    if not address.port:
        return None
    there = reachable(address)
    try:
        async with asyncio.timeout(patience):
            told = await _readyz(*await asyncio.open_connection(there.host, there.port))
    except (OSError, TimeoutError):
        return None
    return Gateway(there.url, told) if told else None


async def _readyz(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
    """What it says, with its status; nothing where that is no gateway's."""
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while len(answer) < MOST and (piece := await reader.read(MOST)):
            answer += piece
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    ours = head.startswith(b"HTTP/1.1 ") and isinstance(told, dict) and told.get("status") in STATES and "config_version" in told
    return told if ours else {}


async def port(address: Address, gateway: Gateway | None) -> Finding:
    """Whether a gateway could listen, or which one does."""
    name = f"{address.host}:{address.port}"
    if gateway is not None and gateway.place == reachable(address).url:
        return ok("port", f"{name} is taken by the gateway that runs")
    error = await _bind_error(address)
    if error is None:
        return ok("port", "any free one is taken" if address.port == 0 else f"{name} is free")
    if isinstance(error, socket.gaierror):
        return problem("port", f"{address.host} does not resolve", "set server.host to an address of this machine")
    if error.errno == errno.EADDRINUSE:
        return problem(
            "port", f"{name} is taken, and not by a gateway", f"`lsof -i :{address.port}` shows by whom; or choose another server.port"
        )
    if error.errno == errno.EACCES:
        return problem("port", f"this user may not listen on {name}", "choose a server.port above 1023")
    return problem("port", f"nobody can listen on {name} ({error.strerror or error})", "set server.host to an address of this machine")


async def _bind_error(address: Address) -> OSError | None:
    """Why the address can't be had. It is bound, as the gateway does, and let go."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(place)
    except OSError as error:
        return error
    return None


def state(gateway: Gateway | None, version: str | None) -> Iterator[Finding]:
    """What a gateway that runs says of itself. `version`: that of the configuration on disk, if that can be used."""
    if gateway is None:
        return
    told = gateway.told
    status = told["status"]
    place = f"the one at {gateway.place}"
    yield ok("gateway", f"{place} is ready") if status == "ready" else warning("gateway", f"{place} is {status}", "ask again in a moment")
    if isinstance(stopped := told.get("stopped"), int) and stopped:
        yield warning("stopped", f"kill switches that are on: {stopped}", "`spangate stop` lists them, `spangate resume` ends one")
    if trouble := told.get("switches"):
        yield problem("stopped", f"kill switches are not known everywhere: {str(trouble)[:300]}", "its log says since when")
    if failed := told.get("config_reload_failed"):
        yield problem("reload", f"it kept its configuration, for {str(failed)[:300]}", "mend that; it is taken within 2 s")
    elif version is not None and told["config_version"] != version:
        running = str(told["config_version"])[:40]
        yield warning(
            "reload", f"it runs configuration {running}, and the file is {version}", "its log says why, or it runs with another file"
        )
    yield from losses(told)


def losses(told: dict[str, Any]) -> Iterator[Finding]:
    """What has been lost since it started, as it counts."""
    dropped = told.get("telemetry_dropped")
    spans = dropped if isinstance(dropped, dict) else {}
    rows = {name: told[name] for name in ("usage_lost", "usage_broken") if isinstance(told.get(name), int) and told[name]}
    for name, number in spans.items():
        signal, _, reason = str(name).partition(".")
        mend = "see the line traces" if signal == "traces" else "see its log"
        yield warning("lost", f"{count(number, 'item')} of {signal[:20]} since it started ({reason[:20].replace('_', ' ')})", mend)
    if "usage_lost" in rows:
        yield warning(
            "lost", f"the rows of {count(rows['usage_lost'], 'call')} since it started", "the spool could not be written: see its log"
        )
    if "usage_broken" in rows:
        broken = f"{count(rows['usage_broken'], 'line')} of usage that were broken, or that the database refused"
        yield warning("lost", broken, "the spool keeps them as .bad files")
    if not spans and not rows:
        yield ok("lost", "nothing since it started")
