"""`spangate serve`: which configuration runs, who may call it, and what is said about both."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ... import __version__
from ...exporters.aside import Aside
from ...exporters.console import Console
from .. import config as configuration
from ..app import App, Setting, run
from ..callers import check_keys, check_reach, valid_keys
from ..config import DEFAULT_FILE, Config, Kinds
from ..listener import ask_for_files
from ..server import Address
from ..settings import Server
from ..telling import Telling, telling_of
from .choices import Level
from .failure import Failure, unusable
from .logs import log_to
from .words import count


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for. `everyone`: a gateway without keys answers more than this machine."""

    file: Path | None = None
    host: str | None = None
    port: int | None = None
    everyone: bool = False
    level: Level = Level.info


class Told(NamedTuple):
    """Where traces and rows go, in words."""

    traces: str
    rows: str


def serve(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Run the gateway until it is told to stop; the exit code.

    Raises:
        Failure: it can't begin.
        ConfigMistakes: the configuration can't be used.
    """
    os.umask(0o077)  # what DuckDB puts beside the database names teams and users too
    log = Aside(sys.stderr)
    log_to(log, wanted.level)
    try:
        return _served(wanted, environ, log)
    finally:
        log.finish()


def _served(wanted: Wanted, environ: Mapping[str, str], log: Aside) -> int:
    check_address(wanted)
    kinds = Kinds()
    config = configured(wanted.file, environ, kinds)
    host = wanted.host or config.server.host
    check_callers(config, host, everyone=wanted.everyone)
    console = Console(color=False if environ.get("NO_COLOR") else None)
    try:
        telling = telling_of(config, environ, console)
    except ValueError as error:
        raise unusable(str(error)) from None
    setting = Setting(
        telling.recorder,
        environ,
        everywhere=wanted.everyone,
        detailed=telling.exporting is not None,
        usage=telling.usage,
        measuring=telling.measuring,
        kinds=kinds,
    )
    told = Told(telling.traces, telling.rows)

    def ready(address: Address) -> None:
        log.write("".join(f"{line}\n" for line in first_lines(config, address, everyone=wanted.everyone, told=told)))

    ask_for_files()
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        try:
            code = runner.run(_serve(config, host, wanted.port, setting, ready))
            log.write(f"stopped; {last_words(telling)}\n")
            return code
        except OSError as error:
            raise _no_address(error, host, config.server.port if wanted.port is None else wanted.port) from error


async def _serve(config: Config, host: str, port: int | None, setting: Setting, ready: Callable[[Address], None]) -> int:
    try:
        app = App(config, setting)
    except ValueError as error:  # a proxy that the environment names
        raise unusable(str(error)) from None
    return await run(app, host=host, port=port, ready=ready)


def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """The quickest event loop there is here."""
    if sys.platform == "win32":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def check_address(wanted: Wanted) -> None:
    """`--host` and `--port` are what the file may say too.

    Raises:
        Failure: they aren't.
    """
    given = {name: value for name, value in (("host", wanted.host), ("port", wanted.port)) if value is not None}
    try:
        Server.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        raise unusable(f"--{wrong['loc'][0]}: {wrong['msg'].removeprefix('Value error, ')}") from None


def configured(file: Path | None, environ: Mapping[str, str], kinds: Kinds) -> Config:
    """The file asked for, or spangate.yaml of the working directory, or OPENAI_API_KEY alone.

    Raises:
        Failure: there is none of these.
        ConfigMistakes: the file can't be used.
    """
    if file is not None or Path(DEFAULT_FILE).exists():
        return configuration.load(file or DEFAULT_FILE, environ=environ, kinds=kinds)
    if not environ.get("OPENAI_API_KEY", "").strip():
        raise unusable(
            f"there is neither a {DEFAULT_FILE} here nor OPENAI_API_KEY: `spangate init` writes the file, `spangate demo` needs neither"
        )
    return configuration.from_environment(environ, kinds)


def check_callers(config: Config, host: str, *, everyone: bool) -> None:
    """Nobody could call, or people could whom nobody meant: say so before there is a port.

    Raises:
        Failure: it is so.
    """
    try:
        check_keys(config, datetime.now(UTC))
        check_reach(host, teams=bool(config.settings.teams), everywhere=everyone)
    except ValueError as error:
        raise unusable(str(error)) from None


def first_lines(config: Config, address: Address, *, everyone: bool, told: Told) -> Iterator[str]:
    """Where it listens, who may call, where calls are told, which file; and what to paste."""
    yield f"spangate {__version__} listens on {address.url}/v1"
    yield f"  callers  {callers(config, everyone=everyone)}"
    yield "  calls    one line each on stdout"
    yield f"  traces   {told.traces}"
    yield f"  usage    {told.rows}"
    yield f"  file     {_file(config)}"
    for warning in config.warnings:
        yield str(warning)
    if everyone and config.settings.teams:
        yield "warning: --open changes nothing: there are teams, so callers need a key"
    elif everyone:
        yield "warning: --open: whoever reaches this address spends your provider's key"
    yield f"export OPENAI_BASE_URL={reachable(address).url}/v1"


def last_words(telling: Telling) -> str:
    """What of the calls that came is told nowhere, or not yet."""
    lost = []
    usage, exporting = telling.usage, telling.exporting
    if usage is not None and (rows := usage.spooling.lost + usage.state.broken):
        lost.append(count(rows, "row"))
    if exporting is not None and (items := exporting.counts.lost):
        lost.append(f"{count(items, 'item')} of telemetry")
    told = f"lost: {', '.join(lost)}" if lost else "nothing lost"
    if usage is not None and usage.state.problem:
        return f"{told}; rows wait in {usage.spool.folder} for the next start"
    return told


def callers(config: Config, *, everyone: bool) -> str:
    """Who may call, in words."""
    if config.settings.teams:
        held = valid_keys(config, datetime.now(UTC))
        return f"{count(len(held), 'key')} of {count(len({each.team for each in held}), 'team')}"
    return "open to everyone, with any key or none" if everyone else "open to programs on this machine, with any key or none"


def _file(config: Config) -> str:
    if config.path is None:
        return "none: every model goes to OpenAI (`spangate init` writes one)"
    return f"{config.path}, a pipe that was read once" if config.piped is not None else f"{config.path}, a change is taken within 2 s"


def reachable(address: Address) -> Address:
    """An address to paste: one that listens everywhere is reached here by loopback."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - told apart, not listened on
    return Address(everywhere.get(address.host, address.host), address.port)


def _no_address(error: OSError, host: str, port: int) -> Failure:
    if error.errno == errno.EADDRINUSE:
        return Failure(f"{host}:{port} is taken, perhaps by another spangate (`lsof -i :{port}` shows it): choose another with --port")
    if error.errno == errno.EACCES:
        return Failure(f"this user may not listen on port {port}: choose one above 1023 with --port")
    return Failure(f"can't listen on {host}:{port} ({error.strerror or error}): choose another with --host and --port")
