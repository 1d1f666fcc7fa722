"""`spangate stop` and `spangate resume`: kill switches, turned in the file that gateways look at, and proven at the one that runs."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...call.rules import fits_glob
from .. import keys_file, stops_file
from ..config import DEFAULT_FILE
from ..local_socket import socket_path
from ..mistakes import did_you_mean, quoted
from ..stops_file import TooMany, stops_path, switch_of
from .asking import Place, ask_whole_page, place_in, running
from .failure import Failure, unusable
from .rows import plain
from .written import Written, written

PATIENCE = 3.0  # seconds in which a gateway that runs must hold to what was said; it takes one at the most
PAGE = "/admin/stops"


def stop(file: Path | None, switch: str, environ: Mapping[str, str], *, patience: float = PATIENCE) -> int:
    """Turn a kill switch on. A gateway that runs has `patience` seconds to hold to it.

    Raises:
        Failure: there is nothing of that name, or it can't be turned.
        ConfigMistakes: a file can't be read.
    """
    config, place = _here(file, environ)
    _check(switch)
    _known(switch, config)
    before = _turned(place, switch, stopped=True)
    problem = _proven(place, switch, stopped=True, patience=patience)
    if before is not None and before.stopped:
        _say(f"{switch} is stopped already, since {before.at:%Y-%m-%d %H:%M:%S}Z", place, problem)
    else:
        ending = f"`spangate resume {shlex.quote(switch)}` ends it"
        _say(f"stopped {switch}: new calls get 403 `stopped`, those under way go on; {ending}", place, problem)
    return 0


def resume(file: Path | None, switch: str, environ: Mapping[str, str]) -> int:
    """Turn a kill switch off.

    Raises:
        Failure: it isn't on, or it can't be turned.
        ConfigMistakes: a file can't be read.
    """
    _, place = _here(file, environ)
    _check(switch)
    on = [row["switch"] for row in _on(place)]
    if switch not in on:
        hint = did_you_mean(switch, on) or (f"; stopped are: {', '.join(on[:10])}{', …' if len(on) > 10 else ''}" if on else "")
        raise unusable(f"{quoted(switch)} is not stopped{hint or ': nothing is'}")
    _turned(place, switch, stopped=False)
    _say(f"resumed {switch}", place, _proven(place, switch, stopped=False, patience=PATIENCE))
    return 0


def listed(file: Path | None, environ: Mapping[str, str]) -> int:
    """List what is stopped: as the running gateway knows it, or without one by the file.

    Raises:
        Failure: nobody knows.
        ConfigMistakes: a file can't be read.
    """
    _, place = _here(file, environ)
    rows = _on(place)
    if not rows:
        print("nothing is stopped")  # noqa: T201
        return 0
    width = max(len(row["switch"]) for row in rows)
    lines = [(row["switch"], f"{datetime.fromisoformat(row['since']):%Y-%m-%d %H:%M:%S}Z") for row in rows]
    for switch, since in [("STOPPED", "SINCE"), *lines]:
        print(plain(f"{switch:<{max(width, 7)}}  {since}"))  # noqa: T201
    return 0


def _here(file: Path | None, environ: Mapping[str, str]) -> tuple[Written | None, Place]:
    """The configuration, and where its switches lie, whether or not it keeps usage.

    Raises:
        Failure: there is no configuration, nor a gateway that runs without one.
    """
    config = written(file, environ)
    usage = config.usage if config else place_in(None).usage
    place = Place(usage, (), config.folder if config else Path())
    if config is None and not running(place):
        raise unusable(f"there is no {DEFAULT_FILE} here, and no gateway answers at {socket_path(place.path)}: -c names the file")
    return config, place


def _check(switch: str) -> None:
    try:
        switch_of(switch)
    except ValueError as error:
        raise unusable(str(error)) from None


def _known(switch: str, config: Written | None) -> None:
    """Nobody should believe at night that they have stopped what is only written almost so.

    Raises:
        Failure: there is nothing of that name.
    """
    scope, _, name = switch.partition(":")
    if scope == "model":
        _one_of(switch, scope, name, _models(config, name))
    elif scope == "provider":
        _one_of(switch, scope, name, config.providers if config else ["openai"])
    elif config is None or not config.teams:
        raise unusable(f"{switch}: there are no teams{f' in {config.path}' if config else ''}; stop a model or a provider")
    else:
        team, _, key = name.partition("/")
        _one_of(switch, "team", team, config.teams)
        if scope == "key":
            stored = [held.name for owner, held in keys_file.listed(config.keys_path) if owner == team]
            own = [held.name for owner, held in config.own_keys() if owner == team]
            _one_of(switch, "key", key, [*own, *stored])


def _models(config: Written | None, name: str) -> list[str]:
    """Names that callers or providers know, `name` among them if a call could be for it."""
    if config is None:
        return [name]
    known = [*config.models, *(model for _, model in config.targets if model)]
    routed = config.may_answer(name) or any(fits_glob(name, each) for each in known)
    return [*known, name] if routed else known


def _one_of(switch: str, what: str, name: str, known: Iterable[str]) -> None:
    names = list(dict.fromkeys(known))
    if name not in names:
        there = f"; there are: {', '.join(sorted(names)[:10])}{', …' if len(names) > 10 else ''}" if names else "; there are none"
        raise unusable(f"{switch}: no {what} {quoted(name)}{did_you_mean(name, names) or there}")


def _turned(place: Place, switch: str, *, stopped: bool) -> stops_file.Turn | None:
    path = stops_path(place.path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return stops_file.turn(path, switch, stopped=stopped, now=datetime.now(UTC))
    except TooMany as error:
        raise unusable(str(error)) from None
    except OSError as error:
        raise Failure(f"{path} can't be written ({error.strerror}): run this as the one who runs the gateway") from error


def _on(place: Place) -> list[dict[str, Any]]:
    if running(place):
        rows: list[dict[str, Any]] = ask_whole_page(place, "GET", PAGE, patience=PATIENCE)["data"]
        return rows
    turns = stops_file.load(stops_path(place.path))
    return [{"switch": switch, "since": turn.at.isoformat()} for switch, turn in sorted(turns.items()) if turn.stopped]


def _proven(place: Place, switch: str, *, stopped: bool, patience: float) -> str | None:
    """What the running gateway has to say beside that it holds to it: nothing, mostly. None: no gateway answers.

    Raises:
        Failure: it doesn't hold to it.
    """
    until = time.monotonic() + patience
    while running(place):
        page = _asked(place, switch, patience)
        problem = str(page.get("problem") or "")
        if (switch in {row["switch"] for row in page["data"]}) == stopped:
            return problem
        if time.monotonic() > until:
            told = f"is written to {stops_path(place.path)}, and the gateway doesn't hold to it: {problem or 'its log says why'}"
            raise Failure(plain(f"{switch} {told}"))
        time.sleep(0.1)
    return None


def _asked(place: Place, switch: str, patience: float) -> dict[str, Any]:
    """
    Raises:
        Failure: a gateway that hangs doesn't say what it holds to. Whoever stops something at night should know what is done all the same.
    """
    try:
        return ask_whole_page(place, "GET", PAGE, patience=patience)
    except Failure as failure:
        raise Failure(plain(f"{switch} is written to {stops_path(place.path)}, but {failure.message}"), failure.code) from None


def _say(done: str, place: Place, problem: str | None) -> None:
    print(plain(done), file=sys.stderr)  # noqa: T201
    if problem is None:
        told = f"no gateway answers at {socket_path(place.path)}: one that runs on this database all the same sees it within a second"
        print(plain(told), file=sys.stderr)  # noqa: T201
    elif problem:
        print(plain(f"warning: {problem}"), file=sys.stderr)  # noqa: T201
