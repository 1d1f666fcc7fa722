"""Usage by SQL from a command: through the socket of a running gateway, or from the file itself where no gateway answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...call.errors import CallerFault, SpangateError
from ...exporters.usage.recorder import SpoolRecorder
from ...exporters.usage.settings import Price, Usage
from ...exporters.usage.sql import Answer, Parameters
from ..local_socket import LONGEST, reachable, socket_path
from .failure import Failure, unusable
from .rows import plain
from .written import Written, written

PATIENCE = 60.0  # seconds for an answer: a query has ten, and may wait for others
HELD = 3.0  # seconds for which a file that another process holds is tried again


@dataclass(frozen=True, slots=True)
class Place:
    """Where usage lies."""

    usage: Usage
    prices: tuple[Price, ...]
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.usage.path


def place_of(file: Path | None, environ: Mapping[str, str]) -> Place:
    """By the configuration asked for, or that of the working directory; without any, spangate.duckdb here.

    Raises:
        Failure: the configuration keeps no usage.
        ConfigMistakes: it can't be read.
    """
    return place_in(written(file, environ))


def place_in(config: Written | None) -> Place:
    """By a configuration that is read already.

    Raises:
        Failure: it keeps no usage.
    """
    if config is None:
        return Place(Usage(), (), Path())
    usage = config.usage
    if not usage.enabled:
        raise unusable(f"{config.path} keeps no usage: take `usage: {{enabled: false}}` out of it and restart the gateway")
    return Place(usage, tuple(config.prices), config.folder)


def ask(place: Place, sql: str, parameters: Parameters = (), *, patience: float = HELD) -> Answer:
    """One query, as anybody may ask it who may read the file.

    Raises:
        Failure: it can't be run, or nobody can be asked.
    """
    logging.getLogger("spangate").addHandler(logging.NullHandler())  # what goes wrong is told in one line, below
    until = time.monotonic() + patience
    while True:
        answer = _from_gateway(socket_path(place.path), sql, parameters)
        if answer is None:
            answer = _from_file(place, sql, parameters, patient=time.monotonic() < until)
        if answer is not None:
            return answer
        time.sleep(0.2)


def ask_gateway(place: Place, sql: str, parameters: Parameters = ()) -> Answer:
    """One query to a gateway that runs.

    Raises:
        Failure: none does, or it can't be run.
    """
    path = socket_path(place.path)
    answer = _from_gateway(path, sql, parameters)
    if answer is None:
        raise Failure(f"no gateway answers at {path}: start one with `spangate serve`")
    return answer


def ask_page(place: Place, method: str, path: str) -> list[dict[str, Any]]:
    """What a gateway that runs lists at a path of its own.

    Raises:
        Failure: none does, or it can't say.
    """
    listed: list[dict[str, Any]] = ask_whole_page(place, method, path)["data"]
    return listed


def ask_whole_page(place: Place, method: str, path: str, *, patience: float = PATIENCE) -> dict[str, Any]:
    """The same with what stands beside the list, within so many seconds.

    Raises:
        Failure: as ask_page.
    """
    at = socket_path(place.path)
    answer = _exchanged(at, method, path, None, patience)
    if answer is None:
        raise Failure(f"no gateway answers at {at}: start one with `spangate serve`")
    status, body = answer
    if status != 200:
        raise _failed(_message(status, body), usable=True)
    page: dict[str, Any] = json.loads(body)
    return page


def running(place: Place) -> bool:
    """Whether a gateway answers there."""
    path = socket_path(place.path)
    return len(os.fsencode(path)) <= LONGEST and path.exists() and reachable(path)


class _Line(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, patience: float) -> None:
        super().__init__("spangate", timeout=patience)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.fspath(self._path))


def _from_gateway(path: Path, sql: str, parameters: Parameters) -> Answer | None:
    """None: no gateway answers there."""
    answer = _exchanged(path, "POST", "/admin/sql", json.dumps({"sql": sql, "params": parameters}))
    return None if answer is None else _read(*answer)


def _exchanged(path: Path, method: str, asked: str, body: str | None, patience: float = PATIENCE) -> tuple[int, bytes] | None:
    """Status and body; None: no gateway answers there."""
    if len(os.fsencode(path)) > LONGEST:
        return None
    line = _Line(path, patience)
    try:
        line.connect()
    except (FileNotFoundError, ConnectionRefusedError):
        line.close()
        return None
    except PermissionError:
        line.close()
        raise Failure(f"{path} belongs to another user: run this as the one who runs the gateway") from None
    try:
        line.request(method, asked, body, {"content-type": "application/json"} if body is not None else {})
        reply = line.getresponse()
        return reply.status, reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise Failure(f"the gateway at {path} gave no answer ({str(error) or type(error).__name__}): try again") from None
    finally:
        line.close()


def _read(status: int, body: bytes) -> Answer:
    if status == 200:
        return msgspec.json.decode(body, type=Answer)
    raise _failed(_message(status, body), usable=status != 400)


def _message(status: int, body: bytes) -> str:
    error: Any = {}
    with suppress(ValueError, KeyError):
        error = json.loads(body)["error"]
    return str(error.get("message") or f"the gateway answered {status}")


def _failed(message: str, *, usable: bool) -> Failure:
    """In one line; DuckDB's words have several."""
    line = plain(" ".join(message.split()))
    return Failure(line) if usable else unusable(line)


def _from_file(place: Place, sql: str, parameters: Parameters, *, patient: bool) -> Answer | None:
    """None: another process has it just now."""
    path = place.path
    if not path.exists() and not path.with_name(f"{path.name}.spool").exists():
        raise Failure(f"{path} isn't there yet: a gateway makes it when it starts (`spangate serve`)")
    recorder = SpoolRecorder(place.usage, place.prices, folder=place.folder)
    try:
        return asyncio.run(_asked(recorder, sql, parameters))
    except CallerFault as error:
        raise _failed(error.message, usable=False) from None
    except SpangateError:
        state = recorder.state
        if state.holder is None or not patient:
            raise _unread(path, recorder) from None
        return None


async def _asked(recorder: SpoolRecorder, sql: str, parameters: Parameters) -> Answer:
    await recorder.start()
    try:
        return await recorder.sql.query(sql, parameters)
    finally:
        await recorder.aclose()


def _unread(path: Path, recorder: SpoolRecorder) -> Failure:
    state = recorder.state
    if state.holder is not None:
        return Failure(f"{path} is held by process {state.holder}, which answers no questions here: stop it, or ask it by POST /admin/sql")
    return Failure(f"{path} can't be opened: {state.problem or 'try again'}")
