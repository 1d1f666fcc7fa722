"""`spangate doctor`: proves the whole way with the configuration at hand, from its file to a provider's answer, a collector and a row.

Here belongs which checks there are and in which order they are told; what each looks at stands in the doctor_… beside this file.
They run at once, each within its patience, and change nothing: what isn't there is not made, no token is spent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...exporters.usage.settings import Usage
from ..callers import check_keys, check_reach, valid_keys
from ..config import Config, Kinds
from ..local_socket import socket_path
from ..mistakes import ConfigMistakes, Mistake
from ..server import Address
from ..session_upstream import ProxyRules, upstream_for
from . import doctor_gateway, doctor_usage
from .check import summary
from .doctor_clock import Reading, clock
from .doctor_findings import Finding, as_json, of_mistake, ok, problem, shown, warning
from .doctor_gateway import Gateway
from .doctor_page import Page
from .doctor_providers import Looked, known, look
from .doctor_traces import Probed, traces
from .failure import FAILED, UNUSABLE, Failure
from .serve import configured, new_loop
from .words import count
from .written import written

PATIENCE = 10.0  # seconds a check


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    file: Path | None = None
    patience: float = PATIENCE
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Ground:
    """What is looked at. `config` None: it can't be used, and then only where the gateway is matters."""

    config: Config | None
    address: Address
    usage: Usage
    folder: Path
    mistakes: Sequence[Mistake] = field(default=())

    @property
    def socket(self) -> Path | None:
        return socket_path(self.folder / self.usage.path) if self.usage.enabled else None


def doctor(wanted: Wanted, environ: Mapping[str, str]) -> int:
    """Look at everything and tell; the exit code: 0 without a problem, 1 with one, 2 if the configuration can't be used.

    Raises:
        Failure: there is no configuration.
        ConfigMistakes: it can't even be read.
    """
    for name in ("spangate", "opentelemetry"):
        logging.getLogger(name).addHandler(logging.NullHandler())  # what is wrong is told below
    began = time.monotonic()
    ground = ground_of(wanted.file, environ)
    page = None if wanted.as_json else Page()
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        findings = runner.run(Round(ground, environ, wanted.patience, page).run())
    if page is None:
        print(as_json(findings))  # noqa: T201
    else:
        page.end(findings, time.monotonic() - began)
    if ground.config is None:
        return UNUSABLE
    return FAILED if any(finding.level == "problem" for finding in findings) else 0


def ground_of(file: Path | None, environ: Mapping[str, str]) -> Ground:
    """The configuration asked for, else that of the working directory, else the one that needs no file."""
    try:
        config = configured(file, environ, Kinds())
    except ConfigMistakes as error:
        return _broken(file, environ, error)
    server = config.server
    return Ground(config, Address(server.host, server.port), config.settings.usage, config.folder)


def _broken(file: Path | None, environ: Mapping[str, str], error: ConfigMistakes) -> Ground:
    """What can be read of a file with mistakes: a gateway that runs has kept an older one, and says so."""
    raw = written(file, environ)
    if raw is None:
        raise error
    usage = Usage(enabled=False)
    with suppress(Failure):
        usage = raw.usage
    return Ground(None, raw.address, usage, raw.folder, error.mistakes)


class Round:
    """One look at everything."""

    def __init__(self, ground: Ground, environ: Mapping[str, str], patience: float, page: Page | None) -> None:
        self._ground = ground
        self._environ = environ
        self._patience = patience
        self._page = page
        self._findings: list[Finding] = []
        self._readings: list[Reading] = []
        self._lists: dict[str, tuple[str, ...]] = {}

    async def run(self) -> list[Finding]:
        """All findings, in the order in which they are told."""
        config = self._ground.config
        self._tell(configuration(self._ground, self._environ))
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(work) for name, work in self._works()}
            await self._told(tasks)
        if config is not None:
            self._tell([clock(self._readings)])
        return self._findings

    def _works(self) -> Iterator[tuple[str, Coroutine[Any, Any, list[Finding]]]]:
        config = self._ground.config
        if config is not None:
            yield from self._of_providers(config)
            yield "the collector", self._traces(config)
        yield "the gateway", self._gateway()

    async def _told(self, tasks: Mapping[str, asyncio.Task[list[Finding]]]) -> None:
        page = self._page
        if page is None:
            for task in tasks.values():
                self._tell(await task)
            return
        with page.waiting(tasks):
            for task in tasks.values():
                while not task.done():
                    page.still(name for name, each in tasks.items() if not each.done())
                    await asyncio.wait([each for each in tasks.values() if not each.done()], return_when=asyncio.FIRST_COMPLETED)
                self._tell(await task)

    def _tell(self, findings: Sequence[Finding]) -> None:
        config = self._ground.config
        told = shown(findings, config.variables if config else {})
        self._findings += told
        if self._page is not None:
            self._page.show(told)

    def _of_providers(self, config: Config) -> Iterator[tuple[str, Coroutine[Any, Any, list[Finding]]]]:
        yield "the providers" if len(config.settings.providers) != 1 else next(iter(config.settings.providers)), self._providers(config)

    async def _providers(self, config: Config) -> list[Finding]:
        try:
            sender, rules = upstream_for(self._environ), ProxyRules.parse(self._environ)
        except ValueError as error:
            return [problem("proxy", str(error))]
        try:
            names = list(config.settings.providers)
            looked: list[Looked] = await asyncio.gather(*(look(name, config, sender, rules, self._patience) for name in names))
        finally:
            await sender.aclose()
        self._lists |= {name: each.models for name, each in zip(names, looked, strict=True)}
        for each in looked:
            self._readings += each.readings
        return [*(finding for each in looked for finding in each.findings), *known(config, self._lists)]

    async def _traces(self, config: Config) -> list[Finding]:
        probed: Probed = await asyncio.to_thread(traces, config.settings.telemetry, self._environ, self._patience)
        self._readings += probed.readings
        return probed.findings

    async def _gateway(self) -> list[Finding]:
        ground = self._ground
        beside, at = await asyncio.gather(
            doctor_gateway.by_socket(ground.socket, self._patience), doctor_gateway.by_port(ground.address, self._patience)
        )
        running: Gateway | None = at or beside
        version = ground.config.version if ground.config else None
        rows = await asyncio.to_thread(doctor_usage.usage, ground.usage, ground.folder, beside, at)
        return [*rows, await doctor_gateway.port(ground.address, at), *doctor_gateway.state(running, version)]


def configuration(ground: Ground, environ: Mapping[str, str]) -> list[Finding]:
    """Whether it can be used, who may call by it, and the files that it names."""
    config = ground.config
    if config is None:
        return [of_mistake(mistake) for mistake in ground.mistakes]
    where = str(config.path) if config.path else "OPENAI_API_KEY alone"
    return [ok("configuration", f"{where} ({summary(config)})"), *map(of_mistake, config.warnings), *_callers(config), *_files(environ)]


def _callers(config: Config) -> Iterator[Finding]:
    teams = config.settings.teams
    try:
        check_reach(config.server.host, teams=bool(teams), everywhere=False)
    except ValueError as error:
        yield problem("callers", str(error))
        return
    if not teams:
        yield ok("callers", "programs on this machine, without a key")
        return
    now = datetime.now(UTC)
    good = valid_keys(config, now)
    for held in config.keys:
        if held not in good:
            told = f"{held.team}/{held.key.name} has expired"
            yield warning("keys", told, f"spangate keys new {held.team}, and spangate keys revoke {held.team}/{held.key.name}")
    try:
        check_keys(config, now)
        yield ok("keys", f"{count(len(good), 'key')} of {count(len({held.team for held in good}), 'team')}")
    except ValueError as error:
        yield problem("keys", str(error))


def _files(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Python takes a bundle of certificates that isn't there for none, and then trusts nobody."""
    path = environ.get("SSL_CERT_FILE", "")
    if path and not os.access(path, os.R_OK):
        yield problem(
            "certificates", f"SSL_CERT_FILE names {path}, which can't be read", "correct or unset it: without it the system's are taken"
        )
