"""A gateway put together, from a configuration to a port: start, reload, drain. The demo, `spangate serve` and tests run this."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..call.chain import is_layer, watching_dropped
from ..call.clock import SYSTEM, Clock
from ..call.errors import SpangateError
from ..exporters.metrics.measuring import Measuring
from ..exporters.metrics.sources import BudgetFigures, Sources
from ..exporters.record import Recorder, close
from ..exporters.usage.recorder import SpoolRecorder
from ..policies.ledger.memory import MemoryLedger
from . import books as shared
from . import config as configuration
from .callers import check_reach, loopback_address
from .changes import differences
from .config import Config, Kinds
from .endpoints import Endpoints
from .gateway import Gateway
from .local_socket import LocalSocket
from .mistakes import ConfigMistakes, Mistake
from .pricing import Pricing
from .reload import Reload
from .server import Address, Server
from .session_upstream import upstream_for
from .shared_stops import shared_by
from .standings import estimates, figures
from .stops_file import stops_path
from .switches import Switches
from .telling import models_of
from .upstream import Sender

log = logging.getLogger("spangate.proxy")

COLLECT = 1.0  # seconds that metrics wait for how budgets stand
REPLAY = 10.0  # seconds that the first call may wait for what budgets have used before
SWITCH = 0.001  # seconds that a thread which writes rows or sends spans keeps calls waiting; Python's own 5 ms are many calls


@dataclass(frozen=True, slots=True)
class Setting:
    """What an App is given besides its configuration. `everywhere`: an open gateway answers more than loopback.
    `detailed`: the recorder tells of the parameters of requests too. `usage` keeps the rows
    and `measuring` counts; both are parts of `recorder` as well."""

    recorder: Recorder
    environ: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = SYSTEM
    everywhere: bool = False
    detailed: bool = False
    usage: SpoolRecorder | None = None
    measuring: Measuring | None = None
    kinds: Kinds = field(default_factory=Kinds)


class App:
    """One gateway. `start`, then `drain`."""

    def __init__(self, config: Config, setting: Setting, client: Sender | None = None) -> None:
        self.setting = setting
        self._began = config  # what runs, of the settings that only a restart brings
        self._host = config.server.host
        self._watching = ExitStack()
        self.dropped_layers = 0
        self._restoring: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known: list[BudgetFigures] = []
        self._looked = float("-inf")
        self.client = client or upstream_for(setting.environ)
        self.books = shared.books_for(config, self.client, setting.clock)
        stops = stops_path(config.folder / config.settings.usage.path)
        self.switches = Switches(stops, shared_by(config.settings.state), clock=setting.clock)
        self.endpoints = Endpoints(self._gateway(config), setting.recorder, setting.clock, setting.usage, setting.measuring)
        self.server = Server(self.endpoints, config.server)
        self.socket = self._socket(setting.usage, config) if setting.usage else None
        self.reload = Reload(config, load=self._load, apply=self._apply, refused=self._refused, rekey=self._rekey)
        self._loaded = setting.clock.wall()
        if setting.measuring is not None:
            setting.measuring.watch(
                Sources(
                    resends=lambda: self.client.resends,
                    reload_failed=lambda: bool(self.endpoints.reload_error),
                    loaded=lambda: self._loaded / 1e9,
                    budgets=self._figures,
                    estimates=lambda: estimates(self.books),
                    state_unavailable=lambda: bool(self.books.ledger.problem or shared.foreign(self.books.ledger)),
                    state_lost=lambda: shared.lost(self.books.ledger),
                    refused=lambda: self.server.refused,
                )
            )

    @property
    def config(self) -> Config:
        return self.endpoints.gateway.config

    async def start(self, host: str | None = None, port: int | None = None) -> Address:
        """Listen, and watch the configuration's files.

        Raises:
            OSError: the address can't be had.
            ValueError: anybody could call, and that was not said.
        """
        limits = self.config.server
        self._loop = asyncio.get_running_loop()
        self._host = host or limits.host
        self._check_reach(self.config)
        if self._host != limits.host:  # whether callers are strangers depends on it
            self.endpoints.gateway = self._gateway(self.config)
        try:
            address = await self.server.bind(self._host, limits.port if port is None else port)  # before a database is opened in vain
            self.books.ledger.start()
            if self.setting.usage is not None:
                await self.setting.usage.start()
            if self.config.in_dollars:
                await asyncio.to_thread(Pricing.load)
            await self._restored(REPLAY)
            await self.switches.start()
            await self.server.listen()
            if self.socket is not None:
                await self.socket.start()
        except BaseException:
            await self.drain(0)  # a thread that is at the database would break the interpreter's end
            raise
        if self.config.path is not None:
            self.reload.start()
        _quiet_collector()
        self._watching.enter_context(watching_dropped(self._layer_dropped, of=is_layer, listed=False))
        return address

    async def drain(self, patience: float | None = None) -> None:
        """Finish what runs, within `patience` seconds (`server.drain`), and close everything."""
        await self.server.drain(self.config.server.drain if patience is None else patience)
        await self.reload.stop()
        await self.switches.aclose()
        if self._restoring is not None:
            await asyncio.wait([self._restoring])
        if left := await shared.close(self.books):
            log.error("what %d calls have used is not written to the shared counters; it counts as what was held for them", left)
        await self.client.aclose()
        await asyncio.to_thread(close, self.setting.recorder)
        if self.socket is not None:
            await self.socket.aclose()
        if self.setting.usage is not None:
            await self.setting.usage.aclose()
        self._watching.close()

    def _figures(self) -> list[BudgetFigures]:
        """How budgets stand, for whoever collects metrics in a thread: the ledger belongs to the loop. Several ask at once."""
        if self._loop is None or not self.config.has_budgets:
            return []
        if (now := self.setting.clock.mono()) - self._looked < COLLECT:
            return self._known
        asked = asyncio.run_coroutine_threadsafe(figures(self.endpoints.gateway), self._loop)
        try:
            self._known, self._looked = asked.result(COLLECT), now
        except (TimeoutError, SpangateError):
            asked.cancel()
            return []
        return self._known

    async def _restored(self, patience: float) -> None:
        """Budgets go on where they were, before the first call if that can be known so soon. A gateway without any doesn't wait."""
        if self._restoring is None and self.config.has_budgets:
            self._restoring = asyncio.create_task(self._restore(), name="spangate.budgets")
            await asyncio.wait([self._restoring], timeout=patience)

    async def _restore(self) -> None:
        try:
            await shared.restore(self.books, self.setting.usage)
        except SpangateError as error:
            told = error.detail or error.message
            log.error("budgets begin anew: what was used before can't be read: %s", told)  # noqa: TRY400 - why is said

    def _layer_dropped(self, name: str) -> None:
        self.dropped_layers += 1
        log.error("a layer was dropped unfinished, which some policy caused: %s", name)

    def _socket(self, usage: SpoolRecorder, config: Config) -> LocalSocket:
        return LocalSocket(usage.path, self.endpoints.local, config.server, elsewhere=lambda: usage.state.phase == "locked")

    def _gateway(self, config: Config) -> Gateway:
        setting = self.setting
        return Gateway(
            config,
            self.client,
            clock=setting.clock,
            everywhere=setting.everywhere,
            detailed=setting.detailed,
            inbound=config.server.inbound_trace or ("trust" if loopback_address(self._host) else "link"),
            opening=setting.usage.opened if setting.usage else None,
            books=self.books,
            trouble=self._trouble(),
            switches=self.switches,
        )

    def _trouble(self) -> Callable[[], str] | None:
        """Why budgets can't be kept through a crash just now, where the spool keeps them."""
        usage = self.setting.usage
        if usage is None or not isinstance(self.books.ledger, MemoryLedger):
            return None
        return lambda: usage.spooling.problem

    def _check_reach(self, config: Config) -> None:
        check_reach(self._host, teams=bool(config.settings.teams), everywhere=self.setting.everywhere)

    def _load(self) -> Config:
        config = configuration.again(self.config, environ=self.setting.environ, kinds=self.setting.kinds)
        if config.in_dollars:
            Pricing.load()
        try:
            self._check_reach(config)
        except ValueError as error:
            raise ConfigMistakes([Mistake(str(config.path), 0, 0, "teams", str(error))]) from None
        return config

    def _apply(self, new: Config) -> None:
        old = self.config
        try:
            gateway = self._gateway(new)
        except ValueError as error:  # a file of a provider's that was good a moment ago
            raise ConfigMistakes([Mistake(str(new.path), 0, 0, "providers", str(error))]) from None
        _tell(old, new)
        self.endpoints.waiting = self._began.needs_restart(new)
        for path in self.endpoints.waiting:
            log.warning("configuration: %s waits for a restart", path)
        self.endpoints.gateway = gateway
        self.endpoints.reload_error = ""
        self._loaded = self.setting.clock.wall()
        if self.setting.measuring is not None:
            self.setting.measuring.models = models_of(new)
        self.server.limit(new.server)
        log.info("configuration %s is in use", new.version)
        if self._restoring is None and new.has_budgets:
            self._restoring = asyncio.get_running_loop().create_task(self._restore(), name="spangate.budgets")

    def _rekey(self, config: Config) -> None:
        _tell(self.config, config)
        self.endpoints.gateway = self.endpoints.gateway.rekeyed(config)

    def _refused(self, mistakes: Sequence[Mistake]) -> None:
        first = mistakes[0]
        self.endpoints.reload_error = str(replace(first, file=Path(first.file).name))
        for mistake in mistakes[:20]:
            log.error("kept the running configuration: %s", mistake)


def _tell(old: Config, new: Config) -> None:
    for line in differences(old, new):
        log.info("configuration: %s", line)


def _quiet_collector() -> None:
    """What is here by now stays, so the collector need not look at it again; a call leaves no circles, so it may look seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def run(app: App, *, host: str | None = None, port: int | None = None, ready: Callable[[Address], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain: 0. A second SIGINT ends at once: 130.

    Raises:
        OSError: the address can't be had.
    """
    loop = asyncio.get_running_loop()
    sys.setswitchinterval(SWITCH)
    stop, now = asyncio.Event(), asyncio.Event()

    def interrupted() -> None:
        (now if stop.is_set() else stop).set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGHUP, app.reload.soon)
    ready(await app.start(host, port))
    await stop.wait()
    if running := len(app.endpoints.running):
        log.info("stopping: calls still running: %d, for at most %g s; Ctrl-C ends them at once", running, app.config.server.drain)
    draining = loop.create_task(app.drain(), name="spangate.drain")
    at_once = loop.create_task(now.wait(), name="spangate.at_once")
    await asyncio.wait({draining, at_once}, return_when=asyncio.FIRST_COMPLETED)
    at_once.cancel()
    if not draining.done():
        draining.cancel()
        await asyncio.wait({draining})
        await app.drain(0)
        return 130
    await draining
    return 0
